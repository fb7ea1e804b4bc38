"""The status of a pod, as a kubelet writes it: values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflows.testing.cluster.messages import Json

OVER = ("Succeeded", "Failed")
_NEVER_STARTED = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended.

    Attributes:
        code: as a shell has it.
        reason: Completed, Error, OOMKilled, StartError, …
        message: of the end, such as what it left in /dev/termination-log.
    """

    code: int
    reason: str = ""
    message: str = ""

    @property
    def word(self) -> str:
        """The reason, made up from the code when none is known."""
        return self.reason or ("Error" if self.code else "Completed")


def set_condition(status: Json, name: str, value: str, now: str, reason: str = "", message: str = "") -> None:
    """Set a condition of a status; its time moves only when its value changes."""
    conditions = status.setdefault("conditions", [])
    words = {**({"reason": reason} if reason else {}), **({"message": message} if message else {})}
    for index, known in enumerate(conditions):
        if known["type"] == name:
            since = known["lastTransitionTime"] if known["status"] == value else now
            conditions[index] = _condition(name, value, since, words)
            return
    conditions.append(_condition(name, value, now, words))


def condition(found: Json, name: str) -> Json | None:
    """Return a condition of an object."""
    for known in (found.get("status") or {}).get("conditions") or ():
        if known["type"] == name:
            wanted: Json = known
            return wanted
    return None


def has(found: Json, name: str) -> bool:
    """Whether a condition of an object is true."""
    known = condition(found, name)
    return known is not None and known["status"] == "True"


def is_over(pod: Json) -> bool:
    """Whether a pod has ended."""
    return pod["status"].get("phase") in OVER


def is_going(pod: Json) -> bool:
    """Whether a pod has not ended and is not told to."""
    return not is_over(pod) and "deletionTimestamp" not in pod["metadata"]


def index_of(pod: Json) -> int:
    """Return the completion index; -1 for a pod without one."""
    annotations = pod["metadata"].get("annotations") or {}
    return int(annotations.get("batch.kubernetes.io/job-completion-index", -1))


def set_bound(pod: Json, node: str, address: str, now: str) -> None:
    """Say that a pod has a node, and that its containers are being made."""
    pod["spec"]["nodeName"] = node
    status = pod["status"]
    has_init = bool(pod["spec"].get("initContainers"))
    set_condition(status, "PodReadyToStartContainers", "False", now)
    if has_init:
        names = " ".join(container["name"] for container in pod["spec"]["initContainers"])
        words = ("ContainersNotInitialized", f"containers with incomplete status: [{names}]")
        set_condition(status, "Initialized", "False", now, *words)
    else:
        set_condition(status, "Initialized", "True", now)
    _set_unready(pod, now, "ContainersNotReady")
    set_condition(status, "PodScheduled", "True", now)
    status.update(hostIP="10.244.0.1", podIP=address, podIPs=[{"ip": address}], startTime=now)
    waits = "PodInitializing" if has_init else "ContainerCreating"
    for part, field in (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")):
        if pod["spec"].get(part):
            status[field] = [_container(container, waits) for container in pod["spec"][part]]


def set_waiting(pod: Json, reason: str, message: str = "") -> None:
    """Say why the containers do not start."""
    for container in pod["status"].get("containerStatuses", ()):
        words = {"reason": reason, **({"message": message} if message else {})}
        container["state"] = {"waiting": words}


def set_running(pod: Json, now: str) -> None:
    """Say that the containers run."""
    status = pod["status"]
    status["phase"] = "Running"
    set_condition(status, "PodReadyToStartContainers", "True", now)
    set_condition(status, "Initialized", "True", now)
    set_condition(status, "Ready", "True", now)
    set_condition(status, "ContainersReady", "True", now)
    for container in status.get("initContainerStatuses", ()):
        if "terminated" not in container["state"]:
            container["state"] = {"terminated": _terminated(Exit(0), now, now)}
    for container in status["containerStatuses"]:
        container.update(state={"running": {"startedAt": now}}, ready=True, started=True)


def set_ended(pod: Json, ends: Mapping[str, Exit], now: str) -> None:
    """Say how containers ended, init containers too; the phase follows later."""
    status = pod["status"]
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(field, ()):
            end = ends.get(container["name"])
            if end is None:
                continue
            running = container["state"].get("running") or {}
            born = now if field == "initContainerStatuses" else _NEVER_STARTED
            started = running.get("startedAt", born)
            container.update(state={"terminated": _terminated(end, started, now)}, ready=False, started=False)
    _set_unready(pod, now, "ContainersNotReady")


def set_restarted(pod: Json, end: Exit, now: str) -> None:
    """Say that main ended and runs again, as `restartPolicy: OnFailure` has it."""
    for container in pod["status"]["containerStatuses"]:
        started = (container["state"].get("running") or {}).get("startedAt", now)
        container["lastState"] = {"terminated": _terminated(end, started, now)}
        container["restartCount"] += 1
        container["state"] = {"running": {"startedAt": now}}


def set_over(pod: Json, phase: str, now: str) -> None:
    """Set the last phase of a pod."""
    status = pod["status"]
    status["phase"] = phase
    set_condition(status, "PodReadyToStartContainers", "False", now)
    _set_unready(pod, now, "PodCompleted" if phase == "Succeeded" else "PodFailed")


def set_node_lost(pod: Json, now: str) -> None:
    """Say that nothing is heard of a pod's node."""
    set_condition(pod["status"], "Ready", "False", now)


def exit_codes(pod: Json) -> Sequence[tuple[str, int]]:
    """Return the exit codes of the containers that have ended, init containers first."""
    status = pod["status"]
    found = []
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(field, ()):
            end = container["state"].get("terminated")
            if end:
                found.append((str(container["name"]), int(end["exitCode"])))
    return found


def _container(container: Json, waits: str) -> Json:
    return {
        "name": container["name"],
        "state": {"waiting": {"reason": waits}},
        "lastState": {},
        "ready": False,
        "restartCount": 0,
        "image": container.get("image", ""),
        "imageID": "",
        "started": False,
    }


def _terminated(end: Exit, started: str, now: str) -> Json:
    words: dict[str, Any] = {"exitCode": end.code, "reason": end.word}
    if end.message:
        words["message"] = end.message
    return {**words, "startedAt": started, "finishedAt": now}


def _set_unready(pod: Json, now: str, reason: str) -> None:
    names = " ".join(container["name"] for container in pod["spec"]["containers"])
    message = f"containers with unready status: [{names}]" if reason == "ContainersNotReady" else ""
    for name in ("Ready", "ContainersReady"):
        set_condition(pod["status"], name, "False", now, reason, message)


def _condition(name: str, value: str, since: str, words: Mapping[str, str]) -> Json:
    return {"type": name, "status": value, "lastProbeTime": None, "lastTransitionTime": since, **words}

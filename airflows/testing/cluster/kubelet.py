"""The kubelets of all nodes: what becomes of a pod once it has a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Protocol

from airflows.testing.cluster import podstatus
from airflows.testing.cluster.kinds import PODS
from airflows.testing.cluster.logs import ContainerLog
from airflows.testing.cluster.messages import Json
from airflows.testing.cluster.plans import PlanRule, PodPlan
from airflows.testing.cluster.podstatus import Exit
from airflows.testing.cluster.store import Change, controller_of
from airflows.testing.cluster.world import World
from airflows.testing.workspace.clock import Appointment

_PHASE_LAG_S, _REMOVAL_LAG_S, _RETRY_S = 1.0, 0.3, 10.0
_FALLBACK_LINES, _FALLBACK_BYTES = 80, 2048
MAIN = "main"


class Containers(Protocol):
    """What runs the containers of a pod: a plan, or processes."""

    def start(self, pod: Json, plan: PodPlan) -> None:
        """Let them run; `Kubelet.ended` is called when they have ended."""

    def terminate(self, uid: str) -> None:
        """Send SIGTERM."""

    def kill(self, uid: str) -> None:
        """Send SIGKILL; they end with 137."""

    def close(self) -> None:
        """End all of them, at once."""


@dataclass(slots=True)
class _Seen:
    """What a kubelet knows of a pod beyond its status."""

    plan: PodPlan
    is_started: bool = False
    is_stopping: bool = False
    is_on_lost_node: bool = False
    due: list[Appointment] = field(default_factory=list)


class Kubelet:
    """Starts and stops pods, and writes what they do into their status."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.containers: Containers
        self.rules: list[PlanRule] = list(world.settings.plans)
        self._logs: dict[str, dict[str, ContainerLog]] = {}
        self._seen: dict[str, _Seen] = {}
        self._addresses = 1
        world.listeners.append(self._listen)

    def plan(self, pod: Json) -> PodPlan:
        """Return what a pod is to do."""
        known = self._seen.get(pod["metadata"]["uid"])
        if known is not None:
            return known.plan
        owner = controller_of(pod)
        job = owner["name"] if owner else pod["metadata"]["name"]
        for rule in reversed(self.rules):
            if rule.fits(pod["metadata"].get("namespace", ""), job, podstatus.index_of(pod)):
                return rule.plan
        return self._world.settings.default

    def log(self, uid: str, container: str) -> ContainerLog:
        """Return the log of a container; made when there is none."""
        return self._logs.setdefault(uid, {}).setdefault(container, ContainerLog(self._world.changed))

    def bind(self, pod: Json, node: str) -> None:
        """Give a pod to a node."""
        self._addresses += 1
        high, low = divmod(self._addresses, 250)
        seen = self._seen[pod["metadata"]["uid"]] = _Seen(self.plan(pod))
        with self._world.changing(PODS, pod) as bound:
            podstatus.set_bound(bound, node, f"10.244.{high % 250}.{low + 2}", self._world.written_now())
        metadata = pod["metadata"]
        words = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}"
        self._world.events.normal(pod, "Scheduled", words, "default-scheduler")
        self._later(seen, seen.plan.start_s, lambda: self._start(pod))

    def running(self, uid: str) -> None:
        """Say that the containers of a pod run now."""
        pod = self._pod(uid)
        if pod is None:
            return
        with self._world.changing(PODS, pod) as changed:
            podstatus.set_running(changed, self._world.written_now())
        self._world.events.normal(pod, "Started", "Container started", "kubelet")

    def restarted(self, uid: str, end: Exit) -> None:
        """Say that main ended and runs again."""
        pod = self._pod(uid)
        if pod is not None:
            with self._world.changing(PODS, pod) as changed:
                podstatus.set_restarted(changed, end, self._world.written_now())

    def ended(self, uid: str, ends: Mapping[str, Exit]) -> None:
        """Say how the containers of a pod ended."""
        pod, seen = self._pod(uid), self._seen.get(uid)
        logs = self._logs.get(uid, {})
        for log in logs.values():
            log.close()
        if pod is None or seen is None or seen.is_on_lost_node or podstatus.is_over(pod):
            return
        ends = {name: _with_message(pod, name, end, logs.get(name)) for name, end in ends.items()}
        with self._world.changing(PODS, pod) as changed:
            podstatus.set_ended(changed, ends, self._world.written_now())
        failed = any(end.code for end in ends.values())
        # One that is being deleted gets its last phase at once.
        lag = 0.0 if seen.is_stopping else _PHASE_LAG_S
        self._later(seen, lag, lambda: self._close(uid, "Failed" if failed else "Succeeded"))

    def fail(self, pod: Json, reason: str = "", message: str = "") -> None:
        """End a pod at once, whatever it does: `Evicted`, or collected from a node that is gone."""
        uid = pod["metadata"]["uid"]
        self._forget_plans(uid)
        self.containers.kill(uid)
        with self._world.changing(PODS, pod) as changed:
            if changed["status"].get("containerStatuses"):
                ends = {container["name"]: Exit(137) for container in changed["spec"]["containers"]}
                podstatus.set_ended(changed, ends, self._world.written_now())
            podstatus.set_over(changed, "Failed", self._world.written_now())
            if reason:
                changed["status"].update(reason=reason, message=message)

    def lose(self, node: str, *, is_lost: bool) -> None:
        """Say that nothing is heard of a node any more, or again."""
        for pod in self._world.store.all("pods"):
            seen = self._seen.get(pod["metadata"]["uid"])
            if seen is not None and pod["spec"].get("nodeName") == node:
                seen.is_on_lost_node = is_lost
                if is_lost:
                    self._forget_plans(pod["metadata"]["uid"])

    def _listen(self, change: Change) -> None:
        if change.resource != "pods":
            return
        metadata = change.object["metadata"]
        uid = metadata["uid"]
        seen = self._seen.get(uid)
        if change.type == "DELETED":
            if seen is not None:
                self._forget_plans(uid)
                del self._seen[uid]
                self.containers.kill(uid)
            for log in self._logs.pop(uid, {}).values():
                log.close()
            return
        if "deletionTimestamp" not in metadata or (seen is not None and seen.is_on_lost_node):
            return
        if seen is None:
            # No kubelet has it, so that nobody is waited for.
            if not metadata.get("finalizers"):
                self._world.after(0.0, lambda: self._remove(uid))
            return
        if not seen.is_stopping and not podstatus.is_over(change.object):
            seen.is_stopping = True
            self._world.after(0.0, lambda: self._stop(uid))
        elif podstatus.is_over(change.object) and not metadata.get("finalizers"):
            self._world.after(_REMOVAL_LAG_S, lambda: self._remove(uid))

    def _start(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        current, seen = self._pod(uid), self._seen.get(uid)
        if current is None or seen is None or seen.is_stopping:
            return
        why = self._obstacle(current, seen.plan)
        if why is not None:
            reason, message = why
            with self._world.changing(PODS, current) as changed:
                podstatus.set_waiting(changed, reason, message)
            self._complain(pod, reason, message)
            self._later(seen, _RETRY_S, lambda: self._start(pod))
            return
        seen.is_started = True
        self.containers.start(current, seen.plan)

    def _complain(self, pod: Json, reason: str, message: str) -> None:
        if reason == "ContainerCreating":
            self._world.events.warning(pod, "FailedMount", message, "kubelet")
            return
        said = message if reason == "CreateContainerConfigError" else reason
        if "Image" in reason:
            self._world.events.warning(pod, reason, message, "kubelet")
        self._world.events.warning(pod, "Failed", f"Error: {said}", "kubelet")

    def _obstacle(self, pod: Json, plan: PodPlan) -> tuple[str, str] | None:
        """Return why the containers of a pod cannot start."""
        if plan.waiting:
            return plan.waiting, plan.message
        unmounted = self._unmounted(pod)
        if unmounted:
            return "ContainerCreating", unmounted
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            image = container.get("image", "")
            if any(fnmatchcase(image, glob) for glob in self._world.settings.missing_images):
                return _missing(image, container.get("imagePullPolicy", ""))
            whole = container.get("envFrom") or ()
            for source in (*whole, *(given.get("valueFrom") or {} for given in container.get("env") or ())):
                lacking = self._lacking(pod, source)
                if lacking:
                    return "CreateContainerConfigError", lacking
        return None

    def _unmounted(self, pod: Json) -> str:
        namespace = pod["metadata"]["namespace"]
        for volume in pod["spec"].get("volumes") or ():
            for source, resource, key in (
                ("configMap", "configmaps", "name"),
                ("secret", "secrets", "secretName"),
            ):
                name = (volume.get(source) or {}).get(key)
                if name and self._world.store.get(resource, namespace, name) is None:
                    word = source.lower()
                    return (
                        f'MountVolume.SetUp failed for volume "{volume["name"]}" : {word} "{name}" not found'
                    )
        return ""

    def _lacking(self, pod: Json, source: Json) -> str:
        namespace = pod["metadata"]["namespace"]
        for field_name, resource, word in (
            ("secretKeyRef", "secrets", "secret"),
            ("secretRef", "secrets", "secret"),
            ("configMapKeyRef", "configmaps", "configmap"),
            ("configMapRef", "configmaps", "configmap"),
        ):
            wanted = source.get(field_name)
            if not wanted or wanted.get("optional"):
                continue
            found = self._world.store.get(resource, namespace, wanted["name"])
            if found is None:
                return f'{word} "{wanted["name"]}" not found'
            known = {**(found.get("data") or {}), **(found.get("binaryData") or {})}
            if "key" in wanted and wanted["key"] not in known:
                kind = "Secret" if word == "secret" else "ConfigMap"
                return f"couldn't find key {wanted['key']} in {kind} {namespace}/{wanted['name']}"
        return ""

    def _stop(self, uid: str) -> None:
        pod, seen = self._pod(uid), self._seen.get(uid)
        if pod is None or seen is None or podstatus.is_over(pod):
            return
        if not seen.is_started:
            # Its containers were never made; there is nothing to wait for.
            self._forget_plans(uid)
            self._close(uid, "Failed")
            return
        self._world.events.normal(pod, "Killing", "Stopping container main", "kubelet")
        self.containers.terminate(uid)
        grace = pod["metadata"].get("deletionGracePeriodSeconds", 30)
        self._later(seen, float(grace), lambda: self.containers.kill(uid))

    def _close(self, uid: str, phase: str) -> None:
        pod = self._pod(uid)
        if pod is not None and not podstatus.is_over(pod):
            with self._world.changing(PODS, pod) as changed:
                podstatus.set_over(changed, phase, self._world.written_now())

    def _remove(self, uid: str) -> None:
        pod = self._pod(uid)
        if pod is not None and not pod["metadata"].get("finalizers"):
            self._world.store.remove(PODS, pod)

    def _pod(self, uid: str) -> Json | None:
        return self._world.store.of_uid(uid)

    def _later(self, seen: _Seen, seconds: float, action: Callable[[], None]) -> None:
        seen.due.append(self._world.after(seconds, action))

    def _forget_plans(self, uid: str) -> None:
        for appointment in self._seen[uid].due if uid in self._seen else ():
            appointment.is_off = True


def _with_message(pod: Json, name: str, end: Exit, log: ContainerLog | None) -> Exit:
    """Return an end with the last lines, if that is what stands for the message that it lacks."""
    containers = (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"])
    policy = {container["name"]: container["terminationMessagePolicy"] for container in containers}
    if not end.code or end.message or log is None or policy.get(name) != "FallbackToLogsOnError":
        return end
    lines = [line for _, line in log.lines[-_FALLBACK_LINES:]]
    return replace(end, message=b"".join(lines)[-_FALLBACK_BYTES:].decode(errors="replace"))


def _missing(image: str, policy: str) -> tuple[str, str]:
    if policy == "Never":
        return "ErrImageNeverPull", f'Container image "{image}" is not present with pull policy of Never'
    words = (
        f'Back-off pulling image "{image}": ErrImagePull: failed to resolve reference "{image}": not found'
    )
    return "ImagePullBackOff", words

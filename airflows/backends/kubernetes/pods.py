"""What a pod's status says, reduced to what matters. Pure; words nobody knows are kept, never fatal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflows.backends.kubernetes.manifest import INDEX, MAIN

NEVER_BY_ITSELF = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)
"""Why a container does not start, where waiting alone seldom helps."""
_TOLD = re.compile(r"^airflows-(word|resumed-from): (.*)$", re.MULTILINE)
_MOST_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of an attempt.

    Attributes:
        uid: of the pod.
        name: of the pod; nothing can be read off it.
        index: which node of the attempt it is.
        created_at: seconds since the epoch.
        phase: Kubernetes' own word.
        host: the machine, empty before it has one.
        started_at: when the command's container started.
        ended_at: when it ended.
        exit_code: of it, or of the first init container that failed.
        ended_as: Kubernetes' word for how it ended, such as `OOMKilled`.
        message: its last words: what the preamble told, or the last lines of the log.
        waits_for: why a container does not run, such as `ImagePullBackOff`.
        waits_because: what is said about that.
        unscheduled: why no machine is found, empty when one was.
        disrupted_by: the reason of its DisruptionTarget condition.
        is_going: it is being deleted.
    """

    uid: str
    name: str
    index: int
    created_at: float
    phase: str
    host: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    ended_as: str = ""
    message: str = ""
    waits_for: str = ""
    waits_because: str = ""
    unscheduled: str = ""
    disrupted_by: str = ""
    is_going: bool = False

    @property
    def is_running(self) -> bool:
        """Whether the command's container runs."""
        return self.started_at is not None and self.exit_code is None

    @property
    def has_ended(self) -> bool:
        """Whether a container has left an exit code."""
        return self.exit_code is not None

    @property
    def has_failed(self) -> bool:
        """Whether that is not 0."""
        return bool(self.exit_code)

    def told(self, what: str) -> str:
        """Return what the preamble left as termination message: `word`, `resumed-from`; empty for nothing."""
        found: dict[str, str] = dict(_TOLD.findall(self.message))
        return found.get(what, "")

    @property
    def why_not(self) -> str:
        """Why it does not run, for people; empty when that needs no words."""
        if self.unscheduled:
            return self.unscheduled
        if self.waits_for in {"", "ContainerCreating", "PodInitializing"}:
            return ""
        said = f": {self.waits_because}" if self.waits_because else ""
        return f"{self.waits_for}{said}"


def pod_of(item: Mapping[str, Any]) -> Pod:
    """Return what a pod's object says."""
    metadata, spec, status = (item.get(key) or {} for key in ("metadata", "spec", "status"))
    states = {s.get("name"): s.get("state") or {} for s in status.get("containerStatuses") or ()}
    main = states.get(MAIN) or {}
    running, ended = main.get("running") or {}, main.get("terminated") or {}
    first = _failed_init(status) if not ended else {}
    waiting = _waiting(status, main)
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    told = ended or first
    return Pod(
        uid=str(metadata.get("uid") or metadata.get("name")),
        name=str(metadata.get("name")),
        index=_index(metadata),
        created_at=seconds(metadata.get("creationTimestamp")) or 0.0,
        phase=str(status.get("phase") or ""),
        host=str(spec.get("nodeName") or ""),
        started_at=seconds((running or ended).get("startedAt")),
        ended_at=seconds(told.get("finishedAt")),
        exit_code=_code(told),
        ended_as=str(told.get("reason") or status.get("reason") or ""),
        message=str(told.get("message") or status.get("message") or ""),
        waits_for=str(waiting.get("reason") or ""),
        waits_because=_short(waiting.get("message")),
        unscheduled=_unscheduled(conditions.get("PodScheduled") or {}),
        disrupted_by=_disruption(conditions.get("DisruptionTarget") or {}),
        is_going=bool(metadata.get("deletionTimestamp")),
    )


def _index(metadata: Mapping[str, Any]) -> int:
    for where in ("annotations", "labels"):
        text = str((metadata.get(where) or {}).get(INDEX, ""))
        if text.isdigit():
            return int(text)
    return 0


def _code(ended: Mapping[str, Any]) -> int | None:
    code = ended.get("exitCode")
    return int(code) if isinstance(code, int) else None


def _failed_init(status: Mapping[str, Any]) -> Mapping[str, Any]:
    for each in status.get("initContainerStatuses") or ():
        ended: Mapping[str, Any] = (each.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return ended
    return {}


def _waiting(status: Mapping[str, Any], main: Mapping[str, Any]) -> Mapping[str, Any]:
    for each in status.get("initContainerStatuses") or ():
        found: Mapping[str, Any] = (each.get("state") or {}).get("waiting") or {}
        if found.get("reason") not in {None, "PodInitializing"}:
            return found
    waiting: Mapping[str, Any] = main.get("waiting") or {}
    return waiting


def _unscheduled(condition: Mapping[str, Any]) -> str:
    if condition.get("status") != "False":
        return ""
    said = _short(condition.get("message"))
    reason = str(condition.get("reason") or "not scheduled")
    return f"{reason}: {said}" if said else reason


def _disruption(condition: Mapping[str, Any]) -> str:
    return str(condition.get("reason") or "unknown") if condition.get("status") == "True" else ""


def newest_of_each(pods: Iterable[Pod]) -> dict[int, Pod]:
    """Return the newest pod of each node, by node: a replaced one is older."""
    newest: dict[int, Pod] = {}
    for pod in sorted(pods, key=lambda one: one.created_at):
        newest[pod.index] = pod
    return dict(sorted(newest.items()))


def seconds(text: Any) -> float | None:
    """Return a time of the API as seconds since the epoch; None for none."""
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    # The epoch itself stands for "never": so it is written of a container that could not be started.
    return at.replace(tzinfo=at.tzinfo or UTC).timestamp() or None


def _short(text: Any) -> str:
    return " ".join(str(text or "").split())[:_MOST_CHARACTERS]

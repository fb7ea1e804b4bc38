"""What a Job and its pods say, and what that means for an attempt. Pure; what nobody knows is never fatal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflows.backends.base import Observation, Phase
from airflows.backends.kubernetes.manifest import BECAUSE, QUEUE
from airflows.backends.kubernetes.pods import Pod, newest_of_each, seconds
from airflows.exits import OwnExit

Object = Mapping[str, Any]

# A machine went away, rather than another pod taking its place.
_NODE_REASONS = frozenset({"DeletionByPodGC", "DeletionByTaintManager", "NodeLost"})
_MEMORY = "OOMKilled"
# The command could not be started at all.
_NOT_STARTED = frozenset({"StartError", "ContainerCannotRun"})
_OWN_WORDS = frozenset(code.word for code in OwnExit)
_SIGTERM, _SIGKILL = 143, 137
_MOST_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one attempt at a moment.

    Attributes:
        job: its Job.
        pods: its pods, also those seen earlier that had ended or were disrupted and are gone now.
        why_queued: what the queue says about a Job that it holds back.
        why_no_pods: what the Job controller says when it cannot make pods.
    """

    job: Object
    pods: Sequence[Pod]
    why_queued: str = ""
    why_no_pods: str = ""

    @property
    def nodes(self) -> int:
        """How many nodes the attempt has."""
        return int((self.job.get("spec") or {}).get("completions") or 1)


def conditions_of(job: Object) -> dict[str, Object]:
    """Return the conditions of a Job that hold, by type."""
    found = (job.get("status") or {}).get("conditions") or ()
    return {str(one.get("type")): one for one in found if one.get("status") == "True"}


def is_over(job: Object) -> bool:
    """Whether a Job has ended for good."""
    return bool({"Complete", "Failed"} & set(conditions_of(job)))


def is_going(job: Object) -> bool:
    """Whether a Job is being deleted."""
    return bool((job.get("metadata") or {}).get("deletionTimestamp"))


def ended_because(job: Object) -> str:
    """Return why airflows itself has ended a Job that could not start; empty when it has not."""
    return str(((job.get("metadata") or {}).get("annotations") or {}).get(BECAUSE) or "")


def is_suspended(job: Object) -> bool:
    """Whether a queue holds a Job back."""
    return bool((job.get("spec") or {}).get("suspend"))


def started_at(job: Object) -> float | None:
    """Return when a Job was started, or let go on by its queue, last; None while it is held back."""
    return None if is_suspended(job) else seconds((job.get("status") or {}).get("startTime"))


def lacks_pods(job: Object) -> bool:
    """Whether a Job should have pods and has fewer than it wants."""
    if is_over(job) or is_suspended(job) or is_going(job):
        return False
    status = job.get("status") or {}
    wanted = int((job.get("spec") or {}).get("parallelism") or 1)
    there = sum(int(status.get(key) or 0) for key in ("active", "succeeded", "failed", "terminating"))
    return "startTime" in status and there < wanted


def observe(known: Known) -> Observation:
    """Return what is seen of an attempt; the first rule that fits counts."""
    job, conditions = known.job, conditions_of(known.job)
    if "Complete" in conditions:
        return _succeeded(known, conditions["Complete"])
    if "Failed" in conditions:
        return _failed(known, conditions["Failed"])
    if "FailureTarget" in conditions or "SuccessCriteriaMet" in conditions:
        return _running(known, "its pods are being stopped")
    if is_going(job):
        return Observation(Phase.UNKNOWN, detail="Kubernetes is deleting it")
    if is_suspended(job):
        return Observation(Phase.QUEUED, detail=known.why_queued or _held_back(job))
    return _waiting_or_running(known)


def _held_back(job: Object) -> str:
    queue = ((job.get("metadata") or {}).get("labels") or {}).get(QUEUE)
    stopping = " (its pods are still being stopped)" if (job.get("status") or {}).get("terminating") else ""
    return f"it waits in queue {queue}{stopping}" if queue else f"it is suspended{stopping}"


def _waiting_or_running(known: Known) -> Observation:
    newest = newest_of_each(known.pods)
    up = {index for index, pod in newest.items() if pod.is_running or pod.exit_code == 0}
    if len(up) >= known.nodes and any(pod.is_running for pod in newest.values()):
        return _running(known, "")
    if any(pod.has_ended for pod in newest.values()):
        return _running(known, "Kubernetes is counting its pods")
    why = known.why_no_pods or next((pod.why_not for pod in newest.values() if pod.why_not), "")
    if not up:
        return Observation(Phase.QUEUED, detail=why or _beginning(newest))
    missing = ", ".join(str(index) for index in range(known.nodes) if index not in up)
    detail = f"{len(up)} of {known.nodes} nodes have started, and wait for node {missing}"
    return Observation(Phase.QUEUED, detail=f"{detail}: {why}" if why else detail)


def _beginning(pods: Mapping[int, Pod]) -> str:
    if not pods:
        return "Kubernetes has not made its pods yet"
    return (
        "its containers are being made" if any(pod.host for pod in pods.values()) else "it waits for a node"
    )


def _running(known: Known, detail: str) -> Observation:
    newest = newest_of_each(known.pods)
    started = [pod.started_at for pod in newest.values() if pod.started_at is not None]
    return Observation(
        Phase.RUNNING, detail=detail, started_at=min(started, default=None), host=_host(newest)
    )


def _host(pods: Mapping[int, Pod]) -> str:
    return next((pod.host for pod in pods.values() if pod.host), "")


# Ends


def _succeeded(known: Known, condition: Object) -> Observation:
    at = seconds((known.job.get("status") or {}).get("completionTime"))
    return _ended(known, condition, 0, "", "", at=at)


def _failed(known: Known, condition: Object) -> Observation:
    reason, message = str(condition.get("reason") or ""), str(condition.get("message") or "")
    first = first_failed(known.pods)
    node = first.index if first else 0
    code = first.exit_code if first else None
    said = f"Kubernetes says {reason}: {message}"[:_MOST_CHARACTERS] if reason or message else ""
    if reason == "DeadlineExceeded":
        never = not any(pod.started_at for pod in known.pods)
        detail = "the time limit passed before it ran: waiting for a node counts" if never else ""
        return _ended(known, condition, code, "TIMED_OUT", detail, node=node)
    if "DisruptionTarget" in message or "rule at index 0" in message:
        node = next((i for i, pod in newest_of_each(known.pods).items() if pod.disrupted_by), node)
        return _ended(known, condition, code, _disruption(known.pods), said, node=node)
    if first is None:
        return _without_a_pod(known, condition, said)
    disrupted = [pod for pod in newest_of_each(known.pods).values() if pod.disrupted_by]
    if disrupted and first.ended_as != _MEMORY:
        # Other nodes fail in its wake, and may be counted before it.
        gone = first if first.disrupted_by else disrupted[0]
        word, detail = _disruption(disrupted), _one_line(gone.message) or said
        return _ended(known, condition, gone.exit_code, word, detail, node=gone.index)
    word, detail = _cause(first)
    return _ended(known, condition, code, word, detail, node=node)


def _disruption(pods: Iterable[Pod]) -> str:
    is_of_node = any(pod.disrupted_by in _NODE_REASONS for pod in pods)
    return "NODE_FAILED" if is_of_node else "PREEMPTED"


def _without_a_pod(known: Known, condition: Object, said: str) -> Observation:
    """Observe the end of an attempt whose pods are all gone, and with them how they ended."""
    if any(pod.disrupted_by for pod in known.pods):
        return _ended(known, condition, None, _disruption(known.pods), said)
    return _ended(known, condition, None, "LOST", f"its pods were deleted before they ended; {said}")


def _cause(first: Pod) -> tuple[str, str]:
    """Return (word, detail) of the node that failed first."""
    own = first.told("word")
    if own in _OWN_WORDS:
        return own.upper(), ""
    if first.ended_as == _MEMORY:
        return _MEMORY.upper(), "a container used more memory than it may"
    if first.ended_as in _NOT_STARTED:
        return "INVALID", f"the container could not be started: {_one_line(first.message)}"
    if first.disrupted_by or first.ended_as == "Evicted":
        return _disruption([first]), _one_line(first.message)
    return "", ""


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MOST_CHARACTERS]


def first_failed(pods: Iterable[Pod]) -> Pod | None:
    """Return the pod whose failure was the cause: the first one; others follow it, or were replaced."""
    failed = [pod for pod in newest_of_each(pods).values() if pod.has_failed]
    # Times are whole seconds: of two, one that was signalled or is being deleted is the echo.
    return min(
        failed,
        key=lambda pod: (
            pod.ended_at or float("inf"),
            pod.is_going,
            pod.exit_code in {_SIGTERM, _SIGKILL} and pod.ended_as != _MEMORY,
            pod.index,
        ),
        default=None,
    )


def _ended(
    known: Known,
    condition: Object,
    code: int | None,
    word: str,
    detail: str,
    *,
    node: int = 0,
    at: float | None = None,
) -> Observation:
    newest = newest_of_each(known.pods)
    starts = [pod.started_at for pod in newest.values() if pod.started_at is not None]
    began = min(starts, default=None)
    ended = at or seconds(condition.get("lastTransitionTime"))
    if ended is not None and began is not None and ended <= began:
        # Both are whole seconds.
        ended = began + 0.001
    resumed = next((text for pod in newest.values() if (text := pod.told("resumed-from"))), "")
    return Observation(
        Phase.ENDED,
        code,
        word,
        detail,
        started_at=began,
        ended_at=ended,
        host=newest[node].host if node in newest else _host(newest),
        resumed_from=resumed,
        node=node,
    )


# What queues and the Job controller say


def queue_words(workload: Object) -> str:
    """Return why Kueue holds a workload back, for people; empty when it does not say."""
    found = {str(c.get("type")): c for c in (workload.get("status") or {}).get("conditions") or ()}
    evicted, reserved = found.get("Evicted") or {}, found.get("QuotaReserved") or {}
    queue = (workload.get("spec") or {}).get("queueName", "")
    said = _one_line(str(reserved.get("message") or ""))
    reason = str(reserved.get("reason") or "")
    if evicted.get("status") == "True":
        why = _one_line(str(evicted.get("message") or evicted.get("reason") or ""))
        return f"Kueue stopped it ({why}), and it waits in queue {queue} again"
    if reserved.get("status") == "True":
        return f"queue {queue} has room for it; it is about to start"
    if reason in {"Misconfigured", "Inadmissible"}:
        return f"queue {queue} is not set up: {said}"
    if reason == "ExceedsMaxQuota":
        return f"queue {queue} can never hold it: {said}"
    return f"it waits for room in queue {queue}: {said}" if reason else ""

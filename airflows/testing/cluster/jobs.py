"""The Job controller: pods for each index, what their ends mean, deadlines, suspension, time to live."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflows.testing.cluster.counting import (
    Tally,
    met_rule,
    read_indexes,
    restarts,
    tally,
    verdict,
    written_indexes,
)
from airflows.testing.cluster.defaults import read_time
from airflows.testing.cluster.deletion import TRACKING, Deletion
from airflows.testing.cluster.kinds import JOBS, PODS
from airflows.testing.cluster.messages import Json
from airflows.testing.cluster.podmaking import pod_of
from airflows.testing.cluster.podstatus import condition, has, index_of
from airflows.testing.cluster.quotas import Quotas
from airflows.testing.cluster.store import Change, controller_of
from airflows.testing.cluster.world import World

_PROMPT_S, _BATCH_S, _FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 0.02, 1.0, 10.0, 600.0
_MOST_DOUBLINGS = 10
_CONDITION_WORDS = {
    "BackoffLimitExceeded": "Job has reached the specified backoff limit",
    "DeadlineExceeded": "Job was active longer than specified deadline",
    "FailedIndexes": "Job has failed indexes",
    "MaxFailedIndexesExceeded": "Job has exceeded the specified maximal number of failed indexes",
    "CompletionsReached": "Reached expected number of succeeded pods",
}


@dataclass(slots=True)
class _Memory:
    """What the controller remembers of a Job.

    Attributes:
        due: when it is looked at next, if that is fixed.
        failures: in a row.
        failed_at: when the last of them ended.
        denied: how often in a row a pod was refused by a quota.
    """

    due: float | None = None
    failures: int = 0
    failed_at: float = 0.0
    denied: int = 0
    index_failures: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Ending:
    """Why a Job ends: the first condition, the last one, and their words."""

    first: str
    last: str
    reason: str
    message: str


class JobController:
    """Looks at a Job a second after something happened to its pods, promptly after a change of its spec."""

    def __init__(self, world: World, deletion: Deletion, quotas: Quotas) -> None:
        self._world, self._deletion, self._quotas = world, deletion, quotas
        self._memories: dict[str, _Memory] = {}
        world.listeners.append(self._listen)

    def _listen(self, change: Change) -> None:
        if change.resource == "pods":
            owner = controller_of(change.object)
            if owner is not None and owner["kind"] == "Job":
                self._look_in(owner["uid"], _BATCH_S)
        elif change.resource == "jobs":
            uid = change.object["metadata"]["uid"]
            if change.type == "DELETED":
                self._memories.pop(uid, None)
            elif change.before is None or change.before["spec"] != change.object["spec"]:
                self._look_in(uid, _PROMPT_S)
            elif "deletionTimestamp" in change.object["metadata"].keys() - change.before["metadata"].keys():
                self._look_in(uid, _BATCH_S)

    def _look_in(self, uid: str, seconds: float) -> None:
        memory = self._memories.setdefault(uid, _Memory())
        moment = self._world.now() + seconds
        if memory.due is None or moment < memory.due:
            memory.due = moment
            self._world.after(seconds, lambda: self._look(uid, moment))

    def _look(self, uid: str, moment: float) -> None:
        memory, job = self._memories.get(uid), self._world.store.of_uid(uid)
        if memory is None or memory.due != moment:
            return
        memory.due = None
        if job is None:
            del self._memories[uid]
        elif has(job, "Complete") or has(job, "Failed"):
            self._live_on(job)
        elif "managedBy" not in job["spec"]:
            self._sync(job, memory)

    def _sync(self, job: Json, memory: _Memory) -> None:
        uid, spec = job["metadata"]["uid"], job["spec"]
        status = self._world.store.edited(job)["status"]
        pods = [pod for resource, pod in self._world.store.dependents(uid) if resource == "pods"]
        sorted_pods = tally(pods, counts_stopping=spec.get("podReplacementPolicy") != "Failed")
        is_going = "deletionTimestamp" in job["metadata"]
        is_stopped = bool(spec.get("suspend")) or is_going
        has_end = has(job, "FailureTarget") or has(job, "SuccessCriteriaMet")
        told = self._count(job, status, sorted_pods, memory, is_counted=not (is_stopped or has_end))
        ending = None if has_end else self._ending(job, status, sorted_pods, told)
        if ending is not None:
            self._set(status, ending.first, ending)
            self._stop(job, sorted_pods)
            if ending.first == "FailureTarget":
                self._count_stopped(status, sorted_pods)
            has_end = True
        elif not has_end and not is_going:
            if spec.get("suspend"):
                self._suspend(job, status, sorted_pods)
            else:
                self._run(job, status, sorted_pods, memory)
        if is_going:
            self._release_unbound(sorted_pods)
        self._write(job, status)
        if has_end:
            self._finish(job)

    def _release_unbound(self, pods: Tally) -> None:
        """Let go of pods that no node has, and for whose end nobody waits."""
        for pod in pods.terminating:
            if "nodeName" not in pod["spec"]:
                self._deletion.release(pod)

    def _count(self, job: Json, status: Json, pods: Tally, memory: _Memory, *, is_counted: bool) -> str:
        """Count pods that have ended; return why the Job is to fail, if a rule says so."""
        told = ""
        done = _done(status)
        lost = read_indexes(status.get("failedIndexes") or "")
        for pod in (*pods.succeeded, *pods.failed):
            if TRACKING not in pod["metadata"].get("finalizers", ()):
                continue
            index = index_of(pod)
            if pod["status"].get("phase") == "Succeeded":
                done.add(index if index >= 0 else len(done))
                memory.failures = 0
            elif is_counted:
                told = self._count_failure(job, status, pod, memory, lost) or told
            self._deletion.release(pod)
        if done:
            status["succeeded"] = len(done)
            if job["spec"]["completionMode"] == "Indexed":
                status["completedIndexes"] = written_indexes(done)
        if "backoffLimitPerIndex" in job["spec"]:
            status["failedIndexes"] = written_indexes(lost)
        return told

    def _count_stopped(self, status: Json, pods: Tally) -> None:
        """Count as failed what the end of the Job ends."""
        for pod in (*pods.active, *pods.terminating):
            current = self._world.store.of_uid(pod["metadata"]["uid"])
            if current is not None and TRACKING in current["metadata"].get("finalizers", ()):
                status["failed"] = status.get("failed", 0) + 1
                self._deletion.release(current)

    def _count_failure(self, job: Json, status: Json, pod: Json, memory: _Memory, lost: set[int]) -> str:
        found = verdict(job["spec"].get("podFailurePolicy"), pod)
        index = index_of(pod)
        memory.failures += 1
        memory.failed_at = _ended_at(pod, self._world.now())
        if found.action == "Ignore":
            return ""
        status["failed"] = status.get("failed", 0) + 1
        if "backoffLimitPerIndex" in job["spec"]:
            memory.index_failures[index] = memory.index_failures.get(index, 0) + 1
            if (
                found.action == "FailIndex"
                or memory.index_failures[index] > job["spec"]["backoffLimitPerIndex"]
            ):
                lost.add(index)
        return found.message if found.action == "FailJob" else ""

    def _ending(self, job: Json, status: Json, pods: Tally, told: str) -> _Ending | None:
        """Return why the Job ends, if it does."""
        spec = job["spec"]
        if told:
            return _Ending("FailureTarget", "Failed", "PodFailurePolicy", told)
        reason = self._failure(job, status, pods)
        if reason:
            return _Ending("FailureTarget", "Failed", reason, _CONDITION_WORDS[reason])
        done = _done(status)
        rule = met_rule(spec.get("successPolicy"), done)
        if rule is not None:
            return _Ending(
                "SuccessCriteriaMet", "Complete", "SuccessPolicy", f"Matched rules at index {rule}"
            )
        completions = spec.get("completions", spec["parallelism"])
        lost = read_indexes(status.get("failedIndexes") or "")
        if len(done) >= completions:
            reason = "CompletionsReached"
            return _Ending("SuccessCriteriaMet", "Complete", reason, _CONDITION_WORDS[reason])
        if lost and len(done | lost) >= completions:
            return _Ending("FailureTarget", "Failed", "FailedIndexes", _CONDITION_WORDS["FailedIndexes"])
        return None

    def _failure(self, job: Json, status: Json, pods: Tally) -> str:
        spec, limit = job["spec"], job["spec"]["backoffLimit"]
        if status.get("failed", 0) > limit:
            return "BackoffLimitExceeded"
        if spec["template"]["spec"]["restartPolicy"] == "OnFailure":
            count = restarts(pods.active)
            if count and count >= limit:
                return "BackoffLimitExceeded"
        if self._overdue(job, status):
            return "DeadlineExceeded"
        most = spec.get("maxFailedIndexes")
        if most is not None and len(read_indexes(status.get("failedIndexes") or "")) > most:
            return "MaxFailedIndexesExceeded"
        return ""

    def _overdue(self, job: Json, status: Json) -> bool:
        deadline = job["spec"].get("activeDeadlineSeconds")
        if deadline is None or "startTime" not in status or job["spec"].get("suspend"):
            return False
        left = read_time(status["startTime"]) + deadline - self._world.now()
        if left > 0:
            self._look_in(job["metadata"]["uid"], left)
        return bool(left <= 0)

    def _suspend(self, job: Json, status: Json, pods: Tally) -> None:
        self._stop(job, pods)
        status.pop("startTime", None)
        known = condition({"status": status}, "Suspended")
        if known is None or known["status"] != "True":
            self._set(status, "Suspended", _Ending("", "", "JobSuspended", "Job suspended"))
            self._world.events.normal(job, "Suspended", "Job suspended")

    def _run(self, job: Json, status: Json, pods: Tally, memory: _Memory) -> None:
        known = condition({"status": status}, "Suspended")
        if known is not None and known["status"] == "True":
            resumed = _Ending("", "", "JobResumed", "Job resumed")
            self._set(status, "Suspended", resumed, value="False")
            status["startTime"] = self._world.written_now()
            self._world.events.normal(job, "Resumed", "Job resumed")
        if "startTime" not in status:
            status["startTime"] = self._world.written_now()
        missing = self._missing(job, status, pods)
        wait = self._backoff(memory)
        if missing and wait > 0:
            self._look_in(job["metadata"]["uid"], wait)
            missing = []
        for index in missing:
            if not self._make_pod(job, index, memory):
                break
        self._overdue(job, status)

    def _missing(self, job: Json, status: Json, pods: Tally) -> list[int]:
        """Return the indexes that lack a pod."""
        spec = job["spec"]
        taken = _done(status)
        taken |= read_indexes(status.get("failedIndexes") or "")
        busy = [*pods.active, *(pods.terminating if spec.get("podReplacementPolicy") == "Failed" else ())]
        room = spec["parallelism"] - len(busy)
        completions = spec.get("completions", spec["parallelism"])
        if spec["completionMode"] != "Indexed":
            return list(range(max(0, min(room, completions - len(taken) - len(busy)))))
        taken |= {index_of(pod) for pod in busy}
        return [index for index in range(completions) if index not in taken][: max(0, room)]

    def _backoff(self, memory: _Memory) -> float:
        if not memory.failures:
            return 0.0
        pause = _FIRST_BACKOFF_S * 2 ** min(memory.failures - 1, _MOST_DOUBLINGS)
        return float(memory.failed_at + min(pause, _LONGEST_BACKOFF_S) - self._world.now())

    def _make_pod(self, job: Json, index: int, memory: _Memory) -> bool:
        is_indexed = job["spec"]["completionMode"] == "Indexed"
        body = pod_of(job, index if is_indexed else None, self._world.store.suffix(), self._world.minor)
        namespace = job["metadata"]["namespace"]
        refusal = self._quotas.refusal(namespace, "pods", body)
        if refusal:
            words = f'Error creating: pods "{body["metadata"]["name"]}" is forbidden: {refusal}'
            self._world.events.warning(job, "FailedCreate", words)
            self._look_in(job["metadata"]["uid"], float(2 ** min(memory.denied, _MOST_DOUBLINGS)))
            memory.denied += 1
            return False
        memory.denied = 0
        made = self._world.store.add(PODS, self._world.make(PODS, body, namespace))
        self._world.events.normal(job, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        return True

    def _stop(self, job: Json, pods: Tally) -> None:
        for pod in pods.active:
            self._world.events.normal(job, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
            self._deletion.stop(pod)

    def _set(self, status: Json, name: str, why: _Ending, *, value: str = "True") -> None:
        now = self._world.written_now()
        made = {
            "type": name,
            "status": value,
            "lastProbeTime": now,
            "lastTransitionTime": now,
            "reason": why.reason,
            "message": why.message,
        }
        kept = [known for known in status.get("conditions", ()) if known["type"] != name]
        status["conditions"] = [made, *kept] if name == "Suspended" else [*kept, made]

    def _write(self, job: Json, status: Json) -> None:
        """Store a status with the pods as they are now."""
        pods = self._world.store.dependents(job["metadata"]["uid"])
        counts = tally([pod for resource, pod in pods if resource == "pods"], counts_stopping=False)
        for name, count in (("active", len(counts.active)), ("failed", status.get("failed", 0))):
            status.pop(name, None)
            if count:
                status[name] = count
        status["terminating"] = len(counts.terminating)
        status["uncountedTerminatedPods"] = {}
        if self._world.minor >= 24:  # noqa: PLR2004 - the minor version that has it
            status["ready"] = counts.ready
        with self._world.changing(JOBS, job) as changed:
            changed["status"] = status

    def _finish(self, job: Json) -> None:
        """Set the last condition once no pod is left that runs."""
        current = self._world.store.of_uid(job["metadata"]["uid"])
        if current is None or current["status"].get("active") or current["status"].get("terminating"):
            return
        target = condition(current, "FailureTarget") or condition(current, "SuccessCriteriaMet")
        if target is None:
            return
        is_good = target["type"] == "SuccessCriteriaMet"
        last = "Complete" if is_good else "Failed"
        with self._world.changing(JOBS, current) as changed:
            self._set(changed["status"], last, _Ending("", "", target["reason"], target["message"]))
            if is_good:
                changed["status"]["completionTime"] = self._world.written_now()
        if is_good:
            self._world.events.normal(job, "Completed", "Job completed")
        else:
            self._world.events.warning(job, target["reason"], target["message"])
        self._look_in(job["metadata"]["uid"], 0.0)

    def _live_on(self, job: Json) -> None:
        """Delete a Job whose time to live is over."""
        for resource, pod in self._world.store.dependents(job["metadata"]["uid"]):
            if resource == "pods":
                self._deletion.release(pod)
        span = job["spec"].get("ttlSecondsAfterFinished")
        if span is None or "deletionTimestamp" in job["metadata"]:
            return
        end = condition(job, "Complete") or condition(job, "Failed")
        left = read_time(end["lastTransitionTime"]) + span - self._world.now() if end else 0.0
        if left > 0:
            self._look_in(job["metadata"]["uid"], left)
        else:
            self._deletion.delete(JOBS, job, {"propagationPolicy": "Foreground"})


def _done(status: Json) -> set[int]:
    if "completedIndexes" in status:
        return read_indexes(status["completedIndexes"])
    return set(range(status.get("succeeded", 0)))


def _ended_at(pod: Json, now: float) -> float:
    ends = [
        read_time(container["state"]["terminated"]["finishedAt"])
        for field_name in ("initContainerStatuses", "containerStatuses")
        for container in pod["status"].get(field_name) or ()
        if "terminated" in container["state"]
    ]
    return max(ends, default=now)

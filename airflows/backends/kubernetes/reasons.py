"""Why attempts wait, where their Jobs do not say it: Kueue's words, and those of the Job controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflows.backends.kubernetes import paths, states
from airflows.backends.kubernetes.client import Api
from airflows.backends.kubernetes.manifest import QUEUE
from airflows.backends.kubernetes.refusals import ApiError
from airflows.errors import BackendUnavailableError
from airflows.trial import Handle

Object = Mapping[str, Any]
_ASK_EVERY_S = 15.0
# Pods come a moment after their Job.
_LATE_S = 10.0
# Attempts wait for the same few reasons.
_MOST_ASKED = 8
_JOB_UID = "kueue.x-k8s.io/job-uid"


@dataclass(slots=True)
class Reasons:
    """Asks why attempts wait: rarely, and with one request for a few of them.

    Attributes:
        api: which is asked.
    """

    api: Api
    _queued: dict[Handle, str] = field(default_factory=dict)
    _podless: dict[Handle, str] = field(default_factory=dict)
    _podless_since: dict[Handle, float] = field(default_factory=dict)
    _queues_at: float = float("-inf")
    _events_at: float = float("-inf")
    _version: str | None = None

    def of(self, jobs: Mapping[Handle, Object], now: float) -> dict[Handle, tuple[str, str]]:
        """Return (why a queue holds it back, why it has no pods) of Jobs of which something is known."""
        held = [h for h, job in jobs.items() if states.is_suspended(job) and QUEUE in _labels(job)]
        podless = [handle for handle, job in jobs.items() if states.lacks_pods(job)]
        self._podless_since = {h: self._podless_since.get(h, now) for h in podless}
        late = [handle for handle, since in self._podless_since.items() if now - since >= _LATE_S]
        if held and now - self._queues_at >= _ASK_EVERY_S:
            self._queues_at = now
            self._queued = self._ask_queues({handle: jobs[handle] for handle in held[:_MOST_ASKED]})
        if late and now - self._events_at >= _ASK_EVERY_S:
            self._events_at = now
            self._podless = self._ask_events()
        held_set, late_set = set(held), set(late)
        return {
            handle: (
                self._queued.get(handle, "") if handle in held_set else "",
                self._podless.get(handle, "") if handle in late_set else "",
            )
            for handle in (*held, *late)
        }

    def kueue_version(self) -> str:
        """Return the version of Kueue's API that the cluster prefers, empty when it has none.

        Raises:
            ApiError: the cluster refuses to say.
            BackendUnavailableError: it did not answer.
        """
        if self._version is None:
            try:
                answer = self.api.get(paths.KUEUE)
            except ApiError as exc:
                if not exc.is_missing:
                    raise
                return ""
            preferred = (answer.get("preferredVersion") or {}).get("version")
            self._version = str(preferred or "v1beta1")
        return self._version

    def _ask_queues(self, jobs: Mapping[Handle, Object]) -> dict[Handle, str]:
        uids = {str((job.get("metadata") or {}).get("uid")): handle for handle, job in jobs.items()}
        try:
            version = self.kueue_version()
            if not version:
                return dict.fromkeys(jobs, "Kueue, which would start it, is not installed in this cluster")
            where = paths.kueue(version, self.api.namespace, "workloads")
            found = self.api.items(where, labelSelector=f"{_JOB_UID} in ({','.join(sorted(uids))})")
        except (ApiError, BackendUnavailableError):
            # It waits all the same; only the reason is not known.
            return {}
        said = {
            uids[uid]: states.queue_words(one) for one in found if (uid := _labels(one).get(_JOB_UID)) in uids
        }
        return {handle: words for handle, words in said.items() if words}

    def _ask_events(self) -> dict[Handle, str]:
        where = paths.core(self.api.namespace, "events")
        try:
            events = self.api.items(where, fieldSelector="reason=FailedCreate,involvedObject.kind=Job")
        except (ApiError, BackendUnavailableError):
            return {}
        return {
            Handle(str((event.get("involvedObject") or {}).get("name"))): _event_words(event)
            for event in sorted(events, key=_event_time)
        }


def _event_words(event: Object) -> str:
    said = " ".join(str(event.get("message") or "").split())
    what = "a quota is used up" if "exceeded quota" in said else "the cluster refuses them"
    return f"its pods cannot be made, {what}: {said}"


def _event_time(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _labels(item: Object) -> Mapping[str, str]:
    found: Mapping[str, str] = (item.get("metadata") or {}).get("labels") or {}
    return found


def names_of(items: Sequence[Object]) -> list[str]:
    """Return the names of objects, sorted."""
    return sorted(str((item.get("metadata") or {}).get("name")) for item in items)

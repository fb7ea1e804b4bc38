"""Watching attempts: lists of Jobs and of pods for all that are open, seldom where nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflows.backends.base import Observation, Phase
from airflows.backends.kubernetes import paths, states
from airflows.backends.kubernetes.client import Api, as_unavailable
from airflows.backends.kubernetes.logs import LogKeeper
from airflows.backends.kubernetes.pods import NEVER_BY_ITSELF, Pod, newest_of_each, pod_of
from airflows.backends.kubernetes.reasons import Reasons
from airflows.backends.kubernetes.refusals import ApiError
from airflows.backends.kubernetes.states import Known
from airflows.trial import Handle

_SHORTEST_S, _LONGEST_S, _SHARE = 1.0, 30.0, 0.1
_EACH_RUN_S = 0.01
_MOST_KEPT = 20_000
_SETTLE_S = 2.0


def interval_s(since_change_s: float, runs: int = 0) -> float:
    """Return how long after a look the next one is due: seldom where nothing has changed for long.

    A look at many Jobs costs the cluster more, so it is taken less often.
    """
    return min(_LONGEST_S, max(_SHORTEST_S, _EACH_RUN_S * runs, _SHARE * since_change_s))


@dataclass(slots=True)
class Watcher:
    """Looks at attempts. All it keeps is what it saw last; a new one asks again.

    Attributes:
        api: which is asked.
        clock: seconds since the epoch.
        keeper: copies logs.
        reasons: asks why attempts wait.
        end: deletes the Job of an attempt, having written there why.
        start_patience_s: how long a pod may fail to start.
        follows_all: whether the logs of all nodes are copied, rather than the first one's.
    """

    api: Api
    clock: Callable[[], float]
    keeper: LogKeeper
    reasons: Reasons
    end: Callable[[Handle, str], None]
    start_patience_s: float
    follows_all: bool = False
    _last: dict[Handle, Observation] = field(default_factory=dict)
    _pods: dict[Handle, dict[str, Pod]] = field(default_factory=dict)
    _stuck_since: dict[Handle, float] = field(default_factory=dict)
    _doomed: dict[Handle, str] = field(default_factory=dict)
    _asked: set[Handle] = field(default_factory=set)
    _going: set[Handle] = field(default_factory=set)
    _looked_at: float = float("-inf")
    _changed_at: float = float("-inf")

    def hurry(self) -> None:
        """Look again at once and often: something is about to change."""
        self._changed_at = self.clock()
        self._looked_at = float("-inf")

    def asked_to_end(self, handles: Iterable[Handle]) -> None:
        """Remember which attempts we ourselves want gone."""
        self._asked.update(handles)

    def pods_of(self, handle: Handle) -> list[Pod]:
        """Return the pods of an attempt as they were seen last, one a node."""
        return list(newest_of_each(self._pods.get(handle, {}).values()).values())

    def poll(self, handles: Sequence[Handle]) -> dict[Handle, Observation]:
        """Observe attempts; between two looks the last one is told again.

        Raises:
            BackendUnavailableError: the cluster did not answer.
        """
        now = self.clock()
        is_due = not 0 <= now - self._looked_at < interval_s(now - self._changed_at, len(handles))
        if not is_due and all(handle in self._last for handle in handles):
            return {handle: self._last[handle] for handle in handles}
        over = {h: last for h in handles if (last := self._last.get(h)) and last.phase is Phase.ENDED}
        open_ones = [handle for handle in handles if handle not in over]
        if not open_ones:
            return over
        try:
            seen = self._look(open_ones, now)
        except ApiError as exc:
            raise as_unavailable(exc, self.api.namespace) from None
        self._looked_at = now
        self._remember(seen, now)
        return over | seen

    def _remember(self, seen: Mapping[Handle, Observation], now: float) -> None:
        for handle, observation in seen.items():
            before = self._last.get(handle)
            if before is None or before.phase is not observation.phase:
                self._changed_at = now
            if observation.phase is Phase.ENDED:
                self._pods.pop(handle, None)
                self._stuck_since.pop(handle, None)
        if len(self._last) > _MOST_KEPT:
            self._last.clear()
        self._last.update(seen)

    # Looking

    def _look(self, handles: Sequence[Handle], now: float) -> dict[Handle, Observation]:
        namespace, selectors = self.api.namespace, list(paths.selectors(handles))
        # Jobs first: the pods of one that has ended by then do not change any more.
        jobs = {_name(job): job for job in self._list(paths.jobs(namespace), selectors)}
        found = self._list(paths.core(namespace, "pods"), selectors)
        there = {handle: jobs[handle] for handle in handles if handle in jobs}
        self._note_pods(found, {handle: states.started_at(job) for handle, job in there.items()})
        why = self.reasons.of(there, now)
        seen = {}
        for handle, job in there.items():
            seen[handle] = self._one(handle, job, why.get(handle, ("", "")), now)
        for handle in handles:
            if handle not in there and (gone := self._gone(handle, now)) is not None:
                seen[handle] = gone
        return seen

    def _list(self, path: str, selectors: Iterable[str]) -> list[dict[str, Any]]:
        return [item for selector in selectors for item in self.api.items(path, labelSelector=selector)]

    def _note_pods(self, items: Iterable[Mapping[str, Any]], started: Mapping[Handle, float | None]) -> None:
        """Take over what pods say now; keep what those that are gone have left, if they are of this start."""
        fresh: dict[Handle, dict[str, Pod]] = {handle: {} for handle in started}
        for item in items:
            owner = Handle(str(((item.get("metadata") or {}).get("labels") or {}).get("job-name")))
            if owner in fresh:
                pod = pod_of(item)
                fresh[owner][pod.uid] = pod
        for handle, pods in fresh.items():
            since = started[handle]
            left = {
                uid: pod
                for uid, pod in self._pods.get(handle, {}).items()
                if uid not in pods
                and since is not None
                and pod.created_at >= since - 1
                and (pod.has_ended or pod.disrupted_by or pod.started_at is not None)
            }
            self._pods[handle] = left | pods

    def _one(self, handle: Handle, job: Mapping[str, Any], why: tuple[str, str], now: float) -> Observation:
        pods = list(self._pods[handle].values())
        if told := states.ended_because(job):
            # Perhaps by a driver before this one.
            self._doomed.setdefault(handle, told)
        if states.is_going(job):
            self._going.add(handle)
        else:
            self._doom(handle, job, pods, now)
        seen = states.observe(Known(job, pods, *why))
        if seen.phase is Phase.RUNNING:
            self._follow(handle, pods)
        elif seen.phase is Phase.ENDED:
            # Whoever hears of the end reads the log next.
            self.keeper.settle(handle, _SETTLE_S)
        if handle in self._doomed and seen.phase is not Phase.ENDED:
            return Observation(Phase.UNKNOWN, detail=self._doomed[handle])
        return seen

    def _follow(self, handle: Handle, pods: Sequence[Pod]) -> None:
        for index, pod in newest_of_each(pods).items():
            if pod.is_running and (self.follows_all or index == 0):
                self.keeper.follow(handle, pod)

    def _doom(self, handle: Handle, job: Mapping[str, Any], pods: Sequence[Pod], now: float) -> None:
        """End an attempt whose pods have failed to start for too long: its Job would try for ever."""
        stuck = [p for p in newest_of_each(pods).values() if p.waits_for in NEVER_BY_ITSELF]
        if states.is_over(job):
            return
        if handle not in self._doomed:
            if not stuck:
                self._stuck_since.pop(handle, None)
                return
            if now - self._stuck_since.setdefault(handle, now) < self.start_patience_s:
                return
            self._doomed[handle] = f"node {stuck[0].index} could not start: {stuck[0].why_not}"
        # Again at each look, until it is seen going.
        self.end(handle, self._doomed[handle])

    def _gone(self, handle: Handle, now: float) -> Observation | None:
        """Observe an attempt whose Job is not listed; None when it is there after all."""
        try:
            self.api.get(paths.jobs(self.api.namespace, handle))
        except ApiError as exc:
            if not exc.is_missing:
                raise
        else:
            return None
        self.keeper.settle(handle, _SETTLE_S)
        pods = self.pods_of(handle)
        started = min((pod.started_at for pod in pods if pod.started_at is not None), default=None)
        facts: dict[str, Any] = {"started_at": started, "ended_at": now, "host": pods[0].host if pods else ""}
        if handle in self._doomed:
            return Observation(Phase.ENDED, word="INVALID", detail=self._doomed[handle], **facts)
        if handle in self._asked:
            return Observation(Phase.ENDED, word="CANCELLED", detail="its Job was deleted", **facts)
        if handle in self._going:
            detail = "somebody has deleted its Job"
            return Observation(Phase.ENDED, word="CANCELLED", detail=detail, **facts)
        detail = "the cluster no longer knows its Job, and nobody here has seen it end"
        return Observation(Phase.ENDED, word="LOST", detail=detail, **facts)


def _name(item: Mapping[str, Any]) -> Handle:
    return Handle(str((item.get("metadata") or {}).get("name")))

"""What a driver keeps in memory: trials that wait or run, counts and tally. Rebuilt from the ledger.

Final trials are forgotten, so memory follows what is in flight, not the size of the sweep.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from airflows.planner import Tally, is_first_failure
from airflows.trial import Event, EventKind, Reason, State, Trial

_OWN_FAILURES = frozenset({Reason.ERROR, Reason.OUT_OF_MEMORY})


class Roster:
    """The open trials of one sweep.

    Attributes:
        in_flight: by number.
        counts: trials created so far by state.

    Args:
        counts: of the trials that there are.
        tally: what has happened before.
        orphaned: points that an edit left out; that their trials fail counts against no limit.
        failed_orphans: how many trials of these have failed.
    """

    def __init__(
        self,
        counts: Mapping[State, int],
        tally: Tally,
        orphaned: Collection[int] = frozenset(),
        failed_orphans: int = 0,
    ) -> None:
        self.in_flight: dict[int, Trial] = {}
        self.counts: Counter[State] = Counter(counts)
        self._pending: dict[int, Trial] = {}
        self._retrying: set[int] = set()
        self._ready: list[int] = []
        self._delayed: list[tuple[float, int]] = []
        self._overrides: dict[int, Mapping[str, Any]] = {}
        self._orphaned = frozenset(orphaned)
        self._failed_orphans = failed_orphans
        self._started = tally.started
        self._signatures = Counter(tally.signatures)
        self._accelerator_s = tally.accelerator_s

    @property
    def waiting(self) -> int:
        """How many trials are PENDING."""
        return len(self._pending)

    @property
    def tally(self) -> Tally:
        """What has happened so far."""
        return Tally(
            started=self._started,
            retrying=len(self._retrying),
            succeeded=self.counts[State.SUCCEEDED],
            failed=self.counts[State.FAILED] - self._failed_orphans,
            signatures=self._signatures,
            accelerator_s=self._accelerator_s,
        )

    def overrides(self, number: int) -> Mapping[str, Any]:
        """Return the overrides of an open trial."""
        return self._overrides[number]

    def load(self, trials: Sequence[Trial], overrides: Mapping[int, Mapping[str, Any]]) -> None:
        """Take over open trials that the counts know already. `overrides` is by trial number."""
        for trial in trials:
            self._overrides[trial.number] = overrides[trial.number]
            self._keep(trial)

    def add(self, trials: Sequence[Trial], overrides: Mapping[int, Mapping[str, Any]]) -> None:
        """Take over newly created trials. `overrides` is by trial number."""
        self.counts[State.PENDING] += len(trials)
        self.load(trials, overrides)

    def spend(self, accelerator_s: float) -> None:
        """Count the accelerator-seconds of an ended attempt."""
        self._accelerator_s += accelerator_s

    def move(self, before: Trial, after: Trial, event: Event) -> None:
        """Follow a transition that the ledger has written."""
        self.counts[before.state] -= 1
        self.counts[after.state] += 1
        if event.kind is EventKind.CLAIMED and before.attempt == 0:
            self._started += 1
        elif event.kind is EventKind.UNSENT and before.attempt == 0:
            self._started -= 1
        is_orphaned = after.point in self._orphaned
        if is_orphaned:
            self._failed_orphans += (after.state is State.FAILED) - (before.state is State.FAILED)
        elif is_first_failure(before, event):
            self._signatures[event.changes["signature"]] += 1
        self._drop(before)
        if after.state.is_final:
            self._overrides.pop(after.number, None)
        else:
            self._keep(after)

    def ready(
        self, now: float, room: int, fresh: int | None = None, held: Collection[int] = ()
    ) -> list[Trial]:
        """Return up to `room` trials that may start now, lowest number first.

        Args:
            now: seconds since the epoch, UTC.
            room: how many at the most.
            fresh: how many of them may be trials that never started, None for any number.
            held: numbers of those that must not start yet.
        """
        while self._delayed and self._delayed[0][0] <= now:
            heapq.heappush(self._ready, heapq.heappop(self._delayed)[1])
        found: dict[int, Trial] = {}
        kept: set[int] = set()
        while self._ready and len(found) < room:
            number = heapq.heappop(self._ready)
            trial = self._pending.get(number)
            if trial is None or number in kept:
                continue
            if trial.not_before > now:
                # The clock was set back since it became due.
                heapq.heappush(self._delayed, (trial.not_before, number))
                continue
            kept.add(number)
            if number in held:
                continue
            if trial.attempt or fresh is None or fresh > 0:
                found[number] = trial
                fresh = fresh if trial.attempt or fresh is None else fresh - 1
        for number in kept:
            heapq.heappush(self._ready, number)
        return list(found.values())

    def pending(self, numbers: frozenset[int]) -> list[Trial]:
        """Return those of these trials that are PENDING."""
        return [self._pending[number] for number in sorted(numbers) if number in self._pending]

    def all_pending(self, most: int) -> list[Trial]:
        """Return up to `most` PENDING trials, due or not."""
        return list(self._pending.values())[:most]

    def failed_once(self) -> list[Trial]:
        """Return the PENDING trials that failed by themselves and wait for another attempt."""
        waiting = [self._pending[number] for number in sorted(self._retrying)]
        return [trial for trial in waiting if trial.reason in _OWN_FAILURES]

    def next_due(self) -> float | None:
        """Return when the next delayed trial may start, seconds since the epoch; None for none."""
        return self._delayed[0][0] if self._delayed else None

    def _drop(self, trial: Trial) -> None:
        self._pending.pop(trial.number, None)
        self._retrying.discard(trial.number)
        self.in_flight.pop(trial.number, None)

    def _keep(self, trial: Trial) -> None:
        if trial.state is not State.PENDING:
            self.in_flight[trial.number] = trial
            return
        self._pending[trial.number] = trial
        if trial.attempt:
            self._retrying.add(trial.number)
        # A trial may stand in a heap twice after a retry; `ready` looks at what it is now.
        if trial.not_before:
            heapq.heappush(self._delayed, (trial.not_before, trial.number))
        else:
            heapq.heappush(self._ready, trial.number)

"""Following a sweep as it comes along: each look reads what has changed in the ledger since the last."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from airflows.drivers import Owner
from airflows.engine.results import orphaned_trials
from airflows.engine.source import Replicates
from airflows.ledger import Ledger, SweepRow
from airflows.report.accounting import Forecast, Standing, forecast
from airflows.report.live import Account, Finishes, Goal, LiveSweep, RunningTrial
from airflows.scores import Take
from airflows.spec import SweepSpec
from airflows.trial import State

_RUNNING = (State.RUNNING, State.STOPPING)
_MOST_RUNNING = 64
# So many events of other drivers may be written while a transaction with earlier ids is still open.
_LOOK_BACK = 2_000


class Tail:
    """Which trials have new events at each look, those too whose ids become visible late."""

    def __init__(self, ledger: Ledger, sweep: str) -> None:
        self._ledger = ledger
        self._sweep = sweep
        self._newest: int | None = None
        self._seen: Collection[int] = ()

    def look(self) -> set[int] | None:
        """Return the numbers of trials with events that were not there before; None at first, for all."""
        is_first = self._newest is None
        before = self._ledger.newest_event() if self._newest is None else self._newest
        newest, found = self._ledger.touched(self._sweep, before - _LOOK_BACK)
        fresh = {number for event, number in found.items() if event not in self._seen}
        self._newest, self._seen = max(before, newest), found.keys()
        return None if is_first else fresh


class Follower:
    """Looks at one sweep again and again. For one thread, that of the ledger."""

    def __init__(
        self, ledger: Ledger, row: SweepRow, spec: SweepSpec, clock: Callable[[], float] = time.time
    ) -> None:
        self._ledger = ledger
        self._sweep = row.id
        self._spec = spec
        self._clock = clock
        self._replicates = Replicates(spec)
        self._account = Account()
        self._finishes = Finishes(goal_of(spec))
        self._overrides: dict[int, Mapping[str, Any]] = {}
        self._tail = Tail(ledger, row.id)
        # What an edit took out of the file is not the best so far.
        self._orphaned = {trial.number for trial in orphaned_trials(ledger, row)}

    def look(self) -> LiveSweep:
        """Return the sweep as it stands now."""
        self._catch_up()
        row, now = self._ledger.sweep(self._sweep), self._clock()
        counts = self._ledger.counts(self._sweep)
        return LiveSweep(
            sweep=row.id,
            state=row.state.value,
            message=row.message,
            total=sum(counts.values()) if row.exhausted else row.total,
            counts=counts,
            began_at=row.created_at,
            ended_at=row.ended_at,
            goal=self._finishes.goal,
            best=self._finishes.best,
            curve=self._finishes.curve(),
            running=self._running(),
            causes=self._account.causes(),
            accelerator_s=self._account.accelerator_s(now),
            accelerator_limit_s=time_limits(self._spec)["limits.accelerator_hours"],
            forecast=self._forecast(row, counts, now),
            driver=_driver_text(row, now),
        )

    def _catch_up(self) -> None:
        """Read what has changed; at first everything."""
        numbers = self._tail.look()
        self._account.put(self._ledger.followed_attempts(self._sweep, numbers))
        # A value is written after its trial has ended, without an event.
        ends = None if numbers is None else numbers | self._finishes.open
        found = self._ledger.followed_ends(self._sweep, ends)
        self._finishes.put(end._replace(value=None) if end.number in self._orphaned else end for end in found)

    def _running(self) -> list[RunningTrial]:
        trials = self._ledger.trials(self._sweep, states=_RUNNING, limit=_MOST_RUNNING)
        known = self._overrides
        points = self._ledger.followed_points(self._sweep, {t.point for t in trials if t.number not in known})
        self._overrides = {
            t.number: known[t.number]
            if t.number in known
            else self._replicates.overrides(points[t.point], t.replicate)
            for t in trials
        }
        return [
            RunningTrial(t.number, t.state.value, t.started_at, self._overrides[t.number], t.run_id)
            for t in trials
        ]

    def _forecast(self, row: SweepRow, counts: Mapping[State, int], now: float) -> Forecast | None:
        if row.ended_at is not None or row.total is None or not _driver_text(row, now):
            return None
        began = row.resumed_at or row.created_at
        # A driver that takes a sweep up as it was does not resume it; while there was none, nothing ended.
        driven = max(began, row.lease_since or began)
        standing = Standing(
            ended=sum(count for state, count in counts.items() if state.is_final),
            total=row.total,
            elapsed_s=now - began,
            ended_since=self._finishes.since(driven),
            accelerator_s=self._account.ended_s,
            driven_s=now - driven,
        )
        return forecast(standing, time_limits(self._spec))


def time_limits(spec: SweepSpec) -> dict[str, float | None]:
    """Return the limits on what a sweep may take by their keys, in seconds, None for no limit."""
    hours = spec.limits.accelerator_hours
    return {
        "limits.wall_time": spec.limits.wall_time_s,
        "limits.accelerator_hours": None if hours is None else hours * 3600,
    }


def goal_of(spec: SweepSpec) -> Goal | None:
    """Return which of two trials is better; None without an objective, or with several."""
    if len(spec.all_objectives) != 1:
        return None
    objective = spec.all_objectives[0]
    takes_best = Take.of(objective.take).kind == "best"
    return Goal(objective.metric, objective.goal == "minimize", bool(objective.constraints), takes_best)


def _driver_text(row: SweepRow, now: float) -> str:
    if not row.lease_owner or (row.lease_until or 0.0) < now:
        return ""
    owner = Owner.from_text(row.lease_owner)
    return "" if owner.is_dead() else f"{owner.host}:{owner.pid}"

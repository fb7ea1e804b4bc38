"""What a sweep is likely to cost, and what of it has run before: asked of the ledger's earlier sweeps."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflows.engine.site import reload
from airflows.errors import AirflowsError
from airflows.ids import canonical_json
from airflows.ledger import Ledger, SweepRow
from airflows.preview import accelerator_hours, accelerators, hours_at_most
from airflows.sweepfile import LoadedSweep
from airflows.trial import State, Trial

_LOOKED_AT = 20


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a sweep is likely to cost.

    Attributes:
        hours: accelerator-hours of all its trials; None when nothing tells.
        left: of these, what the points take that are not there yet.
        basis: `trials` that have ended, or `timeout`: what they take at most.
        sweep: the sweep of those trials.
        trials: how many.
    """

    hours: float | None
    left: float | None
    basis: str = ""
    sweep: str = ""
    trials: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON documents show it."""
        return {
            "accelerator_hours": self.hours,
            "accelerator_hours_left": self.left,
            "basis": self.basis or None,
            "sweep": self.sweep or None,
            "trials": self.trials,
        }


@dataclass(frozen=True, slots=True)
class History:
    """Which of a sweep's points an earlier sweep has run.

    Attributes:
        sweep: that sweep; empty for none.
        attaches: a start goes on with it; else what it has run is run again.
        succeeded: points of which all trials have.
        failed: points of which a trial has, and none is still open.
        unfinished: other points that it has.
        new: points that it does not have; None when nobody can know.
    """

    sweep: str
    attaches: bool
    succeeded: int
    failed: int
    unfinished: int
    new: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON documents show it."""
        return {
            "sweep": self.sweep or None,
            "attaches": self.attaches,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "unfinished": self.unfinished,
            "new": self.new,
        }


def history_of(ledger: Ledger, sweep: LoadedSweep, *, new: bool = False) -> History:
    """Return which points of a sweep have run in the one that a start attaches to, or the newest like it.

    Args:
        ledger: the durable record.
        sweep: that is to be started.
        new: the start would make another sweep of the same definition.
    """
    count = sweep.expansion.count()
    row = next(_like(ledger, sweep), None)
    if row is None:
        return History("", False, 0, 0, 0, count)
    by_point: dict[int, list[Trial]] = defaultdict(list)
    for trial in ledger.trials(row.id):
        by_point[trial.point].append(trial)
    found = {"succeeded": 0, "failed": 0, "unfinished": 0}
    for point in ledger.points(row.id):
        if point.same_as is None and sweep.expansion.number(point.overrides) is not None:
            found[_fate(by_point[point.number])] += 1
    left = None if count is None else count - sum(found.values())
    return History(row.id, _is_same(row, sweep) and not new, **found, new=left)


def _fate(trials: Sequence[Trial]) -> str:
    if any(not trial.state.is_final or trial.state is State.CANCELLED for trial in trials):
        return "unfinished"
    return "failed" if any(trial.state is State.FAILED for trial in trials) else "succeeded"


def estimate_of(ledger: Ledger, sweep: LoadedSweep, history: History) -> Estimate:
    """Return what a sweep is likely to cost: by trials of sweeps like it, else by the time limit.

    Of trials with as many accelerators the median duration counts; of others it is taken that
    twice the accelerators need half the time.
    """
    for row in _like(ledger, sweep):
        spent = _durations(ledger, row)
        if spent:
            trials = sum(map(len, spent.values()))
            return _estimate(sweep, history, lambda tree, s=spent: _hours(tree, s), "trials", row.id, trials)
    return _estimate(sweep, history, hours_at_most, "timeout")


def _estimate(
    sweep: LoadedSweep, history: History, hours: Any, basis: str, like: str = "", trials: int = 0
) -> Estimate:
    whole, count = accelerator_hours(sweep, hours=hours), sweep.expansion.count()
    if whole is None or count is None:
        return Estimate(None, None)
    done = history.succeeded + history.failed if history.attaches else 0
    return Estimate(whole, whole * (1 - done / max(1, count)), basis, like, trials)


def _like(ledger: Ledger, sweep: LoadedSweep) -> Iterator[SweepRow]:
    """Yield the sweeps that tell of this one, the newest first: itself, its name, definition, base."""
    rows = [row for row in ledger.sweeps() if not row.single]
    kinds = (
        (row for row in rows if _is_same(row, sweep)),
        (row for row in rows if row.name == sweep.spec.name),
        (row for row in rows if row.definition == sweep.definition_digest),
        (row for row in rows[:_LOOKED_AT] if _has_base(row, sweep)),
    )
    seen: set[str] = set()
    for row in itertools.chain(*kinds):
        if row.id not in seen:
            seen.add(row.id)
            yield row


def _is_same(row: SweepRow, sweep: LoadedSweep) -> bool:
    """Whether a start of a sweep attaches to a row: of the same definition others have other names."""
    return row.name == sweep.spec.name and row.definition == sweep.definition_digest


def _has_base(row: SweepRow, sweep: LoadedSweep) -> bool:
    try:
        return canonical_json(reload(row).base.tree) == canonical_json(sweep.base.tree)
    except AirflowsError:
        # It was written by another version, or needs a package that is gone: it tells nothing.
        return False


def _durations(ledger: Ledger, row: SweepRow) -> Mapping[int, Sequence[float]]:
    """Return accelerators -> the seconds that successful attempts with so many took."""
    found: dict[int, list[float]] = defaultdict(list)
    pack = reload(row).spec.pack
    for attempt in ledger.attempts(row.id):
        if attempt.state == State.SUCCEEDED.value and None not in {attempt.started_at, attempt.ended_at}:
            took = (attempt.ended_at or 0.0) - (attempt.started_at or 0.0)
            # Of one that was packed it is a share.
            found[round(attempt.accelerators * pack)].append(max(0.0, took))
    return found


def _hours(tree: Mapping[str, Any], spent: Mapping[int, Sequence[float]]) -> float | None:
    """Return the accelerator-hours of a trial, by the durations of others."""
    wanted = accelerators(tree)
    if wanted is not None and wanted in spent:
        return statistics.median(spent[wanted]) * wanted / 3600
    return statistics.median(took * count for count, each in spent.items() for took in each) / 3600

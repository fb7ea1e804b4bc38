"""What was seen of a rehearsal: plain values, from which everything is concluded. Pure.

All of it is in the ledger, in MLflow and on the disk: a rehearsal whose driver died is judged like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflows.scores import MetricPoint
from airflows.trial import Reason, State

Curves = Mapping[str, Sequence[MetricPoint]]
"""Metric to its logged values, in any order."""

OF_THE_SYSTEM = "system/"
"""What MLflow logs by itself begins with it."""


@dataclass(frozen=True, slots=True)
class AttemptSeen:
    """One attempt of a trial. Times are seconds since the epoch, UTC.

    Attributes:
        claimed_at: when it was taken up, before it was submitted.
        started_at: when it began to run.
        asked_at: when it was asked to end, None when it was not.
        ended_at: when it ended.
        exit_code: what it ended with.
        reason: why it ended.
        resumed_from: the checkpoint that it was given, empty for none, or where nobody knows.
    """

    claimed_at: float | None = None
    started_at: float | None = None
    asked_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    reason: Reason = Reason.NONE
    resumed_from: str = ""


@dataclass(frozen=True, slots=True)
class TrialSeen:
    """One trial of a rehearsal.

    Attributes:
        number: its number.
        state: how it ended.
        message: words about it.
        attempts: in order.
        curves: all that it has logged.
        checkpoint: name of its newest complete checkpoint, empty for none.
        was_read: its hyperparameters file was read; None where that cannot be seen.
        host_bytes: most memory of its processes, None where nobody knows.
        gpu_bytes: most GPU memory, None where nobody knows.
    """

    number: int
    state: State = State.STOPPED
    message: str = ""
    attempts: Sequence[AttemptSeen] = ()
    curves: Curves = field(default_factory=dict)
    checkpoint: str = ""
    was_read: bool | None = None
    host_bytes: int | None = None
    gpu_bytes: int | None = None

    @property
    def own_curves(self) -> Curves:
        """What the program itself has logged."""
        return {name: points for name, points in self.curves.items() if not name.startswith(OF_THE_SYSTEM)}

    @property
    def first(self) -> Curves:
        """What the first attempt has logged."""
        return since(self.own_curves, None, self._second_at)

    @property
    def later(self) -> Curves:
        """What the attempts after the first have logged."""
        return {} if self._second_at is None else since(self.own_curves, self._second_at, None)

    @property
    def _second_at(self) -> float | None:
        return self.attempts[1].claimed_at if len(self.attempts) > 1 else None

    @property
    def seconds(self) -> float:
        """How long its attempts ran, all together."""
        ran = [(each.started_at, each.ended_at) for each in self.attempts]
        return sum(end - start for start, end in ran if start is not None and end is not None)


def since(curves: Curves, begin: float | None, end: float | None) -> Curves:
    """Return what was logged from one time until before another; None for no bound."""
    low = float("-inf") if begin is None else begin * 1000
    high = float("inf") if end is None else end * 1000
    kept = {name: [p for p in points if low <= p.at_ms < high] for name, points in curves.items()}
    return {name: points for name, points in kept.items() if points}


def steps_of(points: Sequence[MetricPoint]) -> list[int]:
    """Return the different steps, ascending."""
    return sorted({point.step for point in points})

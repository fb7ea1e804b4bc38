"""From a metric's logged values to the one value that counts, by the objective's `take`. Pure.

A value that is NaN, infinite, or the number that MLflow's SQL stores keep infinity as, is never sound:
it is reported as it is and cannot win.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Goal = Literal["minimize", "maximize"]
TakeKind = Literal["last", "best", "mean_of_last", "at_step"]
_COUNTED: tuple[TakeKind, ...] = ("mean_of_last", "at_step")

LARGEST = 1.797e308
_STORED_INFINITY = 1.7976931348623157e308


def is_sound(value: float) -> bool:
    """Whether a metric's value can win: finite, and not the number that MLflow keeps infinity as."""
    return math.isfinite(value) and abs(value) < LARGEST


def shown(value: float) -> str:
    """Return a value as people write it; MLflow's stand-in for infinity is shown as infinity."""
    if math.isnan(value):
        return "NaN"
    if abs(value) >= _STORED_INFINITY:
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One logged value. `at_ms` is milliseconds since the epoch, UTC; the step is 0 where none was given."""

    step: int
    value: float
    at_ms: int


@dataclass(frozen=True, slots=True)
class Take:
    """Which of a metric's values counts.

    Attributes:
        kind: `last`, `best`, `mean_of_last` or `at_step`.
        n: how many values, or which step; 0 for the first two.
    """

    kind: TakeKind = "last"
    n: int = 0

    @classmethod
    def of(cls, given: object) -> Take:
        """Return a `take` as sweep.yaml has it: a word, or a mapping of one word to a number."""
        if isinstance(given, Take):
            return given
        if isinstance(given, str) and given in ("last", "best"):
            return cls("last" if given == "last" else "best")
        if isinstance(given, Mapping):
            for kind in _COUNTED:
                if kind in given:
                    return cls(kind, int(given[kind]))
        message = f"{given!r} is not a take"
        raise ValueError(message)

    @property
    def needs_history(self) -> bool:
        """Whether the latest value, which MLflow keeps at hand, is not enough."""
        return self.kind != "last"

    @property
    def rule(self) -> str:
        """The rule as reports print it, such as `best` or `mean_of_last 5`."""
        return f"{self.kind} {self.n}" if self.kind in _COUNTED else self.kind


class Measured(Protocol):
    """What of an objective decides a trial's value."""

    @property
    def metric(self) -> str:
        """The MLflow metric's key."""

    @property
    def goal(self) -> Goal:
        """Which of two values is better."""

    @property
    def take(self) -> object:
        """Which of the logged values counts: what `Take.of` reads."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The value that counts.

    Attributes:
        value: as logged, NaN and infinities included; None when there is none.
        step: the step that decided, None when there is none.
    """

    value: float | None = None
    step: int | None = None


def latest(points: Iterable[MetricPoint]) -> MetricPoint | None:
    """Return the value MLflow calls latest: highest step, then time, then value (NaN counts as 0)."""
    return max(points, key=_age, default=None)


def take_value(points: Iterable[MetricPoint], take: Take, goal: Goal) -> Taken:
    """Return the value of a history that counts.

    Values logged twice for one step are the same step of two attempts: the later one holds. A metric
    that only ever used one step was logged without steps: its values are a series in time.

    Args:
        points: the history, in any order.
        take: the objective's `take`.
        goal: which of two values is better, for `best`.

    Returns:
        For `best` the best sound value (the earliest step of equals), or the last value when none is
        sound. For `mean_of_last` the mean, which is the first unsound value among the last if there is
        one. For `at_step` that step's value, or nothing.
    """
    series = _series(points)
    if not series:
        return Taken()
    match take.kind:
        case "last":
            return _taken(series[-1])
        case "best":
            return _best(series, goal)
        case "mean_of_last":
            return _mean(series[-take.n :])
        case "at_step":
            return next((_taken(p) for p in reversed(series) if p.step == take.n), Taken())


def mean(values: Sequence[float]) -> float:
    """Return the mean of at least one finite value, also where their sum is beyond the largest float."""
    try:
        middle = math.fsum(values) / len(values)
    except OverflowError:
        middle = math.fsum(value / len(values) for value in values)
    # Three times 0.7 sum up to 2.0999999999999996: equal values are their own mean.
    return min(max(middle, min(values)), max(values))


def _age(point: MetricPoint) -> tuple[int, int, float]:
    return point.step, point.at_ms, 0.0 if math.isnan(point.value) else point.value


def _series(points: Iterable[MetricPoint]) -> Sequence[MetricPoint]:
    ordered = sorted(points, key=_age)
    by_step = {point.step: point for point in ordered}
    return ordered if len(by_step) == 1 else list(by_step.values())


def _taken(point: MetricPoint) -> Taken:
    return Taken(point.value, point.step)


def _best(series: Sequence[MetricPoint], goal: Goal) -> Taken:
    sound = [point for point in series if is_sound(point.value)]
    if not sound:
        return _taken(series[-1])
    sign = 1 if goal == "minimize" else -1
    return _taken(min(sound, key=lambda point: sign * point.value))


def _mean(last: Sequence[MetricPoint]) -> Taken:
    step = last[-1].step
    unsound = next((point.value for point in last if not is_sound(point.value)), None)
    if unsound is not None:
        return Taken(unsound, step)
    return Taken(mean([point.value for point in last]), step)

"""A sweep as it stands, for people who look on: kept up as things happen, not read anew each time. Pure."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflows.report.accounting import Forecast
from airflows.scores import MetricPoint
from airflows.trial import State

if TYPE_CHECKING:
    from airflows.ledger.following import FollowedAttempt, FollowedEnd

Metrics = Mapping[str, Mapping[str, MetricPoint]]

_BARS = "▁▂▃▄▅▆▇█"
_CURVE = 200


@dataclass(frozen=True, slots=True)
class Cause:
    """What attempts failed of.

    Attributes:
        reason: the class of failure.
        attempts: how many did.
        example: the first of them that was seen, as TRIAL.ATTEMPT without the sweep.
        message: what that one said.
    """

    reason: str
    attempts: int
    example: str
    message: str


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """A trial that runs, or is being stopped."""

    number: int
    state: str
    since: float | None
    overrides: Mapping[str, Any]
    run_id: str


@dataclass(frozen=True, slots=True)
class Goal:
    """What "best" means of a single trial: the only objective.

    Attributes:
        metric: its name.
        is_minimized: less is better.
        is_constrained: it has constraints, which are not looked at here.
        counts_stopped: trials that were stopped early compete, too, as with `take: best`.
    """

    metric: str
    is_minimized: bool
    is_constrained: bool = False
    counts_stopped: bool = False

    def counts(self, state: str) -> bool:
        """Whether the value of a trial that ended in this state competes."""
        return state == State.SUCCEEDED or (self.counts_stopped and state == State.STOPPED)


@dataclass(frozen=True, slots=True)
class LiveSweep:
    """A sweep at one moment.

    Attributes:
        sweep: its id.
        state: `running`, or how it ended.
        message: the sentence about how it ended.
        total: trials planned, None when not known.
        counts: trials created so far by state.
        began_at: when it was started, seconds since the epoch, UTC.
        ended_at: when it ended.
        goal: None without an objective, or with several.
        best: (value, number) of the best single trial.
        curve: the best value so far after each trial that ended, thinned out.
        running: the first trials that run, by number.
        causes: why attempts failed, the most frequent first.
        accelerator_s: accelerator-seconds so far, of what still runs too.
        accelerator_limit_s: `limits.accelerator_hours` in seconds.
        forecast: how far it comes at this pace.
        driver: who drives, empty for nobody.
    """

    sweep: str
    state: str
    message: str
    total: int | None
    counts: Mapping[State, int]
    began_at: float
    ended_at: float | None = None
    goal: Goal | None = None
    best: tuple[float, int] | None = None
    curve: Sequence[float] = ()
    running: Sequence[RunningTrial] = ()
    causes: Sequence[Cause] = ()
    accelerator_s: float = 0.0
    accelerator_limit_s: float | None = None
    forecast: Forecast | None = None
    driver: str = ""

    @property
    def ended(self) -> int:
        """How many trials have ended for good."""
        return sum(count for state, count in self.counts.items() if state.is_final)


@dataclass(frozen=True, slots=True)
class Scene:
    """What people are shown of a sweep.

    Attributes:
        live: the sweep.
        now: seconds since the epoch, UTC.
        metrics: what running trials have logged last, by MLflow run.
        note: what is being waited for, empty when all is well.
        drives: this process drives the sweep.
    """

    live: LiveSweep
    now: float
    metrics: Metrics
    note: str = ""
    drives: bool = False

    def last(self, trial: RunningTrial) -> tuple[str, MetricPoint] | None:
        """Return the objective's metric with its last value; where it is not there, what was logged last."""
        metrics, goal = self.metrics.get(trial.run_id, {}), self.live.goal
        if goal is not None and goal.metric in metrics:
            return goal.metric, metrics[goal.metric]
        own = [(name, point) for name, point in metrics.items() if not name.startswith("system/")]
        return max(own, key=lambda item: (item[1].at_ms, item[0]), default=None)


@dataclass(slots=True)
class Account:
    """What the attempts of a sweep have cost, and what they failed of."""

    ended_s: float = 0.0
    _attempts: dict[tuple[int, int], FollowedAttempt] = field(default_factory=dict)
    _going: dict[tuple[int, int], FollowedAttempt] = field(default_factory=dict)
    _causes: Counter[tuple[str, str]] = field(default_factory=Counter)
    _examples: dict[tuple[str, str], FollowedAttempt] = field(default_factory=dict)

    def put(self, attempts: Iterable[FollowedAttempt]) -> None:
        """Take attempts as they are now, in place of how they were."""
        for attempt in attempts:
            key = (attempt.number, attempt.attempt)
            before = self._attempts.get(key)
            if before == attempt:
                continue
            if before is not None:
                self._count(before, -1)
            self._attempts[key] = attempt
            self._count(attempt, 1)
            if attempt.ended_at is None and attempt.started_at is not None:
                self._going[key] = attempt
            else:
                self._going.pop(key, None)

    def accelerator_s(self, now: float) -> float:
        """Return the accelerator-seconds so far, of what still runs too."""
        return self.ended_s + sum(
            max(0.0, now - each.started_at) * each.accelerators
            for each in self._going.values()
            if each.started_at is not None
        )

    def causes(self) -> list[Cause]:
        """Return why attempts failed, the most frequent first."""
        return [
            Cause(key[0], count, f"{first.number}.{first.attempt}", first.message)
            for key, count in self._causes.most_common()
            if count > 0
            for first in [self._examples[key]]
        ]

    def _count(self, attempt: FollowedAttempt, sign: int) -> None:
        if attempt.ended_at is None:
            return
        if attempt.started_at is not None:
            self.ended_s += sign * max(0.0, attempt.ended_at - attempt.started_at) * attempt.accelerators
        if attempt.signature or attempt.state == State.FAILED:
            key = (attempt.reason, attempt.signature)
            self._causes[key] += sign
            self._examples.setdefault(key, attempt)


@dataclass(slots=True)
class Finishes:
    """The trials that have ended, in the order in which they did.

    Attributes:
        goal: which of two values is better, None where nothing says.
        open: numbers of those whose metric is still to be read.
    """

    goal: Goal | None
    open: set[int] = field(default_factory=set)
    _ended: dict[int, float] = field(default_factory=dict)
    _values: dict[int, float] = field(default_factory=dict)
    _order: list[tuple[float, int, float]] = field(default_factory=list)
    _so_far: list[tuple[float, int]] = field(default_factory=list)

    def put(self, ends: Iterable[FollowedEnd]) -> None:
        """Take trials that have ended, as they are now."""
        for end in ends:
            self._ended[end.number] = end.ended_at or 0.0
            (self.open.discard if end.closed else self.open.add)(end.number)
            value = end.value if self.goal is not None and self.goal.counts(end.state) else None
            if self._values.get(end.number) != value:
                self._take(end.number, self._ended[end.number], value)

    def since(self, began: float) -> int:
        """Return how many have ended since a time."""
        return sum(at >= began for at in self._ended.values())

    @property
    def best(self) -> tuple[float, int] | None:
        """(value, number) so far; of equals the first."""
        self._catch_up()
        return self._so_far[-1] if self._so_far else None

    def curve(self) -> Sequence[float]:
        """Return the best value so far after each trial that ended, thinned out."""
        self._catch_up()
        return thinned([value for value, _ in self._so_far], _CURVE)

    def _catch_up(self) -> None:
        for _, number, value in self._order[len(self._so_far) :]:
            best = self._so_far[-1] if self._so_far else None
            self._so_far.append((value, number) if best is None or self._beats(value, best[0]) else best)

    def _take(self, number: int, at: float, value: float | None) -> None:
        if self._values.pop(number, None) is not None:
            self._order = [each for each in self._order if each[1] != number]
            self._so_far.clear()
        if value is not None:
            self._values[number] = value
            place = bisect(self._order, (at, number, value))
            self._order.insert(place, (at, number, value))
            del self._so_far[place:]

    def _beats(self, one: float, other: float) -> bool:
        return one < other if self.goal is None or self.goal.is_minimized else one > other


def thinned(values: Sequence[float], most: int) -> list[float]:
    """Return at most so many of the values, evenly spread, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    return [values[round(at * (len(values) - 1) / (most - 1))] for at in range(most)]


def sparkline(values: Sequence[float], width: int) -> str:
    """Return a curve as one line of bars of eight heights, empty for fewer than two values."""
    shown = thinned(values, width) if width > 1 else []
    if len(shown) < 2:  # noqa: PLR2004 - one value is no curve
        return ""
    low = min(shown)
    # Halves, as the difference of two very large values may be no number; that of two tiny ones may be none.
    height = max(shown) / 2 - low / 2
    if not height:
        return _BARS[0] * len(shown)
    return "".join(_BARS[round((v / 2 - low / 2) / height * (len(_BARS) - 1))] for v in shown)

"""Who won: groups of replicates, statistics, constraints, ties, and why a trial is not ranked. Pure."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from airflows.relief import relief_note
from airflows.scores import Goal, Take, is_sound, mean, shown
from airflows.significance import Summary, Welch, confidence_interval, holm, summarize, welch
from airflows.trial import Reason, State

NOISE_P = 0.05
_REASON_CHARS = 200
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


class Constraint(Protocol):
    """A bound on a metric, such as `latency_ms <= 20`."""

    @property
    def metric(self) -> str:
        """The MLflow metric's key."""

    @property
    def op(self) -> str:
        """One of `<`, `<=`, `>`, `>=`, `==`, `!=`."""

    @property
    def bound(self) -> float:
        """The right-hand side."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What "best" means, as ranking needs it; see `objective` in sweep.yaml.

    Attributes:
        metric: the MLflow metric's key, for messages.
        goal: which of two values is better.
        take: which of a trial's logged values counts.
        constraints: bounds that a winner keeps.
        across_replicates: `mean`, `median` or `worst` of a group's values decides.
        min_replicates: replicates that must count for a group to be ranked; None is all of them.
        replicates: how many replicates each point has.
    """

    metric: str
    goal: Goal
    take: Take = field(default_factory=Take)
    constraints: Sequence[Constraint] = ()
    across_replicates: str = "mean"
    min_replicates: int | None = None
    replicates: int = 1


@dataclass(frozen=True, slots=True)
class Scored:
    """A trial with what MLflow said of it.

    Attributes:
        number: the trial's number.
        point: what its replicates have in common.
        overrides: the point's, without the replicate's own.
        value: the value that counts; None when there is none.
        raw: an unsound value as it was shown, where `value` no longer holds it.
        step: the step that decided.
        constrained: the last value of each metric that a constraint names.
        message: why it failed, for people.
        run_id: its MLflow run.
        changed: values that it ran with in place of those of its overrides, after it ran out of memory.
        others: the values that count for the further of several objectives, unsound ones as they are.
    """

    number: int
    point: int
    overrides: Mapping[str, Any]
    state: State
    reason: Reason = Reason.NONE
    value: float | None = None
    raw: str = ""
    step: int | None = None
    constrained: Mapping[str, float] = field(default_factory=dict)
    message: str = ""
    run_id: str = ""
    changed: Mapping[str, Any] = field(default_factory=dict)
    others: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Figures:
    """What a group of replicates says of one of several objectives; see `Group`."""

    metric: str
    value: float
    mean: float
    sd: float | None
    n: int
    ci95: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON documents show it."""
        return {"metric": self.metric, **_figures(self)}


@dataclass(frozen=True, slots=True)
class Group:
    """A ranked point: its replicates and what they say together.

    Attributes:
        rank: from 1; groups that break a constraint follow those that do not.
        trials: numbers of the replicates that count.
        value: what was ranked, by `across_replicates`.
        sd: sample standard deviation, None for a single replicate.
        ci95: 95 % t-interval of the mean, None for a single replicate.
        feasible: no replicate breaks a constraint.
        separable_from_winner: whether its mean is worse than the winner's, beyond noise (`p_adjusted` below
            5 %); None for the winner itself, for what cannot win, and where either has a single replicate.
        p: of Welch's test.
        p_adjusted: the same by Holm's method, since every group is compared with the winner.
        steps: the step that decided, for each of `trials`.
        stopped_early: one of them was stopped by a rule or a limit.
        note: which constraint is broken, and which values were not those searched.
        point: what its replicates have in common.
        objectives: what it says of each of several objectives, empty for one.
        on_front: whether it is on the Pareto front of several objectives.
        is_knee: whether it is the front's best compromise.
    """

    rank: int
    trials: tuple[int, ...]
    overrides: Mapping[str, Any]
    value: float
    mean: float
    sd: float | None
    n: int
    ci95: tuple[float, float] | None
    feasible: bool
    separable_from_winner: bool | None = None
    p: float | None = None
    steps: tuple[int | None, ...] = ()
    stopped_early: bool = False
    note: str = ""
    p_adjusted: float | None = None
    point: int = -1
    objectives: tuple[Figures, ...] = ()
    on_front: bool = False
    is_knee: bool = False

    @property
    def summary(self) -> Summary:
        """The sample in three figures."""
        return Summary(self.n, self.mean, self.sd)

    @property
    def is_ahead(self) -> bool:
        """Whether its mean is better than the winner's beyond noise: another figure ranks the groups."""
        return self.separable_from_winner is False and (self.p_adjusted or 0.0) < NOISE_P

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON documents show it."""
        several = {
            "objectives": [figures.to_dict() for figures in self.objectives],
            "on_front": self.on_front,
            "is_knee": self.is_knee,
        }
        return {
            "rank": self.rank,
            "trials": list(self.trials),
            "overrides": dict(self.overrides),
            **_figures(self),
            "feasible": self.feasible,
            "separable_from_winner": self.separable_from_winner,
            "p": self.p,
            "p_adjusted": self.p_adjusted,
            "steps": list(self.steps),
            "stopped_early": self.stopped_early,
            "note": self.note,
            **(several if self.objectives else {}),
        }


def _figures(of: Figures | Group) -> dict[str, Any]:
    ci95 = None if of.ci95 is None else list(of.ci95)
    return {"value": of.value, "mean": of.mean, "sd": of.sd, "n": of.n, "ci95": ci95}


@dataclass(frozen=True, slots=True)
class Unranked:
    """A trial that is not ranked, and why, with its raw value where it had one."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Winner:
    """The best group, and the one of its trials that stands for it: its best replicate."""

    group: Group
    number: int
    run_id: str
    changed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ranking:
    """The result. `rule` is which of a trial's values counted, such as `best`.

    Several objectives have no winner, but a Pareto front, and `knee` is its best compromise.
    """

    ranked: tuple[Group, ...]
    unranked: tuple[Unranked, ...]
    winner: Winner | None
    rule: str
    knee: Winner | None = None

    @property
    def front(self) -> tuple[Group, ...]:
        """The Pareto front of several objectives, its knee first."""
        return tuple(group for group in self.ranked if group.on_front)


def rank(aim: Aim, trials: Iterable[Scored]) -> Ranking:
    """Rank the points of a sweep, finished or not.

    Trials whose value is NaN, infinite or missing never win, nor do points that break a constraint; ties
    go to the point with the lower trial number.
    """
    points: dict[int, list[Scored]] = {}
    unranked: list[Unranked] = []
    for trial in trials:
        points.setdefault(trial.point, []).append(trial)
    candidates: list[_Candidate] = []
    for members in points.values():
        counting: list[Scored] = []
        for trial in members:
            why = why_not(aim, trial)
            if why:
                unranked.append(Unranked(trial.number, why))
            else:
                counting.append(trial)
        need = _needed(aim, members)
        if len(counting) >= need:
            candidates.append(_candidate(aim, counting))
        else:
            unranked += [Unranked(t.number, _too_few(len(counting), need)) for t in counting]
    candidates.sort(key=lambda candidate: candidate.order)
    unranked.sort(key=lambda trial: trial.number)
    ranked = _compare(aim, candidates)
    return Ranking(ranked, tuple(unranked), _winner(aim, ranked, candidates), aim.take.rule)


def why_not(aim: Aim, trial: Scored) -> str:
    """Return why a trial does not count, in a few words; empty when it does."""
    match trial.state:
        case State.SUCCEEDED:
            return _why_no_value(aim, trial)
        case State.STOPPED if aim.take.kind == "best":
            return _why_no_value(aim, trial)
        case State.STOPPED:
            return "stopped early: it competes only with take: best"
        case State.FAILED:
            return f"failed: {_first_line(trial.message) or trial.reason.sentence}"
        case State.CANCELLED:
            return "cancelled"
        case _:
            return f"not finished: {trial.state}"


def _why_no_value(aim: Aim, trial: Scored) -> str:
    if trial.value is not None and is_sound(trial.value):
        return ""
    raw = shown(trial.value) if trial.value is not None else trial.raw
    if raw:
        return f"diverged: {raw}"
    at = f" at step {aim.take.n}" if aim.take.kind == "at_step" else ""
    return f"no metric: {aim.metric} was not logged{at}"


def _first_line(message: str) -> str:
    line = message.strip().partition("\n")[0]
    return line if len(line) <= _REASON_CHARS else f"{line[: _REASON_CHARS - 1]}…"


def _needed(aim: Aim, members: Sequence[Scored]) -> int:
    if aim.min_replicates is not None:
        return aim.min_replicates
    # Replicates that were added later do not count, and are not missed, before they have ended.
    ended = sum(trial.state.is_final and trial.state is not State.CANCELLED for trial in members)
    return max(1, aim.replicates, ended)


def _too_few(count: int, need: int) -> str:
    return f"only {count} of the {need} replicates needed count"


@dataclass(frozen=True, slots=True)
class _Candidate:
    order: tuple[bool, float, int]
    counting: Sequence[Scored]
    summary: Summary
    value: float
    note: str


def _candidate(aim: Aim, counting: Sequence[Scored]) -> _Candidate:
    values = [trial.value for trial in counting if trial.value is not None]
    summary = summarize(values)
    value = _across(aim, values, summary)
    note = "; ".join(dict.fromkeys(_broken(aim, counting)))
    cost = value if aim.goal == "minimize" else -value
    return _Candidate((bool(note), cost, min(t.number for t in counting)), counting, summary, value, note)


def _across(aim: Aim, values: Sequence[float], summary: Summary) -> float:
    match aim.across_replicates:
        case "median":
            # The mean of the two in the middle, which for very large values is not half their sum.
            return mean([statistics.median_low(values), statistics.median_high(values)])
        case "worst":
            return max(values) if aim.goal == "minimize" else min(values)
        case _:
            return summary.mean


def _broken(aim: Aim, counting: Sequence[Scored]) -> Iterable[str]:
    for constraint in aim.constraints:
        text = f"constraint {constraint.metric} {constraint.op} {constraint.bound:g}"
        for trial in counting:
            value = trial.constrained.get(constraint.metric)
            if value is None:
                yield f"{text} unknown: {constraint.metric} was not logged"
            elif not (is_sound(value) and _OPERATORS[constraint.op](value, constraint.bound)):
                yield f"{text} broken: {shown(value)}"


def _compare(aim: Aim, candidates: Sequence[_Candidate]) -> tuple[Group, ...]:
    groups = [_group(place, candidate) for place, candidate in enumerate(candidates, 1)]
    tests, sign = _tests(candidates), 1 if aim.goal == "minimize" else -1
    for (place, test), adjusted in zip(tests.items(), holm([t.p for t in tests.values()]), strict=True):
        is_better = sign * groups[place].mean < sign * groups[0].mean
        groups[place] = replace(
            groups[place],
            p=test.p,
            p_adjusted=adjusted,
            separable_from_winner=adjusted < NOISE_P and not is_better,
        )
    return tuple(groups)


def _tests(candidates: Sequence[_Candidate]) -> dict[int, Welch]:
    """Return the test of each candidate against the winner, by position, where there can be one."""
    # Without a feasible point there is no winner to be compared with.
    if not candidates or candidates[0].note:
        return {}
    able = {place: each.summary for place, each in enumerate(candidates) if place and not each.note}
    made = {place: welch(candidates[0].summary, summary) for place, summary in able.items()}
    return {place: test for place, test in made.items() if test is not None}


def _group(place: int, candidate: _Candidate) -> Group:
    counting = sorted(candidate.counting, key=lambda trial: trial.number)
    changes = dict.fromkeys(relief_note(trial.changed) for trial in counting)
    return Group(
        rank=place,
        trials=tuple(trial.number for trial in counting),
        overrides=counting[0].overrides,
        value=candidate.value,
        mean=candidate.summary.mean,
        sd=candidate.summary.sd,
        n=candidate.summary.n,
        ci95=confidence_interval(candidate.summary),
        feasible=not candidate.note,
        steps=tuple(trial.step for trial in counting),
        stopped_early=any(trial.state is State.STOPPED for trial in counting),
        note="; ".join(filter(None, [candidate.note, *changes])),
        point=counting[0].point,
    )


def _winner(aim: Aim, ranked: Sequence[Group], candidates: Sequence[_Candidate]) -> Winner | None:
    if not ranked or not ranked[0].feasible:
        return None
    sign = 1 if aim.goal == "minimize" else -1
    best = min(candidates[0].counting, key=lambda t: (sign * (t.value or 0.0), t.number))
    return Winner(ranked[0], best.number, best.run_id, best.changed)

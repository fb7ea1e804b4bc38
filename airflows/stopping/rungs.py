"""Comparing trials at rungs: asha, hyperband and median. Pure.

A point is compared with the points of lower numbers at the same step, and judged as soon as nothing that is
still to come from those can change the verdict. So the verdicts on all points are the same in whatever order
scores arrive; only how early each is known differs. Replicates of a point are compared as one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from airflows.scores import is_sound, mean
from airflows.stopping.curves import Score, as_good_as, number
from airflows.stopping.setting import ALMOST, Setting, bracket, rungs


@dataclass(frozen=True, slots=True)
class Standing:
    """What the rules know of one trial.

    Attributes:
        number: the trial's.
        point: its point's number; replicates have it in common.
        is_open: it may log further values.
        scores: what was kept of its curve, by step.
    """

    number: int
    point: int
    is_open: bool
    scores: Sequence[Score] = ()

    def at(self, rung: int) -> Score | None:
        """Return the first value from a rung on."""
        for score in self.scores:
            if score.step >= rung:
                return score
        return None


class Stop(NamedTuple):
    """That a trial stops, and the numbers that say why."""

    step: int
    value: float
    words: str


class Waiting:
    """The value of a point that may still come."""


WAITING = Waiting()


@dataclass(frozen=True, slots=True)
class Group:
    """The replicates of one point."""

    point: int
    members: Sequence[Standing]

    def at(self, setting: Setting, rung: int) -> Score | Waiting | None:
        """Return the point's value at a rung; None when it ended before."""
        if len(self.members) == 1:
            (member,) = self.members
            return member.at(rung) or (WAITING if member.is_open else None)
        found = [(member, member.at(rung)) for member in self.members]
        if any(score is None and member.is_open for member, score in found):
            return WAITING
        scores = [score for _, score in found if score is not None]
        if not scores:
            return None
        step = max(score.step for score in scores)
        return Score(step, _across(setting, [score.value for score in scores]))


def groups(standings: Iterable[Standing]) -> list[Group]:
    """Return trials as points, by number."""
    found: dict[int, list[Standing]] = defaultdict(list)
    for standing in standings:
        found[standing.point].append(standing)
    return [Group(point, found[point]) for point in sorted(found)]


def judge(setting: Setting, standings: Iterable[Standing]) -> Mapping[int, Stop]:
    """Return why each point stops that does, by point. What is not certain yet is not in the answer."""
    if not setting.compares:
        return {}
    fields: dict[int, _Field] = defaultdict(_Field)
    stops: dict[int, Stop] = {}
    for group in groups(standings):
        stop = _climb(setting, group, fields[bracket(setting, group.point)])
        if stop is not None:
            stops[group.point] = stop
    return stops


@dataclass(slots=True)
class _Field:
    """The points so far, all of lower numbers.

    Attributes:
        known: the values at each rung, best first.
        open: points of which nothing is known from this rung on.
        gone: points that were stopped at the rung before.
    """

    known: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    open: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    gone: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def may_come(self, place: int) -> int:
        return sum(count for rung, count in self.open.items() if rung <= place)

    def went(self, place: int) -> int:
        return sum(count for rung, count in self.gone.items() if rung <= place)


def _climb(setting: Setting, group: Group, field: _Field) -> Stop | None:
    for place, rung in enumerate(rungs(setting, group.point)):
        score = group.at(setting, rung)
        if isinstance(score, Waiting):
            field.open[place] += 1
            return None
        if score is None:
            return None
        value, known = as_good_as(setting, score.value), field.known[place]
        others = len(known) + (field.went(place) if setting.method == "median" else 0)
        is_out = certain(setting, bisect_left(known, value), others, field.may_come(place))
        words = _why(setting, group, score, known, others) if is_out else ""
        insort(known, value)
        if is_out is None:
            # Whether it counts further up is not known.
            field.open[place + 1] += 1
            return None
        if is_out:
            field.gone[place + 1] += 1
            return Stop(score.step, score.value, words)
    return None


def certain(setting: Setting, better: int, others: int, to_come: int) -> bool | None:
    """Return whether a point is out, None while what may come could change that.

    Args:
        setting: the rule.
        better: points with better values.
        others: points to compare with, those included.
        to_come: points whose values may come; each may turn out better, worse or not at all.
    """
    if _is_out(setting, better, others) and _is_out(setting, better, others + to_come):
        return True
    return None if _is_out(setting, better + to_come, others + to_come) else False


def _is_out(setting: Setting, better: int, others: int) -> bool:
    if setting.method == "median":
        return others >= setting.after_trials and better > others // 2
    return better >= quota(setting, others + 1)


def quota(setting: Setting, count: int) -> int:
    """Return how many of so many points go on at a rung."""
    return max(1, int(count / setting.reduction + ALMOST))


def _across(setting: Setting, values: Sequence[float]) -> float:
    unsound = [value for value in values if not is_sound(value)]
    if unsound:
        return unsound[0]
    if setting.across == "worst":
        return max(values, key=lambda value: as_good_as(setting, value))
    if setting.across == "median":
        ranked, middle = sorted(values), len(values) // 2
        return mean(ranked[middle - (len(ranked) % 2 == 0) : middle + 1])
    return mean(values)


def _why(setting: Setting, group: Group, score: Score, known: Sequence[float], others: int) -> str:
    """Return `0.41 is below the median 0.63 of 12 trials at that step`."""
    what = number(score.value)
    if len(group.members) > 1:
        what = f"the {setting.across} {what} of {len(group.members)} replicates"
    if setting.method == "median":
        bar = setting.sign * known[others // 2]
        return f"{what} is {setting.worse} the median {number(bar)} of {others} {_noun(group)} at that step"
    goes_on = quota(setting, others + 1)
    bar = setting.sign * known[goes_on - 1]
    best = "the best" if goes_on == 1 else f"the worst of the best {goes_on}"
    return f"{what} is {setting.worse} {number(bar)}, {best} of {others + 1} {_noun(group)} at that step"


def _noun(group: Group) -> str:
    return "points" if len(group.members) > 1 else "trials"

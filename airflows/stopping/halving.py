"""asha with `resume: true`: trials wait at a rung until it is known who goes on. Pure.

A point is compared with all points of the sweep, whatever their numbers, since one that waits at its
checkpoint loses nothing. The verdicts are those of successive halving over the whole sweep.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from enum import StrEnum

from airflows.stopping.curves import Score, as_good_as, number
from airflows.stopping.rungs import Group, Standing, Stop, Waiting, certain, groups, quota
from airflows.stopping.setting import Setting, rungs


class Verdict(StrEnum):
    """What becomes of a point at the highest rung where it has a value."""

    GOES_ON = "goes_on"
    WAITS = "waits"
    STOPS = "stops"


def halve(
    setting: Setting, standings: Iterable[Standing], *, coming: int
) -> tuple[Mapping[int, Verdict], Mapping[int, Stop]]:
    """Return what becomes of each point that has reached a rung, and why those stop that do.

    Args:
        setting: the rule.
        standings: the trials so far.
        coming: points that are not among them yet.
    """
    verdicts: dict[int, Verdict] = {}
    stops: dict[int, Stop] = {}
    entered, unknown = groups(standings), coming
    for rung in rungs(setting, 0):
        there: list[tuple[Group, Score]] = []
        for group in entered:
            score = group.at(setting, rung)
            if isinstance(score, Waiting):
                unknown += 1
                # Of its replicates some may have come so far: they wait for the others.
                verdicts |= {group.point: Verdict.WAITS} if any(m.at(rung) for m in group.members) else {}
            elif score is not None:
                there.append((group, score))
        if not there:
            break
        entered, unsure = _split(setting, there, unknown, verdicts, stops)
        unknown += unsure
    return verdicts, stops


def _split(
    setting: Setting,
    there: list[tuple[Group, Score]],
    unknown: int,
    verdicts: dict[int, Verdict],
    stops: dict[int, Stop],
) -> tuple[list[Group], int]:
    """Judge those at a rung; return (those that go on, how many of the others still may)."""
    ranked = sorted(as_good_as(setting, score.value) for _, score in there)
    go_on: list[Group] = []
    unsure = 0
    for group, score in there:
        better = bisect_left(ranked, as_good_as(setting, score.value))
        is_out = certain(setting, better, len(ranked) - 1, unknown)
        if is_out is None:
            verdicts[group.point] = Verdict.WAITS
            unsure += 1
        elif is_out:
            verdicts[group.point] = Verdict.STOPS
            stops[group.point] = Stop(score.step, score.value, _why(setting, score, ranked))
        else:
            verdicts[group.point] = Verdict.GOES_ON
            go_on.append(group)
    return go_on, unsure


def _why(setting: Setting, score: Score, ranked: list[float]) -> str:
    goes_on = quota(setting, len(ranked))
    bar = number(setting.sign * ranked[goes_on - 1])
    best = "the best" if goes_on == 1 else f"the worst of the best {goes_on}"
    return f"{number(score.value)} is {setting.worse} {bar}, {best} of {len(ranked)} trials at that step"

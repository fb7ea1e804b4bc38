"""How far a winner can be trusted: who may be as good, and what more replicates would tell and cost. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflows.power import replicates_needed
from airflows.ranking import NOISE_P, Group, Ranking
from airflows.report.accounting import Spent, total

MOST_REPLICATES = 30
"""More than so many further replicates are not advised."""
# With these one knows at least how much values scatter.
_FIRST_MORE = 2
# Where nothing can be tested, the best few are worth another look.
_UNTESTED = 3
# And among many that may be as good, these.
_LOOKED_AT = 9
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Advice:
    """What would probably tell the winner from those that may be as good.

    Attributes:
        replicates: so many more of each of these.
        groups: the winner first.
        accelerator_hours: about what they take, None where nothing is known of it.
    """

    replicates: int
    groups: tuple[Group, ...]
    accelerator_hours: float | None = None

    @property
    def trials(self) -> int:
        """How many trials that would be."""
        return self.replicates * len(self.groups)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON documents show it."""
        return {
            "replicates": self.replicates,
            "ranks": [group.rank for group in self.groups],
            "trials": self.trials,
            "accelerator_hours": self.accelerator_hours,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far a winner can be trusted.

    Attributes:
        inseparable: the groups whose mean is not worse than the winner's beyond noise (Welch's test, Holm's
            correction for all that were compared), best first.
        untested: groups that could win and that cannot be tested, since they or the winner ran once.
        close: those of the inseparable that even `MOST_REPLICATES` more would probably not tell from it.
        separated: how many were tested and are worse beyond noise.
        is_single: the winner ran once, so its value is the best of noisy ones, and probably too good.
        advice: what would probably separate them, None where nothing would.
    """

    winner: Group
    inseparable: tuple[Group, ...]
    untested: tuple[Group, ...]
    close: tuple[Group, ...]
    separated: int
    is_single: bool
    advice: Advice | None

    @property
    def contenders(self) -> tuple[Group, ...]:
        """The groups of which more replicates would tell more, the winner first."""
        if self.advice is not None:
            return self.advice.groups
        return (self.winner, *self.inseparable[:_LOOKED_AT])

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON documents show it."""
        return {
            "inseparable": [group.rank for group in self.inseparable],
            "untested": len(self.untested),
            "close": [group.rank for group in self.close],
            "separated": self.separated,
            "is_single": self.is_single,
            "advice": None if self.advice is None else self.advice.to_dict(),
        }


def verdict_words(found: Verdict, sweep: str, *, has_replicates: bool) -> list[str]:
    """Return how far the winner can be trusted, in sentences.

    Args:
        found: the verdict.
        sweep: its id, for the command to type.
        has_replicates: the sweep file has replicates, so that there can be more of them.
    """
    words = []
    tested = len(found.inseparable) + found.separated
    if found.is_single:
        words.append(
            f"It ran once, and so its value is the best of {len(found.untested) + 1} noisy ones:"
            " probably too good, and perhaps not the best point."
        )
    elif found.inseparable:
        words += _rival_words(found, tested)
    elif tested:
        words.append(f"All {tested} others that were tested differ from it beyond noise.")
    if found.close and not found.advice:
        best = "" if len(found.close) == len(found.inseparable) else f" the best {len(found.close)} of"
        more = f"Even {MOST_REPLICATES} more replicates would probably not tell"
        words.append(f"{more}{best} them from it: take them as equal.")
    elif found.close:
        more = f"more than {MOST_REPLICATES} more replicates each"
        words.append(f"{len(found.close)} of them would probably take {more}.")
    return words + _advice_words(found, sweep, has_replicates=has_replicates)


def _rival_words(found: Verdict, tested: int) -> list[str]:
    within = [group for group in found.inseparable if not group.is_ahead]
    ahead = [group for group in found.inseparable if group.is_ahead]
    how = f"(Welch's test, Holm's correction for {tested})"
    near = f"of the {tested} other points may be as good, within noise: rank {shown_ranks(within)} {how}."
    better = f"of the {tested} other points may be as good: the mean is better beyond noise at rank"
    words = [f"{len(within)} {near}"] if within else []
    return words + ([f"{len(ahead)} {better} {shown_ranks(ahead)} {how}."] if ahead else [])


def shown_ranks(groups: Sequence[Group]) -> str:
    """Return the ranks of groups for people, the first few."""
    ranks = " ".join(str(group.rank) for group in groups[:_SHOWN])
    return f"{ranks} and {len(groups) - _SHOWN} more" if len(groups) > _SHOWN else ranks


def _advice_words(found: Verdict, sweep: str, *, has_replicates: bool) -> list[str]:
    advice = found.advice
    if advice is None:
        return []
    if not has_replicates:
        return [
            "With replicates in the sweep file you would know: {key: parameters.seed, values: [0, 1, 2]}."
        ]
    hours = advice.accelerator_hours
    price = "" if hours is None else f", about {hours:.2g} accelerator-hours"
    would = "would show how much is noise" if found.is_single else "would probably separate these"
    points = f"the {len(advice.groups)} points ranked {shown_ranks(advice.groups)}"
    more = "1 more replicate" if advice.replicates == 1 else f"{advice.replicates} more replicates"
    ways = f"{more} of each of {points} {would}{price}:"
    return [ways, f"  airflows resume {sweep} --replicates {advice.replicates}"]


def verdict(ranking: Ranking) -> Verdict | None:
    """Return how far the winner of a ranking can be trusted; None without one, or with nothing beside it."""
    if ranking.winner is None:
        return None
    winner = ranking.winner.group
    others = [group for group in ranking.ranked if group.feasible and group.rank != winner.rank]
    if not others:
        return None
    inseparable = tuple(group for group in others if group.separable_from_winner is False)
    untested = tuple(group for group in others if group.separable_from_winner is None)
    needed = _needed(winner, inseparable)
    pairs = zip(inseparable, needed, strict=False)
    close = tuple(group for group, more in pairs if more is None and not group.is_ahead)
    separated = len(others) - len(inseparable) - len(untested)
    advice = _advice(winner, others, needed)
    return Verdict(winner, inseparable, untested, close, separated, winner.n == 1, advice)


def _needed(winner: Group, inseparable: Sequence[Group]) -> list[int | None]:
    """Return how many more replicates would probably separate each of the best, None where none would.

    Holm's method tests the smallest p at the strictest level, and the largest one at that of a single test.
    """
    by_p = sorted(inseparable, key=lambda group: group.p or 0.0, reverse=True)
    levels = {group.rank: NOISE_P / place for place, group in enumerate(by_p, 1)}
    return [
        None
        if group.is_ahead
        else replicates_needed(winner.summary, group.summary, levels[group.rank], MOST_REPLICATES)
        for group in inseparable[:_LOOKED_AT]
    ]


def _advice(winner: Group, others: Sequence[Group], needed: Sequence[int | None]) -> Advice | None:
    inseparable = [group for group in others if group.separable_from_winner is False]
    possible = [(group, more) for group, more in zip(inseparable, needed, strict=False) if more is not None]
    if possible:
        return Advice(max(more for _, more in possible), (winner, *(group for group, _ in possible)))
    untested = [group for group in others if group.separable_from_winner is None]
    if untested and not inseparable:
        return Advice(_FIRST_MORE, (winner, *untested)[:_UNTESTED])
    return None


def priced(found: Verdict, spent: Mapping[int, Sequence[Spent]]) -> Verdict:
    """Return a verdict whose advice has a price: each further replicate costs what those before it cost.

    Args:
        found: the verdict.
        spent: what the attempts at each trial took, by number.
    """
    if found.advice is None:
        return found
    hours = 0.0
    for group in found.advice.groups:
        known = [total(spent[number]).useful_s for number in group.trials if number in spent]
        if not known:
            return found
        hours += found.advice.replicates * sum(known) / len(known) / 3600
    return replace(found, advice=replace(found.advice, accelerator_hours=hours))

"""The Pareto front of several objectives. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from airflows.ranking import Group
from airflows.report.facts import Facts, Goal, spread, values_of
from airflows.report.figures.drawing import (
    BLUE,
    GREY,
    ORANGE,
    Figure,
    Trace,
    axis,
    layout,
    number_words,
    point_text,
    rounded,
)

MOST_POINTS = 1500
NO_FRONT = Figure("pareto-0", "Pareto front", why_not="There is one objective, and a front takes two.")
_MOST_PAIRS = 3


def fronts(facts: Facts) -> list[Figure]:
    """Return the points over each pair of objectives, the front marked; nothing for one objective."""
    if len(facts.goals) < 2:  # noqa: PLR2004 - a front takes two
        return []
    if not facts.groups:
        return [Figure("pareto-0", "Pareto front", why_not="No point is ranked.")]
    pairs = list(combinations(range(len(facts.goals)), 2))[:_MOST_PAIRS]
    return [_pair(f"pareto-{at}", facts, pair) for at, pair in enumerate(pairs)]


def _pair(name: str, facts: Facts, pair: tuple[int, int]) -> Figure:
    one, other = facts.goals[pair[0]], facts.goals[pair[1]]
    front = [group for group in facts.groups if group.on_front]
    rest = [group for group in facts.groups if not group.on_front]
    drawn = spread(rest, max(0, MOST_POINTS - len(front)))
    ordered = sorted(front, key=lambda group: values_of(group)[pair[0]])
    data = [_dots(drawn, pair, "other points", {"color": GREY, "size": 6, "opacity": 0.6})]
    # With more than two objectives the front is no line in the plane of two.
    mode = "lines+markers" if len(facts.goals) == 2 else "markers"  # noqa: PLR2004
    marker = {"color": BLUE, "size": 8}
    line = {"color": BLUE, "width": 1.5, "shape": _corner(one)}
    data.append({**_dots(ordered, pair, "Pareto front", marker), "mode": mode, "line": line})
    knee = [group for group in front if group.is_knee]
    if knee:
        marker = {"color": ORANGE, "size": 15, "symbol": "star"}
        data.append(_dots(knee, pair, "best compromise", marker))
    made = layout(420, xaxis=axis(_aim(one)), yaxis=axis(_aim(other)))
    title = "Pareto front" if len(facts.goals) == 2 else f"Pareto front: {one.metric} and {other.metric}"  # noqa: PLR2004
    note = "On the front are the points that no other one beats: none is as good in all and better in one."
    if len(drawn) < len(rest):
        note += f" Of the {len(rest):,} others {len(drawn):,} are drawn, from all over."
    return Figure(name, title, data, made, _summary(facts, front, knee), note)


def _dots(groups: Sequence[Group], pair: tuple[int, int], name: str, marker: Trace) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [rounded(values_of(group)[pair[0]]) for group in groups],
        "y": [rounded(values_of(group)[pair[1]]) for group in groups],
        "text": [point_text(min(group.trials), group.overrides) for group in groups],
        "hoverinfo": "text+x+y",
        "marker": marker,
    }


def _corner(goal: Goal) -> str:
    """Return how the line goes between two points of the front: around what they beat."""
    return "hv" if goal.sign > 0 else "vh"


def _aim(goal: Goal) -> str:
    return f"{goal.metric} ({'less' if goal.sign > 0 else 'more'} is better)"


def _summary(facts: Facts, front: Sequence[Group], knee: Sequence[Group]) -> str:
    words = f"{len(front)} of {len(facts.groups)} ranked points are on the front."
    if not knee:
        return words
    values = zip(facts.goals, values_of(knee[0]), strict=True)
    told = ", ".join(f"{goal.metric} {number_words(value)}" for goal, value in values)
    return f"{words} The best compromise is trial {min(knee[0].trials)}: {told}."

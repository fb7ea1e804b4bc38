"""How the results came about: each point's value in the order of the trials, and the best so far. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from airflows.ranking import Group
from airflows.report.facts import Facts, Goal, spread, values_of
from airflows.report.figures.drawing import (
    BLUE,
    GREY,
    ORANGE,
    Figure,
    Layout,
    Trace,
    axis,
    axis_key,
    layout,
    number_words,
    ordinal,
    point_text,
    rounded,
)

MOST_POINTS = 1500
_TITLE = "Optimisation history"
_HEIGHT = 340
_MOST_ROWS = 4


def history(facts: Facts) -> Figure:
    """Return the value of each ranked point by its first trial, and the best up to then."""
    groups = sorted(facts.groups, key=lambda group: min(group.trials))
    if not groups:
        return Figure("history", _TITLE, why_not="No point is ranked, so there is no history.")
    goals = facts.goals[:_MOST_ROWS]
    data: list[Trace] = []
    made: Layout = layout(_HEIGHT if len(goals) == 1 else 230 * len(goals))
    for row, goal in enumerate(goals):
        data += _row(groups, goal, row)
        made[axis_key("x", row)] = axis("trial" if row == len(goals) - 1 else "", anchor=ordinal("y", row))
        made[axis_key("y", row)] = axis(
            goal.metric, domain=_domain(row, len(goals)), anchor=ordinal("x", row)
        )
    return Figure("history", _TITLE, data, made, _summary(groups, goals), _note(facts, groups))


def best_so_far(groups: Sequence[Group], goal: Goal, place: int = 0) -> list[tuple[int, float]]:
    """Return (trial, value) each time a point that may win was better than all before it.

    Args:
        groups: ordered by their first trial.
        goal: which of two values is better.
        place: which objective it is.
    """
    found: list[tuple[int, float]] = []
    for group in groups:
        value = values_of(group)[place]
        if group.feasible and (not found or goal.sign * value < goal.sign * found[-1][1]):
            found.append((min(group.trials), value))
    return found


def _row(groups: Sequence[Group], goal: Goal, row: int) -> list[Trace]:
    best = best_so_far(groups, goal, row)
    steps = {number for number, _ in best}
    kept = {min(group.trials) for group in spread(groups, max(0, MOST_POINTS - len(steps)))} | steps
    drawn = [group for group in groups if min(group.trials) in kept]
    able = [group for group in drawn if group.feasible]
    broken = [group for group in drawn if not group.feasible]
    on = {"xaxis": ordinal("x", row), "yaxis": ordinal("y", row), "showlegend": row == 0}
    traces = [
        {**_points(able, row), **on, "name": "points", "marker": {"color": BLUE, "size": 6, "opacity": 0.65}}
    ]
    if broken:
        marker = {"color": GREY, "size": 7, "symbol": "x-thin-open", "opacity": 0.8}
        traces.append({**_points(broken, row), **on, "name": "breaks a constraint", "marker": marker})
    if best:
        # The line goes on to the last point.
        ends = [*best, (min(groups[-1].trials), best[-1][1])]
        line = {"color": ORANGE, "width": 2, "shape": "hv"}
        x, y = [number for number, _ in ends], [rounded(value) for _, value in ends]
        traces.append(
            {"type": "scatter", "mode": "lines", **on, "name": "best so far", "x": x, "y": y, "line": line}
        )
    return traces


def _points(groups: Sequence[Group], place: int) -> Trace:
    values = [values_of(group)[place] for group in groups]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [min(group.trials) for group in groups],
        "y": [rounded(value) for value in values],
        "text": [
            point_text(min(group.trials), group.overrides, value)
            for group, value in zip(groups, values, strict=True)
        ],
        "hoverinfo": "text",
    }


def _domain(row: int, rows: int) -> list[float]:
    high = 1 - row / rows
    return [round(high - 1 / rows + (0.1 if rows > 1 else 0), 4), round(high, 4)]


def _summary(groups: Sequence[Group], goals: Sequence[Goal]) -> str:
    words = []
    for place, goal in enumerate(goals):
        best = best_so_far(groups, goal, place)
        if best:
            first, (last, value) = best[0][1], best[-1]
            words.append(
                f"The best {goal.metric} went from {number_words(first)} to {number_words(value)},"
                f" reached at trial {last}."
            )
    if words:
        words.append(f"{len(groups):,} points are ranked.")
    return " ".join(words) or f"None of {len(groups)} ranked points keeps all constraints."


def _note(facts: Facts, groups: Sequence[Group]) -> str:
    notes = []
    if any(len(group.trials) > 1 for group in groups):
        notes.append("A point stands for all its replicates, at its first trial.")
    if len(groups) > MOST_POINTS:
        notes.append(
            f"{MOST_POINTS:,} of {len(groups):,} points are drawn: every improvement, others from all over."
        )
    missing = 0 if facts.ranking is None else len(facts.ranking.unranked)
    if missing:
        notes.append(f"{missing:,} trials are not ranked and not drawn.")
    return " ".join(notes)

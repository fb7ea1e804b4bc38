"""Parallel coordinates: each point a line through its parameters to its value. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflows.ranking import Group
from airflows.report.facts import Facts, spread, values_of
from airflows.report.figures.drawing import (
    SCALE,
    Figure,
    Positions,
    Trace,
    label,
    layout,
    number_words,
    point_text,
    shown,
)

MOST_LINES = 300
MOST_AXES = 9
_TITLE = "Parallel coordinates"
_MOST_TICKS = 8
# Below every axis that some points do not have.
_ABSENT = -0.12


@dataclass(frozen=True, slots=True)
class _Column:
    """An axis: its title, the height of each point from 0 to 1, and what is written at which height."""

    title: str
    heights: Sequence[float]
    ticks: Sequence[tuple[float, str]]


def parallel(facts: Facts) -> Figure:
    """Return a line for each ranked point, the best ones from all over the ranking in the strongest colour.

    It is made of plain lines: plotly's own kind needs WebGL, which a remote desktop may not have.
    """
    parameters = facts.leading_parameters(MOST_AXES - 1)
    groups = _chosen(facts.groups)
    if not groups or not parameters:
        why = "No parameter varied among ranked points." if groups else "No point is ranked."
        return Figure("parallel", _TITLE, why_not=why)
    columns = [
        _of_parameter(Positions.of(p, [g.overrides for g in facts.groups]), groups) for p in parameters
    ]
    columns += [
        _of_values(goal.metric, [values_of(g)[place] for g in groups])
        for place, goal in enumerate(facts.goals)
    ]
    made = layout(
        420,
        margin={"l": 40, "r": 60, "t": 30, "b": 40},
        showlegend=False,
        xaxis={
            "tickvals": list(range(len(columns))),
            "ticktext": [label(column.title, 24) for column in columns],
            "side": "top",
            "showgrid": False,
            "zeroline": False,
            "range": [-0.25, len(columns) - 0.55],
        },
        yaxis={"visible": False, "range": [_ABSENT - 0.06, 1.06], "fixedrange": True},
        shapes=[_pole(place) for place in range(len(columns))],
        annotations=[
            _tick(place, height, text)
            for place, column in enumerate(columns)
            for height, text in column.ticks
        ],
    )
    return Figure(
        "parallel", _TITLE, _lines(groups, columns), made, _summary(facts), _note(facts, len(groups))
    )


def _chosen(groups: Sequence[Group]) -> list[Group]:
    """Return the groups that are drawn: the best, and others from all over."""
    best = list(groups[: MOST_LINES // 2])
    return best + spread(groups[len(best) :], MOST_LINES - len(best))


def _of_parameter(positions: Positions, groups: Sequence[Group]) -> _Column:
    places = [positions.place(group.overrides) for group in groups]
    there = [place for place in places if place is not None]
    low, high = min(there, default=0.0), max(there, default=1.0)
    if not positions.is_numeric:
        low, high = 0.0, max(1.0, len(positions.categories) - 1.0)
    heights = [_ABSENT if place is None else _height(place, low, high) for place in places]
    ticks = _category_ticks(positions) if positions.categories else _number_ticks(low, high, positions.is_log)
    if len(there) < len(places):
        ticks = [*ticks, (_ABSENT, "not active")]
    return _Column(positions.parameter.name, heights, ticks)


def _of_values(metric: str, values: Sequence[float]) -> _Column:
    low, high = min(values), max(values)
    return _Column(metric, [_height(value, low, high) for value in values], _number_ticks(low, high, False))


def _height(value: float, low: float, high: float) -> float:
    # Halved, since two finite values may be further apart than floats reach.
    return round((value / 2 - low / 2) / (high / 2 - low / 2), 4) if high > low else 0.5


def _number_ticks(low: float, high: float, is_log: bool) -> list[tuple[float, str]]:
    if low == high:
        return [(0.5, number_words(10**low if is_log else low))]
    heights = (0.0, 0.5, 1.0)
    values = [low + (high / 2 - low / 2) * 2 * height for height in heights]
    values = [10**value if is_log else value for value in values]
    # More digits where the ends would look the same.
    digits = next((each for each in (4, 8, 12) if len({f"{v:.{each}g}" for v in values}) == len(values)), 17)
    return [(height, f"{value:.{digits}g}") for height, value in zip(heights, values, strict=True)]


def _category_ticks(positions: Positions) -> list[tuple[float, str]]:
    last = max(1, len(positions.categories) - 1)
    every = spread(range(len(positions.categories)), _MOST_TICKS)
    return [(place / last, label(positions.categories[place], 16)) for place in every]


def _lines(groups: Sequence[Group], columns: Sequence[_Column]) -> list[Trace]:
    """Return a trace for each colour, the best last and so on top."""
    traces = []
    for colour_at in reversed(range(len(SCALE))):
        own = [at for at in range(len(groups)) if _colour(at, len(groups)) == colour_at]
        x: list[float | None] = []
        y: list[float | None] = []
        text: list[str] = []
        for at in own:
            words = point_text(min(groups[at].trials), groups[at].overrides, groups[at].value)
            x += [*range(len(columns)), None]
            y += [*(column.heights[at] for column in columns), None]
            text += [words] * len(columns) + [""]
        if own:
            width = 2 if colour_at == 0 else 1
            line = {"color": SCALE[colour_at], "width": width}
            lines = {"x": x, "y": y, "text": text, "hoverinfo": "text", "line": line}
            traces.append({"type": "scatter", "mode": "lines", "opacity": 0.75, **lines})
    return traces


def _colour(at: int, count: int) -> int:
    """Return which colour a point has by its place in the ranking; a tenth of them the strongest."""
    share = at / count
    return 0 if share < 0.1 else 1 + int((share - 0.1) / 0.9 * (len(SCALE) - 1))  # noqa: PLR2004 - a tenth


def _pole(place: int) -> Mapping[str, Any]:
    line = {"color": "rgba(138,148,166,0.7)", "width": 1}
    return {"type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "line": line, "layer": "below"}


def _tick(place: int, height: float, text: str) -> Mapping[str, Any]:
    return {
        "x": place,
        "y": height,
        "text": text,
        "showarrow": False,
        "xanchor": "left",
        "xshift": 4,
        "font": {"size": 11},
    }


def _summary(facts: Facts) -> str:
    best = facts.groups[0]
    told = ", ".join(
        f"{key.removeprefix('parameters.')} {shown(value)}" for key, value in best.overrides.items()
    )
    return f"A line for each ranked point through its parameters. The first in the ranking has {told}."


def _note(facts: Facts, drawn: int) -> str:
    notes = ["The darker the line, the better the rank."]
    total = len(facts.groups)
    if drawn < total:
        notes.append(f"{drawn:,} of {total:,} points are drawn: the best half of them, others from all over.")
    if len(facts.leading_parameters(MOST_AXES)) == MOST_AXES:
        notes.append(f"Only {MOST_AXES - 1} parameters have an axis.")
    return " ".join(notes)

"""What the parameters do: their importance, each by itself (slices), and two at a time (contours). Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from airflows.ranking import Group
from airflows.report.facts import Facts, Goal, Parameter, spread
from airflows.report.figures.drawing import (
    BLUE,
    COLOUR_SCALE,
    Figure,
    Layout,
    Positions,
    Trace,
    axis,
    axis_key,
    label,
    layout,
    ordinal,
    point_text,
    rounded,
)

MOST_POINTS = 500
MOST_SLICES = 8
MOST_PAIRS = 3
_COLUMNS = 4
_CELLS = 24
_MOST_NEIGHBOURS = 200
_FEW_VALUES = 12
_NO_PAIR = "It takes two parameters that varied, both numbers or of few values."


def importance(facts: Facts) -> Figure:
    """Return how much each parameter has to do with a point being among the best."""
    title, found = "Parameter importance", facts.importance
    if found is None or found.why_not:
        why = facts.importance_note if found is None else found.why_not
        return Figure("importance", title, why_not=why or "Nothing is known of it.")
    names = {", ".join(parameter.keys): parameter.name for parameter in facts.parameters}
    keys = list(found.shares)[::-1]
    shares = [round(found.shares[key], 4) for key in keys]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": shares,
        "y": [label(names.get(key, key)) for key in keys],
        "marker": {"color": BLUE},
        "text": [f"{share:.0%}" for share in shares],
        "textposition": "auto",
        "hoverinfo": "y+text",
    }
    made = layout(
        90 + 30 * len(keys),
        xaxis=axis("share", tickformat=".0%", rangemode="tozero"),
        yaxis=axis("", type="category"),
    )
    words = ", ".join(
        f"{names.get(key, key)} {share:.0%}" for key, share in list(found.shares.items())[:_COLUMNS]
    )
    note = f"What tells the best of {found.points:,} points from the others (PED-ANOVA)."
    return Figure("importance", title, [bars], made, f"The most important parameters: {words}.", note)


def slices(facts: Facts) -> Figure:
    """Return the value of the first objective over each parameter."""
    title, parameters = "Slices", facts.leading_parameters(MOST_SLICES)
    groups = _drawn(facts)
    if not groups or not parameters:
        return Figure("slices", title, why_not=_why_not(groups))
    rows = math.ceil(len(parameters) / _COLUMNS)
    columns = min(_COLUMNS, len(parameters))
    data: list[Trace] = []
    made: Layout = layout(60 + 230 * rows, showlegend=False)
    values = [rounded(group.value) for group in groups]
    ranks = [group.rank for group in groups]
    for place, parameter in enumerate(parameters):
        row, column = divmod(place, _COLUMNS)
        positions = Positions.of(parameter, [group.overrides for group in facts.groups])
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [positions.value(group.overrides) for group in groups],
                "y": values,
                "xaxis": ordinal("x", place),
                "yaxis": ordinal("y", place),
                "text": [point_text(min(group.trials), {}, group.value) for group in groups],
                "hoverinfo": "text",
                "marker": {"color": ranks, "colorscale": COLOUR_SCALE, "size": 6, "opacity": 0.8},
            }
        )
        made[axis_key("x", place)] = positions.axis(
            anchor=ordinal("y", place), domain=_share(column, columns, 0.05)
        )
        made[axis_key("y", place)] = axis(
            facts.goals[0].metric if column == 0 else "",
            anchor=ordinal("x", place),
            domain=_share(rows - 1 - row, rows, 0.2),
            **({"matches": "y", "showticklabels": column == 0} if place else {}),
        )
    names = ", ".join(parameter.name for parameter in parameters)
    return Figure(
        "slices", title, data, made, f"The value over each of: {names}.", _slices_note(facts, groups)
    )


def contours(facts: Facts) -> list[Figure]:
    """Return the value of the first objective over pairs of the leading parameters.

    Few distinct values make a table of means; many numbers a surface, which is guessed between the points.
    """
    title, goals = "Contours", facts.goals
    leading = facts.leading_parameters(MOST_PAIRS)
    able = [group for group in facts.groups if group.feasible] or list(facts.groups)
    found = [
        made
        for at, pair in enumerate(combinations(leading, 2))
        if (made := _pair(f"contour-{at}", able, goals[0], pair)) is not None
    ]
    if found:
        return found
    return [Figure("contour-0", title, why_not=_NO_PAIR)]


def contour(facts: Facts, pair: tuple[Parameter, Parameter]) -> Figure:
    """Return the value of the first objective over two parameters."""
    able = [group for group in facts.groups if group.feasible] or list(facts.groups)
    made = _pair("contour-0", able, facts.goals[0], pair) if able else None
    return made or Figure("contour-0", "Contours", why_not=_NO_PAIR)


def _pair(name: str, groups: Sequence[Group], goal: Goal, pair: Sequence[Parameter]) -> Figure | None:
    both = [g for g in groups if all(parameter.value(g.overrides) is not None for parameter in pair)]
    across, up = (Positions.of(parameter, [group.overrides for group in both]) for parameter in pair)
    title = f"{goal.metric} over {pair[0].name} and {pair[1].name}"
    distinct = [{repr(parameter.value(g.overrides)) for g in both} for parameter in pair]
    if min(map(len, distinct)) < 2:  # noqa: PLR2004 - nothing varies
        return None
    if all(len(values) <= _FEW_VALUES for values in distinct):
        return _table(name, title, both, goal, (across, up))
    if across.is_numeric and up.is_numeric and len(both) > 3:  # noqa: PLR2004 - three points are no surface
        return _surface(name, title, both, goal, (across, up))
    return None


def _table(
    name: str, title: str, groups: Sequence[Group], goal: Goal, axes: tuple[Positions, Positions]
) -> Figure:
    cells: dict[tuple[str, str], list[float]] = {}
    for group in groups:
        at = (_word(axes[0], group), _word(axes[1], group))
        cells.setdefault(at, []).append(group.value)
    columns = _words(axes[0], groups)
    rows = _words(axes[1], groups)
    means = [[_mean(cells.get((column, row), ())) for column in columns] for row in rows]
    heat = {
        "type": "heatmap",
        "x": columns,
        "y": rows,
        "z": means,
        "hoverongaps": False,
        **_colours(goal),
    }
    made = layout(
        380,
        xaxis=axis(axes[0].parameter.name, type="category"),
        yaxis=axis(axes[1].parameter.name, type="category"),
    )
    return Figure(name, title, [heat], made, f"A table of {title}.", "Each field is the mean of its points.")


def _surface(
    name: str, title: str, groups: Sequence[Group], goal: Goal, axes: tuple[Positions, Positions]
) -> Figure:
    some = spread(groups, _MOST_NEIGHBOURS)
    xs, ys = ([axis_.place(group.overrides) or 0.0 for group in some] for axis_ in axes)
    across, up = _lattice(xs), _lattice(ys)
    values = [group.value for group in some]
    z = [[rounded(_guess(x, y, (xs, ys), values, (across, up))) for x in across] for y in up]
    surface = {
        "type": "contour",
        "x": [_back(axes[0], x) for x in across],
        "y": [_back(axes[1], y) for y in up],
        "z": z,
        "hoverinfo": "skip",
        "contours": {"coloring": "heatmap", "showlines": True},
        "line": {"width": 0.5},
        **_colours(goal),
    }
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": [axes[0].value(group.overrides) for group in some],
        "y": [axes[1].value(group.overrides) for group in some],
        "text": [point_text(min(g.trials), g.overrides, g.value) for g in some],
        "hoverinfo": "text",
        "marker": {"size": 5, "color": "rgba(20,24,32,0.75)", "line": {"color": "white", "width": 0.8}},
    }
    made = layout(380, showlegend=False, xaxis=axes[0].axis(), yaxis=axes[1].axis())
    note = "Between the points (dots) it is guessed: the nearer a point, the more it counts."
    if len(some) < len(groups):
        note += f" {len(some):,} of {len(groups):,} points are used, from all over the ranking."
    return Figure(name, title, [surface, dots], made, f"A map of {title}.", note)


def _guess(
    x: float,
    y: float,
    at: tuple[Sequence[float], Sequence[float]],
    values: Sequence[float],
    lattice: tuple[Sequence[float], Sequence[float]],
) -> float:
    """Return the mean of all values, each weighted by the inverse of its squared distance."""
    width, height = lattice[0][-1] - lattice[0][0], lattice[1][-1] - lattice[1][0]
    total = weights = 0.0
    for own_x, own_y, value in zip(*at, values, strict=True):
        weight = 1 / (((own_x - x) / width) ** 2 + ((own_y - y) / height) ** 2 + 1e-4)
        total += weight * value
        weights += weight
    return total / weights


def _lattice(places: Sequence[float]) -> list[float]:
    low, high = min(places), max(places)
    return [low + (high - low) * at / (_CELLS - 1) for at in range(_CELLS)]


def _back(positions: Positions, place: float) -> float:
    return 10**place if positions.is_log else place


def _colours(goal: Goal) -> Trace:
    bar = {"title": {"text": label(goal.metric, 20)}, "thickness": 12, "outlinewidth": 0}
    return {"colorscale": COLOUR_SCALE, "reversescale": goal.sign < 0, "colorbar": bar}


def _word(positions: Positions, group: Group) -> str:
    return label(positions.parameter.value(group.overrides))


def _words(positions: Positions, groups: Sequence[Group]) -> list[str]:
    order = sorted(groups, key=lambda group: positions.place(group.overrides) or 0.0)
    return list(dict.fromkeys(_word(positions, group) for group in order))


def _mean(values: Sequence[float]) -> float | None:
    return rounded(sum(value / len(values) for value in values)) if values else None


def _drawn(facts: Facts) -> list[Group]:
    best = list(facts.groups[: MOST_POINTS // 2])
    # The best on top of all others.
    return [*spread(facts.groups[len(best) :], MOST_POINTS - len(best)), *reversed(best)]


def _share(place: int, count: int, gap: float) -> list[float]:
    inner = gap if count > 1 else 0.0
    low, high = place / count, (place + 1) / count
    return [
        round(low + (inner / 2 if place else 0), 4),
        round(high - (inner / 2 if place < count - 1 else 0), 4),
    ]


def _why_not(groups: Sequence[Group]) -> str:
    return "No parameter varied among ranked points." if groups else "No point is ranked."


def _slices_note(facts: Facts, groups: Sequence[Group]) -> str:
    notes = ["The darker, the better the rank."]
    if len(groups) < len(facts.groups):
        notes.append(
            f"{len(groups):,} of {len(facts.groups):,} points are drawn: the best, others from all over."
        )
    more = len(facts.leading_parameters(MOST_SLICES + 1)) > MOST_SLICES
    notes += [f"Only {MOST_SLICES} parameters are shown."] if more else []
    return " ".join(notes)

"""Learning curves: what trials logged of the metric, step by step. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from airflows.report.facts import Curve, Facts
from airflows.report.figures.drawing import BLUE, GREY, ORANGE, Figure, Trace, axis, layout, rounded
from airflows.scores import is_sound

MOST_POINTS = 160
_TITLE = "Learning curves"
_BEST = 10

Points = Sequence[tuple[float, float]]


def curves(facts: Facts) -> Figure:
    """Return the metric of the first objective over its steps, the winner's curve on top."""
    drawable = [each for each in facts.curves.shown if len({step for step, _ in _sound(each.points)}) > 1]
    if not drawable:
        why = facts.curves.note or "No trial logged the metric at more than one step."
        return Figure("curves", _TITLE, why_not=why)
    ranks = {number: group.rank for group in facts.groups for number in group.trials}
    order = sorted(
        drawable, key=lambda each: (each.number == facts.best_trial, -ranks.get(each.number, 10**9))
    )
    data = [_line(each, facts.best_trial, ranks.get(each.number)) for each in order]
    metric = facts.goals[0].metric if facts.goals else "value"
    made = layout(380, xaxis=axis("step"), yaxis=axis(metric), showlegend=False)
    summary = f"{metric} over the steps of {len(drawable)} trials."
    if facts.best_trial in {each.number for each in drawable}:
        summary += f" That of the winner, trial {facts.best_trial}, is drawn bold."
    return Figure("curves", _TITLE, data, made, summary, _note(facts, drawable))


def thinned(points: Points, most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """Return at most so many points of a curve: of each stretch its lowest and its highest, and both ends."""
    sound = _sound(points)
    if len(sound) <= most:
        return sound
    stretches = (most - 2) // 2
    inner = sound[1:-1]
    kept = [sound[0]]
    for at in range(stretches):
        part = inner[at * len(inner) // stretches : (at + 1) * len(inner) // stretches]
        ends = {min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}
        kept += sorted(ends)
    return [*kept, sound[-1]]


def _sound(points: Points) -> list[tuple[float, float]]:
    return [point for point in points if is_sound(point[1])]


def _line(curve: Curve, best: int | None, rank: int | None) -> Trace:
    kept = thinned(curve.points)
    is_best = curve.number == best
    colour = ORANGE if is_best else BLUE if rank is not None and rank <= _BEST else GREY
    place = "not ranked" if rank is None else f"rank {rank}"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"trial {curve.number}, {place}",
        "x": [step for step, _ in kept],
        "y": [rounded(value) for _, value in kept],
        "line": {"color": colour, "width": 3 if is_best else 1.2},
        "opacity": 1.0 if is_best else 0.6,
    }


def _note(facts: Facts, drawable: Sequence[Curve]) -> str:
    notes = [facts.curves.note] if facts.curves.note else []
    notes.append(f"Orange is the winner, blue the best {_BEST} points.")
    if any(len(each.points) > MOST_POINTS for each in drawable):
        notes.append(f"Of each curve at most {MOST_POINTS} values are drawn: its extremes and its ends.")
    return " ".join(notes)

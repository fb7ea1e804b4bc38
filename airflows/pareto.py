"""Several objectives: the points that no other beats in all of them, and the best compromise. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from airflows.dominance import unbeaten
from airflows.ranking import Aim, Figures, Group, Ranking, Scored, Unranked, Winner, rank
from airflows.scores import Goal, is_sound

Row = Sequence[float]


def rank_front(aims: Sequence[Aim], trials: Sequence[Scored]) -> Ranking:
    """Rank the points of a sweep by several objectives: the Pareto front first, its knee before all.

    A point competes when each objective by itself would rank it. On the front are those that keep all
    constraints and that no other one beats: none is as good in all objectives and better in one. The knee
    is the point of the front nearest to the ideal, which has the best value of each objective on the front,
    with each objective in units of its range there. What is not on the front follows by the same distance,
    and what breaks a constraint comes last.

    Args:
        aims: the objectives.
        trials: `value` is that of the first one, `others` those of the further ones.
    """
    each = [rank(aim, [_of(trial, place) for trial in trials]) for place, aim in enumerate(aims)]
    by_point = [{group.point: group for group in ranking.ranked} for ranking in each]
    points = [point for point in by_point[0] if all(point in groups for groups in by_point)]
    merged = [_merged(aims, [groups[point] for groups in by_point]) for point in points]
    goals = [aim.goal for aim in aims]
    rows = [[figures.value for figures in group.objectives] for group in merged]
    able = [place for place, group in enumerate(merged) if group.feasible]
    front = {able[place] for place in pareto_front([rows[place] for place in able], goals)}
    far = distances(rows, sorted(front), goals)
    order = sorted(
        range(len(merged)),
        key=lambda at: (not merged[at].feasible, at not in front, far[at], min(merged[at].trials)),
    )
    ranked = tuple(
        replace(merged[at], rank=place, on_front=at in front, is_knee=bool(front) and place == 1)
        for place, at in enumerate(order, 1)
    )
    return Ranking(ranked, _unranked(each), None, each[0].rule, _knee(ranked, trials))


def pareto_front(rows: Sequence[Row], goals: Sequence[Goal]) -> list[int]:
    """Return the positions of the rows that no other row beats: none is as good in all and better in one.

    Rows that hold an unsound value are never in front. Of equal rows all are.
    """
    signs = [1.0 if goal == "minimize" else -1.0 for goal in goals]
    costs: dict[tuple[float, ...], list[int]] = {}
    for position, row in enumerate(rows):
        if all(is_sound(value) for value in row):
            cost = tuple(sign * value for sign, value in zip(signs, row, strict=True))
            costs.setdefault(cost, []).append(position)
    return sorted(position for cost in unbeaten(sorted(costs)) for position in costs[cost])


def distances(rows: Sequence[Row], front: Sequence[int], goals: Sequence[Goal]) -> list[float]:
    """Return how far each row is from the ideal of the front, in units of the front's ranges.

    Args:
        rows: sound values.
        front: positions of the rows on the front; empty means all.
        goals: which of two values is better, for each column.
    """
    squares: list[list[float]] = [[] for _ in rows]
    for column, goal in enumerate(goals):
        values = [row[column] for row in rows]
        own = [values[place] for place in front] or values
        # Where the front does not differ, the others may.
        low, high = next(
            ((min(some), max(some)) for some in (own, values) if some and min(some) < max(some)), (0.0, 0.0)
        )
        ideal = min(own, default=0.0) if goal == "minimize" else max(own, default=0.0)
        # Halved, since two finite values may be further apart than floats reach.
        unit = high / 2 - low / 2
        for found, value in zip(squares, values, strict=True):
            found.append((value / 2 - ideal / 2) / unit if unit else 0.0)
    return [math.hypot(*found) for found in squares]


def _of(trial: Scored, place: int) -> Scored:
    """Return a trial with the value of one of the objectives as the one that counts."""
    if place == 0:
        return trial
    value = trial.others[place - 1] if place <= len(trial.others) else None
    return replace(trial, value=value, raw="", step=None)


def _merged(aims: Sequence[Aim], groups: Sequence[Group]) -> Group:
    """Return the group of the first objective with what the others say."""
    notes = dict.fromkeys(note for group in groups for note in group.note.split("; ") if note)
    return replace(
        groups[0],
        separable_from_winner=None,
        p=None,
        p_adjusted=None,
        feasible=all(group.feasible for group in groups),
        note="; ".join(notes),
        objectives=tuple(
            Figures(aim.metric, group.value, group.mean, group.sd, group.n, group.ci95)
            for aim, group in zip(aims, groups, strict=True)
        ),
    )


def _unranked(each: Sequence[Ranking]) -> tuple[Unranked, ...]:
    """Return the trials that one objective at least does not rank, with the first reason."""
    why: dict[int, Unranked] = {}
    for ranking in each:
        for trial in ranking.unranked:
            why.setdefault(trial.number, trial)
    return tuple(why[number] for number in sorted(why))


def _knee(ranked: Sequence[Group], trials: Sequence[Scored]) -> Winner | None:
    if not (ranked and ranked[0].is_knee):
        return None
    number = min(ranked[0].trials)
    by_number: Mapping[int, Scored] = {trial.number: trial for trial in trials}
    return Winner(ranked[0], number, by_number[number].run_id, by_number[number].changed)

"""What one trial's curve says: which of its values the rules need, and whether it stops by itself. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from airflows.scores import MetricPoint, is_sound, shown
from airflows.stopping.setting import GROWTH, Setting, rungs

NEVER = 2**62


class Score(NamedTuple):
    """A value at a step."""

    step: int
    value: float


def series(points: Iterable[MetricPoint]) -> list[Score]:
    """Return a history by step; of two values for one step, the later one."""
    by_step: dict[int, float] = {}
    for point in sorted(points, key=lambda point: (point.step, point.at_ms)):
        by_step[point.step] = point.value
    return [Score(step, value) for step, value in by_step.items()]


def kept(setting: Setting, point: int, curve: Sequence[Score]) -> list[Score]:
    """Return what of a curve decides: the values at rungs, or those that stop the trial by itself.

    From what is kept of a longer curve the same follows for its beginning.
    """
    found: list[Score] = []
    if setting.compares:
        found = _at_rungs(setting, point, curve)
    elif setting.method == "patience":
        found = list(_out_of_patience(setting, curve))
    elif setting.method == "threshold":
        found = [score for score in curve if _is_beyond(setting, score)][:1]
    return found


def next_step(setting: Setting, point: int, curve: Sequence[Score]) -> int:
    """Return the step from which on a longer history would say more than this one."""
    last = curve[-1].step if curve else -1
    if setting.compares:
        return next((rung for rung in rungs(setting, point) if rung > last), NEVER)
    if setting.method == "patience":
        best = _best(setting, curve)
        waits = (0 if best is None else best.step) + setting.steps
        return max(waits, setting.min_steps, last + 1)
    if setting.method == "threshold":
        return max(setting.after_steps, last + 1, math.ceil(last * GROWTH))
    return NEVER


def on_its_own(setting: Setting, scores: Sequence[Score]) -> tuple[Score, str] | None:
    """Return (where, why) a trial stops whatever others do; None when it does not.

    Args:
        setting: the rule.
        scores: what was kept of its curve, by step.
    """
    if setting.nan:
        for score in scores:
            if not is_sound(score.value):
                return score, f"{setting.metric} is {shown(score.value)}"
    if setting.method == "threshold":
        for score in scores:
            if _is_beyond(setting, score):
                bar = f"{setting.worse_than:g} (stop.worse_than)"
                return score, f"{number(score.value)} is {setting.worse} {bar}"
    if setting.method == "patience" and (found := _out_of_patience(setting, scores)):
        best, last = found
        steps = last.step - best.step
        return last, f"no better than {number(best.value)} of step {best.step} for {steps} steps"
    return None


def number(value: float) -> str:
    """Return a value for people."""
    return f"{value:.6g}" if is_sound(value) else shown(value)


def as_good_as(setting: Setting, value: float) -> float:
    """Return a number that is less for better values, and largest for what is no number."""
    return setting.sign * value if is_sound(value) else math.inf


def _at_rungs(setting: Setting, point: int, curve: Sequence[Score]) -> list[Score]:
    found: dict[int, Score] = {}
    wanted = rungs(setting, point)
    rung = next(wanted, NEVER)
    best = math.nan
    for score in curve:
        if is_sound(score.value) and not setting.sign * score.value >= setting.sign * best:
            best = score.value
        if score.step < rung:
            continue
        # Of a curve that has been NaN already there is no good value any more, unless that is allowed.
        counts = best if setting.takes_best and is_sound(score.value) else score.value
        found[score.step] = Score(score.step, counts)
        while rung <= score.step:
            rung = next(wanted, NEVER)
    return list(found.values())


def _is_beyond(setting: Setting, score: Score) -> bool:
    if score.step < setting.after_steps:
        return False
    return as_good_as(setting, score.value) > setting.sign * setting.worse_than


def _improves(setting: Setting, score: Score, best: Score | None) -> bool:
    if not is_sound(score.value):
        return False
    if best is None:
        return True
    return setting.sign * (best.value - score.value) > setting.min_delta


def _best(setting: Setting, curve: Sequence[Score]) -> Score | None:
    best: Score | None = None
    for score in curve:
        if _improves(setting, score, best):
            best = score
    return best


def _out_of_patience(setting: Setting, curve: Sequence[Score]) -> tuple[Score, Score] | tuple[()]:
    """Return (the best, where patience ended); nothing while there is hope."""
    best: Score | None = None
    for score in curve:
        if _improves(setting, score, best):
            best = score
        elif best is not None and score.step - best.step >= setting.steps and score.step >= setting.min_steps:
            return best, score
    return ()

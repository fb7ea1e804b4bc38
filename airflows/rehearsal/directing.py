"""When a trial of a rehearsal is killed, and when it has shown enough. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from airflows.engine.metricnames import Unseen
from airflows.rehearsal.evidence import Curves, steps_of
from airflows.rehearsal.script import Script
from airflows.scores import MetricPoint
from airflows.times import human_duration

# Without steps, so many values count as having come further.
_VALUES_WITHOUT_STEPS = 3
_TO_COMPARE = 2


@dataclass(frozen=True, slots=True)
class Playing:
    """A trial that runs now.

    Attributes:
        number: its number.
        attempt: which attempt it is.
        seconds: how long that has run.
        checkpoint: its newest complete checkpoint, empty for none.
        is_newer: that was made by this attempt.
        before: what earlier attempts have logged.
        now: what this attempt has logged.
    """

    number: int
    attempt: int
    seconds: float
    checkpoint: str = ""
    is_newer: bool = False
    before: Curves = field(default_factory=dict)
    now: Curves = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cue:
    """What is to be done with a trial, and why.

    Attributes:
        words: why, for people.
        resumes: it is killed, and resumed by another attempt; else it ends.
    """

    words: str
    resumes: bool = False


def cue(script: Script, trial: Playing, *, logs: bool = True) -> Cue | None:
    """Return what is to be done now; None to let it run.

    Args:
        script: how the rehearsal goes.
        trial: as it stands.
        logs: there is an MLflow, so what it logs is known.
    """
    if trial.seconds >= script.timeout_s:
        return Cue(f"the rehearsal gives an attempt {human_duration(script.timeout_s)}")
    if trial.number >= script.branches:
        return Cue(f"logged {script.steps} steps, to be compared") if _has_logged(script, trial.now) else None
    if trial.attempt == 0:
        return _first(trial, logs=logs)
    if trial.is_newer if not logs else _has_gone_on(script, trial):
        return Cue("the rehearsal has seen it go on")
    return None


def _first(trial: Playing, *, logs: bool) -> Cue | None:
    if not trial.checkpoint or (logs and not wants_checkpoint(trial)):
        return None
    last = max((steps_of(points)[-1] for points in trial.now.values()), default=None)
    where = "" if last is None else f" after step {last}"
    return Cue(f"killed by the rehearsal{where}, to see it resume from {trial.checkpoint}", resumes=True)


def wants_checkpoint(trial: Playing) -> bool:
    """Whether it has come far enough to be killed, should there be a checkpoint.

    It has logged two steps: one that begins anew would log the first of them again.
    """
    return any(
        len(steps_of(points)) >= _TO_COMPARE or len(points) >= _VALUES_WITHOUT_STEPS
        for points in trial.now.values()
    )


def _has_logged(script: Script, curves: Curves) -> bool:
    return any(max(len(steps_of(points)), _repeats(points)) >= script.steps for points in curves.values())


def _repeats(points: Sequence[MetricPoint]) -> int:
    """Return how many values there are when all have the same step."""
    return len(points) if len(steps_of(points)) == 1 else 0


def _has_gone_on(script: Script, trial: Playing) -> bool:
    """Whether the resumed attempt has logged enough new steps, and the metrics that decide were seen."""
    unseen = Unseen(script.metrics)
    unseen.look({*trial.before, *trial.now}, has_ended=False)
    if not (unseen.is_settled or unseen.words):
        return False
    return any(_new_steps(trial, name) >= script.steps for name in trial.now)


def _new_steps(trial: Playing, name: str) -> int:
    points, before = trial.now[name], steps_of(trial.before.get(name, ()))
    steps = steps_of(points)
    if not before or steps[0] <= before[0]:
        # It has begun anew, or logs no steps: that will not get better.
        return max(len(steps), _repeats(points))
    return sum(step > before[-1] for step in steps)

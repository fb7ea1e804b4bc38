"""What a rehearsal says about memory, time and price. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from airflows.preview import accelerator_hours, accelerators
from airflows.rehearsal.casting import Cast
from airflows.rehearsal.evidence import Curves, TrialSeen, steps_of
from airflows.rehearsal.rows import Mark, Row
from airflows.sweepfile import LoadedSweep
from airflows.times import human_duration
from airflows.trial import State

_MANY_STEPS = 1000
_UNKNOWN = "not known here"


@dataclass(frozen=True, slots=True)
class Estimate:
    """What was measured, None where it is not known.

    Attributes:
        host_bytes: most memory of the processes of one trial.
        gpu_bytes: most GPU memory of one trial.
        seconds_per_step: between two steps.
        startup_s: from the start of an attempt to the first value it logs.
        trial_s: how long a whole trial takes.
        accelerator_hours: what the sweep takes, one attempt each.
    """

    host_bytes: int | None = None
    gpu_bytes: int | None = None
    seconds_per_step: float | None = None
    startup_s: float | None = None
    trial_s: float | None = None
    accelerator_hours: float | None = None


def estimate(
    sweep: LoadedSweep, cast: Cast, trials: Mapping[int, TrialSeen], full_steps: int | None
) -> Estimate:
    """Return what the trials tell of a whole sweep.

    Args:
        sweep: the sweep.
        cast: which trials there were.
        trials: what was seen of each by number.
        full_steps: steps of a whole trial, None where nobody knows.
    """
    seen = [trials[number] for number in range(len(cast.branches)) if number in trials]
    per_step = _middle(_seconds_per_step(curves) for trial in seen for curves in (trial.first, trial.later))
    startup = _middle(_startup(trial) for trial in seen)
    whole = [t.seconds for t in seen if t.state is State.SUCCEEDED and len(t.attempts) == 1]
    trial_s = None
    if full_steps is not None and per_step is not None:
        trial_s = (startup or 0.0) + per_step * full_steps
    elif len(whole) == len(seen):
        trial_s = _middle(whole)
    return Estimate(
        max((t.host_bytes for t in trials.values() if t.host_bytes is not None), default=None),
        max((t.gpu_bytes for t in trials.values() if t.gpu_bytes is not None), default=None),
        per_step,
        startup,
        trial_s,
        None if trial_s is None else _hours(sweep, trial_s),
    )


def _hours(sweep: LoadedSweep, trial_s: float) -> float | None:
    """Return what a sweep takes if each trial takes so many seconds; None when they cannot be counted."""

    def hours(tree: Mapping[str, Any]) -> float | None:
        count = accelerators(tree)
        return None if count is None else count * trial_s / 3600

    return accelerator_hours(sweep, hours=hours)


def estimate_rows(sweep: LoadedSweep, known: Estimate) -> list[Row]:
    """Return the rows about memory, time and price."""
    memory = f"on the host {_bytes(known.host_bytes)}, on GPUs {_bytes(known.gpu_bytes)}"
    rows = [Row("memory", Mark.INFO, memory)]
    if known.seconds_per_step is not None:
        began = "" if known.startup_s is None else f", {known.startup_s:.3g} s to the first value"
        rows.append(Row("speed", Mark.INFO, f"{known.seconds_per_step:.3g} s per step{began}"))
    return [*rows, _price(sweep, known)]


def _price(sweep: LoadedSweep, known: Estimate) -> Row:
    limit = sweep.spec.limits.accelerator_hours
    if known.trial_s is not None and known.accelerator_hours is not None:
        words = f"{known.accelerator_hours:.3g} accelerator-hours, {human_duration(known.trial_s)} a trial"
        if limit is not None and known.accelerator_hours > limit:
            return Row("whole sweep", Mark.WARN, f"{words}: more than limits.accelerator_hours, {limit:g}")
        return Row("whole sweep", Mark.INFO, words)
    per_step = known.seconds_per_step
    some = None if per_step is None else _hours(sweep, per_step * _MANY_STEPS)
    if some is None:
        return Row("whole sweep", Mark.INFO, _UNKNOWN)
    words = f"{some:.3g} accelerator-hours if a trial has {_MANY_STEPS:,} steps; --full-steps says how many"
    return Row("whole sweep", Mark.INFO, words)


def _seconds_per_step(curves: Curves) -> float | None:
    """Return the seconds between two steps of the metric that has most of them."""
    best: tuple[int, float] | None = None
    for points in curves.values():
        steps = steps_of(points)
        if len(steps) > 1 and (best is None or len(steps) > best[0]):
            first = min(point.at_ms for point in points if point.step == steps[0])
            last = max(point.at_ms for point in points if point.step == steps[-1])
            best = len(steps), max(0.0, (last - first) / 1000) / (steps[-1] - steps[0])
    return None if best is None else best[1]


def _startup(trial: TrialSeen) -> float | None:
    began = trial.attempts[0].started_at if trial.attempts else None
    first = min((point.at_ms for points in trial.first.values() for point in points), default=None)
    return None if began is None or first is None else max(0.0, first / 1000 - began)


def _middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _bytes(count: int | None) -> str:
    if count is None:
        return _UNKNOWN
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"

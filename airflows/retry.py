"""Whether a failed attempt is followed by another, and when. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from airflows.failures import Verdict
from airflows.trial import Event, EventKind, Reason, Trial

_LONGEST_WAIT_S = 600.0
_JITTER = 0.2


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What may be tried again.

    Attributes:
        max: failures of the program that are followed by another attempt.
        max_without_progress: failures of the place in a row while the checkpoint stands still.
        wait_s: seconds before the first retry; doubled each time, at most ten minutes.
        relieves: a trial that ran out of memory would be tried again with other values.
        is_final: no failure of any kind is followed by another attempt, whatever the trial's progress.
        suspects_host: no trial has done well on its host yet, though some did elsewhere, so the same error
            twice may be the host's.
    """

    max: int
    max_without_progress: int
    wait_s: float
    relieves: bool = False
    is_final: bool = False
    suspects_host: bool = False


NO_RETRIES = RetryPolicy(max=0, max_without_progress=0, wait_s=0.0, is_final=True)
"""Where whoever runs the attempts tries again by itself."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a trial was after an attempt.

    Attributes:
        checkpoint: path of the newest complete checkpoint, empty for none.
        step: its step, -1 for none.
        metric_step: the last step at which the objective's metric was logged, -1 for none.
    """

    checkpoint: str = ""
    step: int = -1
    metric_step: int = -1

    def is_beyond(self, trial: Trial) -> bool:
        """Whether that is further than before the attempt: a newer checkpoint, or a later step."""
        return self.has_newer_checkpoint(trial) or self.has_later_step(trial)

    def has_later_step(self, trial: Trial) -> bool:
        """Whether the metric was logged at a later step than before the attempt."""
        return self.metric_step > (-1 if trial.value_step is None else trial.value_step)

    def has_newer_checkpoint(self, trial: Trial) -> bool:
        """Whether the checkpoint is newer than the one that the trial had before the attempt."""
        return bool(self.checkpoint) and (
            self.step > trial.checkpoint_step
            or (self.step == trial.checkpoint_step and self.checkpoint != trial.checkpoint)
        )


NO_PROGRESS = Progress()


def after_failure(
    trial: Trial, verdict: Verdict, progress: Progress, policy: RetryPolicy, now: float
) -> Event:
    """Return the event that follows a failed attempt: RETRIED with its wait, or FAILED with why."""
    advanced = progress.is_beyond(trial)
    counted = _count(trial, verdict, advanced=advanced)
    why_not = _why_not(trial, counted, verdict, policy, advanced=advanced)
    is_newer = progress.has_newer_checkpoint(trial)
    changes: dict[str, Any] = {
        "errors": counted.errors,
        "stalled": counted.stalled,
        "checkpoint": progress.checkpoint if is_newer else trial.checkpoint,
        "checkpoint_step": progress.step if is_newer else trial.checkpoint_step,
    }
    if progress.has_later_step(trial):
        changes["value_step"] = progress.metric_step
    is_own = not (verdict.reason.is_infrastructure or verdict.reason is Reason.DUPLICATE)
    is_relieved = verdict.reason is Reason.OUT_OF_MEMORY and not why_not
    if is_own and not is_relieved and not (verdict.reason is Reason.TIMED_OUT and advanced):
        # What the place does to a run is no mistake that the next attempt or other trials would repeat.
        changes["signature"] = verdict.signature
    detail = f"{verdict.reason.sentence} {verdict.message}".strip()
    if why_not:
        detail = f"{detail.rstrip('.')}; {why_not}"
        return Event(EventKind.FAILED, now, verdict.reason, detail, changes=changes)
    changes["not_before"] = now + wait_s(trial, policy)
    return Event(EventKind.RETRIED, now, verdict.reason, detail, changes=changes)


def _count(trial: Trial, verdict: Verdict, *, advanced: bool) -> Trial:
    stalled = 0 if advanced else trial.stalled
    if verdict.reason is Reason.DUPLICATE:
        return trial
    if verdict.reason.is_infrastructure or verdict.reason is Reason.TIMED_OUT:
        return replace(trial, stalled=stalled + (not advanced))
    return replace(trial, stalled=stalled, errors=trial.errors + 1)


def _why_not(trial: Trial, counted: Trial, verdict: Verdict, policy: RetryPolicy, *, advanced: bool) -> str:
    if policy.is_final:
        return "not tried again here: retries are left to the service"
    why = ""
    match verdict.reason:
        case Reason.INVALID | Reason.CODE_DAMAGED:
            why = "not retried"
        case Reason.DUPLICATE:
            # Another attempt would write into the checkpoints of a copy that may still run.
            why = "not retried while the other copy may run"
        case Reason.OUT_OF_MEMORY if not policy.relieves:
            why = "not retried unchanged"
        case Reason.TIMED_OUT if not advanced:
            why = "not retried: it had not come any further"
        case reason if reason.is_infrastructure or reason is Reason.TIMED_OUT:
            if counted.stalled > policy.max_without_progress:
                why = f"given up after {counted.stalled} in a row without progress"
        case _ if counted.errors > policy.max:
            why = f"given up after {counted.errors} failed attempts" if policy.max else "no retries allowed"
        case _ if _is_repeated(trial, verdict) and not (advanced or policy.suspects_host):
            why = "not tried again: the same error twice without progress"
    return why


def _is_repeated(trial: Trial, verdict: Verdict) -> bool:
    return bool(trial.errors) and verdict.signature == trial.signature


def wait_s(trial: Trial, policy: RetryPolicy) -> float:
    """Return the seconds before the trial's next attempt: doubled each time, less jitter by its own id."""
    longest = min(policy.wait_s * 2.0 ** min(trial.attempt, 20), _LONGEST_WAIT_S)
    jitter = random.Random(f"{trial.id}.{trial.attempt}").uniform(0, _JITTER)  # noqa: S311
    return longest * (1 - jitter)

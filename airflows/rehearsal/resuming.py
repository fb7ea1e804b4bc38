"""Whether a killed trial went on from its checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from airflows.rehearsal.evidence import TrialSeen, steps_of
from airflows.rehearsal.rows import Mark, Row
from airflows.times import human_duration
from airflows.trial import State

_CHECK = "resumes"
_TO_COMPARE = 2
_KILLED = frozenset({137, -9})


def resuming(
    trial: TrialSeen, branch: str, metrics: Sequence[str], *, logs: bool, required: bool
) -> list[Row]:
    """Return what a trial shows about checkpoints, and about ending when it is asked to.

    Args:
        trial: one that was to be killed and resumed.
        branch: what to call it.
        metrics: those that decide, which are looked at first.
        logs: there is an MLflow.
        required: what does not show that a trial resumes is a no-go.
    """
    if len(trial.attempts) > 1:
        mark, words = _resumed(trial, metrics, logs=logs)
        rows = [_ending(trial, branch)]
    else:
        mark, words = _not_killed(trial)
        rows = []
    if required and mark is Mark.WARN:
        mark = Mark.FAIL
    return [Row(_CHECK, mark, words, branch), *rows]


def _not_killed(trial: TrialSeen) -> tuple[Mark, str]:
    ran = human_duration(trial.seconds)
    if trial.state is State.FAILED:
        return Mark.WARN, "not shown: it failed before"
    if trial.state is State.SUCCEEDED:
        saved = f"it saved {_name(trial.checkpoint)}" if trial.checkpoint else "it saved no checkpoint"
        return Mark.WARN, f"not shown: it ended by itself after {ran}, before it could be killed; {saved}"
    if not trial.checkpoint:
        return Mark.WARN, f"no checkpoint in {ran}: a preempted trial starts from 0"
    return Mark.WARN, f"not shown: it saved {_name(trial.checkpoint)}, but did not log two steps in {ran}"


def _resumed(trial: TrialSeen, metrics: Sequence[str], *, logs: bool) -> tuple[Mark, str]:
    given = trial.attempts[1].resumed_from
    source = f"from {_name(given)}" if given else "again"
    if trial.state is State.FAILED:
        return Mark.FAIL, f"the attempt that was resumed {source} failed: {trial.message}"
    if not logs:
        newest = f" (by now it has {trial.checkpoint})" if trial.checkpoint else ""
        return Mark.WARN, f"started {source}{newest}; without MLflow it cannot be seen whether it went on"
    if not trial.later:
        return Mark.FAIL, f"logged nothing after it was resumed {source}"
    common = [name for name in trial.later if name in trial.first]
    if not common:
        if trial.first:
            return Mark.FAIL, f"resumed {source}, it logs other metrics than before: {', '.join(trial.later)}"
        # The later attempt's values have taken the place of all of the first one's.
        return Mark.FAIL, f"began again from the start: it logged every step a second time (started {source})"
    return _steps(trial, _telling(trial, common, metrics), source)


def _telling(trial: TrialSeen, common: Sequence[str], metrics: Sequence[str]) -> str:
    """Return the metric that tells most: one that decides if it has several steps, else that with most."""

    def weight(name: str) -> tuple[bool, int]:
        steps = len(steps_of(trial.first[name]))
        return name in metrics and steps >= _TO_COMPARE, steps

    return max(common, key=weight)


def _steps(trial: TrialSeen, metric: str, source: str) -> tuple[Mark, str]:
    before, after = steps_of(trial.first[metric]), steps_of(trial.later[metric])
    killed, on = before[-1], after[0]
    if before[0] == killed == on:
        return Mark.WARN, f"started {source}, but {metric} has no steps that tell whether it went on"
    if on <= before[0]:
        return Mark.FAIL, f"began again at step {on} (killed at step {killed}, started {source})"
    words = f"killed at step {killed}, went on {source} at step {on}"
    if on <= killed:
        words += f"; {metric} of steps {on} to {killed} was logged twice"
    return Mark.OK, f"{words}, to step {after[-1]}"


def _ending(trial: TrialSeen, branch: str) -> Row:
    first = trial.attempts[0]
    if first.asked_at is None or first.ended_at is None:
        return Row("ends on SIGTERM", Mark.INFO, "the place took it away before it was asked", branch)
    took = max(0.0, first.ended_at - first.asked_at)
    if first.exit_code in _KILLED:
        words = f"it did not end when asked, and was killed after {took:.0f} s: it cannot save before that"
        return Row("ends on SIGTERM", Mark.WARN, words, branch)
    return Row("ends on SIGTERM", Mark.OK, f"it ended {took:.0f} s after it was asked", branch)


def _name(path: str) -> str:
    return PurePosixPath(path).name

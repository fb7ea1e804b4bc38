"""What a rehearsal shows: one row for each thing that can go wrong with a sweep. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from airflows.domains import likeness
from airflows.engine.metricnames import Unseen
from airflows.ids import canonical_json
from airflows.rehearsal.casting import Cast, Probe
from airflows.rehearsal.comparing import comparable, compared
from airflows.rehearsal.evidence import TrialSeen, steps_of
from airflows.rehearsal.resuming import resuming
from airflows.rehearsal.rows import Mark, Row
from airflows.scores import MetricPoint, is_sound, shown
from airflows.times import human_duration
from airflows.trial import State

_SHOWN_METRICS = 6


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a sweep needs of its program.

    Attributes:
        metrics: those that decide.
        bounded: those that constraints look at: they must be there, whatever they are.
        needs_steps: a stopping rule goes by steps.
        has_file: there are parameters, so there is a file of them.
        logs: there is an MLflow.
        requires_checkpoint: that a trial resumes must be shown.
        excused: keys that need not change anything in the first steps.
    """

    metrics: Sequence[str] = ()
    bounded: Sequence[str] = ()
    needs_steps: bool = False
    has_file: bool = True
    logs: bool = True
    requires_checkpoint: bool = False
    excused: Collection[str] = ()


def judge(cast: Cast, trials: Mapping[int, TrialSeen], wanted: Wanted) -> list[Row]:
    """Return the rows of the table.

    Args:
        cast: which trials there were to be.
        trials: what was seen of each by number.
        wanted: what the sweep needs.
    """
    rows: list[Row] = []
    for number, branch in enumerate(cast.branches):
        trial = trials.get(number)
        if trial is None or not (trial.attempts or trial.state is State.FAILED):
            rows.append(Row("runs", Mark.FAIL, "it was never started", branch))
            continue
        rows.append(_runs(trial, branch))
        rows += _metrics(trial, branch, wanted)
        rows += resuming(trial, branch, wanted.metrics, logs=wanted.logs, required=wanted.requires_checkpoint)
    if cast.branches_left:
        every = len(cast.branches) + cast.branches_left
        words = f"{cast.branches_left} of {every} were not rehearsed; --branches {every} takes all"
        rows.append(Row("branches", Mark.WARN, words))
    keys = list(_keys(cast, trials, wanted))
    return [*rows, *_again(cast, trials, wanted), *_file(trials, keys, wanted), *keys]


def is_go(rows: Sequence[Row]) -> bool:
    """Whether nothing speaks against starting the sweep."""
    return all(row.mark is not Mark.FAIL for row in rows)


def _runs(trial: TrialSeen, branch: str) -> Row:
    ran = human_duration(trial.seconds)
    if trial.state is State.FAILED:
        return Row("runs", Mark.FAIL, trial.message or "it failed", branch)
    if trial.state is State.CANCELLED:
        return Row("runs", Mark.FAIL, "it was cancelled", branch)
    if trial.state is State.SUCCEEDED:
        return Row("runs", Mark.OK, f"{ran}, to its own end", branch)
    if not (trial.own_curves or trial.checkpoint):
        words = f"{ran} without a value or a checkpoint, then it was ended; --timeout gives it longer"
        return Row("runs", Mark.FAIL, words, branch)
    return Row("runs", Mark.OK, f"{ran}, then it was ended", branch)


def _again(cast: Cast, trials: Mapping[int, TrialSeen], wanted: Wanted) -> Iterator[Row]:
    """Yield how the trials went that had the same values once more."""
    for beside, number in cast.controls.items():
        branch = cast.branches[beside] if beside < len(cast.branches) else ""
        trial = trials.get(number)
        if trial is None or not (trial.attempts or trial.state is State.FAILED):
            yield Row("runs again", Mark.FAIL, "it was never started", branch)
        elif trial.state in {State.FAILED, State.CANCELLED}:
            yield Row("runs again", Mark.FAIL, trial.message or f"it is {trial.state}", branch)
        elif wanted.logs and not trial.own_curves:
            yield Row("runs again", Mark.FAIL, _nothing(trial), branch)
        else:
            words = f"with the same values once more, {human_duration(trial.seconds)}"
            yield Row("runs again", Mark.OK, words, branch)


def _nothing(trial: TrialSeen) -> str:
    longer = "; --timeout gives it longer" if trial.state is State.STOPPED else ""
    return f"it logged nothing in {human_duration(trial.seconds)}{longer}"


# Metrics


def _metrics(trial: TrialSeen, branch: str, wanted: Wanted) -> Iterator[Row]:
    if not wanted.logs:
        yield Row("metric", Mark.WARN, "MLflow is off, so nothing is known of metrics", branch)
        return
    if not wanted.metrics:
        names = sorted(trial.own_curves)
        more = f" and {len(names) - _SHOWN_METRICS} more" if len(names) > _SHOWN_METRICS else ""
        told = ", ".join(names[:_SHOWN_METRICS]) or "nothing"
        yield Row("metric", Mark.INFO, f"the sweep has no objective; logged: {told}{more}", branch)
    for metric in dict.fromkeys([*wanted.metrics, *wanted.bounded]):
        points = trial.own_curves.get(metric)
        if points and metric in wanted.metrics:
            yield from _values(metric, points, branch, needs_steps=wanted.needs_steps)
        elif points:
            yield from _values(metric, points, branch, needs_steps=False)
        else:
            yield Row(f"metric {metric}", Mark.FAIL, _unseen(metric, trial), branch)


def _unseen(metric: str, trial: TrialSeen) -> str:
    unseen = Unseen([metric])
    unseen.look(set(trial.own_curves), has_ended=True)
    words = unseen.words.removeprefix(f"{metric} ")
    if trial.state is State.STOPPED:
        words += f" (in {human_duration(trial.seconds)}; --timeout gives it longer)"
    return words


def _values(metric: str, points: Sequence[MetricPoint], branch: str, *, needs_steps: bool) -> Iterator[Row]:
    check, steps = f"metric {metric}", steps_of(points)
    bad = next((point for point in points if not is_sound(point.value)), None)
    if bad is not None:
        yield Row(check, Mark.FAIL, f"it is {shown(bad.value)} at step {bad.step}", branch)
        return
    last = max(points, key=lambda point: (point.step, point.at_ms))
    if len(steps) == 1 and len(points) > 1:
        mark = Mark.FAIL if needs_steps else Mark.WARN
        words = f"logged {len(points)} times, always at step {steps[0]}: give log_metric a step"
        yield Row(check, mark, words, branch)
        return
    where = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    yield Row(check, Mark.OK, f"logged at {where}, {last.value:.6g} at last", branch)


# Keys


class _Effect(Enum):
    """What a changed key did."""

    SEEN = auto()
    NONE = auto()
    UNTOLD = auto()
    BROKEN = auto()


_MARKS = {
    _Effect.SEEN: Mark.OK,
    _Effect.NONE: Mark.FAIL,
    _Effect.UNTOLD: Mark.WARN,
    _Effect.BROKEN: Mark.FAIL,
}


def _keys(cast: Cast, trials: Mapping[int, TrialSeen], wanted: Wanted) -> Iterator[Row]:
    for probe in cast.probes:
        effect, words = _key(probe, trials, _alike(cast, probe, trials), wanted)
        mark = _MARKS[effect]
        if effect is _Effect.NONE and probe.key in wanted.excused:
            mark = Mark.INFO
        if effect is _Effect.SEEN and (others := _others(cast, probe)):
            mark, words = Mark.WARN, f"{words}, but changed together with {', '.join(others)}"
        change = f"{_value(probe.before)} -> {_value(probe.after)}"
        yield Row(f"key {probe.key}", mark, f"{change}: {words}", key=probe.key)
    for key, why in cast.keys_left.items():
        # What the program would see, and nobody knows whether it does, is worth a warning.
        mark = Mark.INFO if key in cast.out_of_sight else Mark.WARN
        yield Row(f"key {key}", mark, f"not tried: {why}", key=key)


def _others(cast: Cast, probe: Probe) -> list[str]:
    """Return the keys besides its own in which a trial differs from the one that it is compared with."""
    one, other = cast.rows[probe.beside], cast.rows[probe.trial]
    own = probe.key.split(", ")
    return [
        key
        for key in dict.fromkeys([*one, *other])
        if key not in own and not (key in one and key in other and likeness(one[key]) == likeness(other[key]))
    ]


def _alike(cast: Cast, probe: Probe, trials: Mapping[int, TrialSeen]) -> Mapping[str, Collection[int]]:
    """Return the metrics, and their steps, that come out the same twice in a probe's branch."""
    first, again = trials.get(probe.beside), trials.get(cast.controls.get(probe.beside, -1))
    return {} if first is None or again is None else comparable(first.first, again.first)


def _key(
    probe: Probe,
    trials: Mapping[int, TrialSeen],
    alike: Mapping[str, Collection[int]],
    wanted: Wanted,
) -> tuple[_Effect, str]:
    trial, beside = trials.get(probe.trial), trials.get(probe.beside)
    if trial is not None and trial.state in {State.FAILED, State.CANCELLED}:
        return _Effect.BROKEN, f"the trial is {trial.state}: {trial.message}".rstrip(": ")
    if trial is None or beside is None or not trial.attempts:
        return _Effect.BROKEN, "the trial was never started"
    if not wanted.logs:
        return _Effect.UNTOLD, "cannot be told without MLflow"
    if beside.own_curves and not trial.own_curves:
        return _Effect.BROKEN, _nothing(trial)
    return _changed(trial, beside, alike, wanted)


def _changed(
    trial: TrialSeen, beside: TrialSeen, alike: Mapping[str, Collection[int]], wanted: Wanted
) -> tuple[_Effect, str]:
    everything = compared(beside.first, trial.first)
    if not everything.metrics:
        return _Effect.UNTOLD, "cannot be told: the two trials have logged nothing at the same steps"
    if not everything.difference:
        return _Effect.NONE, f"nothing that is logged has changed ({_steps(everything.steps)})"
    steady = compared(beside.first, trial.first, alike)
    if steady.difference:
        return _Effect.SEEN, steady.difference
    if decide := sorted(steady.metrics & set(wanted.metrics)):
        # What differs besides, such as times, differs between any two runs.
        return _Effect.NONE, f"{', '.join(decide)} has not changed ({_steps(steady.steps)})"
    return _Effect.UNTOLD, "cannot be told: what is logged differs between two runs with the same values, too"


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count != 1)} compared"


def _value(value: object) -> str:
    return value if isinstance(value, str) and value else canonical_json(value)


def _file(trials: Mapping[int, TrialSeen], keys: Sequence[Row], wanted: Wanted) -> Iterator[Row]:
    if not wanted.has_file:
        return
    seen = {trial.was_read for trial in trials.values()}
    if True in seen:
        yield Row("parameters file", Mark.OK, "$HYPERPARAMETERS_PATH is read")
    elif False not in seen:
        yield Row("parameters file", Mark.INFO, "whether $HYPERPARAMETERS_PATH is read cannot be seen here")
    elif any(row.mark is Mark.OK for row in keys):
        words = "$HYPERPARAMETERS_PATH is not read; values get to the program another way"
        yield Row("parameters file", Mark.INFO, words)
    elif any(row.mark is Mark.FAIL and _is_parameter(row.key) for row in keys):
        yield Row("parameters file", Mark.FAIL, "$HYPERPARAMETERS_PATH is never read: the program ignores it")
    else:
        yield Row("parameters file", Mark.WARN, "$HYPERPARAMETERS_PATH is never read")


def _is_parameter(keys: str) -> bool:
    return any(key.startswith("parameters.") for key in keys.split(", "))

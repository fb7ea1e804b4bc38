"""What the tracker takes and hands out. Plain values, no MLflow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflows.trial import State


@dataclass(frozen=True, slots=True)
class SweepRun:
    """A sweep, as its parent run is made of it.

    Attributes:
        sweep: the sweep's id.
        experiment: the MLflow experiment's name.
        source: sweep.yaml as effective, kept as an artifact.
        tags: the file's `tracking.tags`, set on the parent and on every trial.
        owner: what tells this ledger's runs from those of another ledger with the same sweep.
        definition: digest of what makes the sweep's points what they are.
        instance: what tells it from other sweeps of that definition.
    """

    sweep: str
    experiment: str
    source: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""
    definition: str = ""
    instance: str = ""


@dataclass(frozen=True, slots=True)
class OpenedSweep:
    """Where a sweep's runs are."""

    experiment_id: str
    parent_run_id: str


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A trial, as its run is made of it.

    Attributes:
        number: the trial's number.
        name: the run's name.
        overrides: the trial's, by dotted key.
        parameters: `parameters` of its effective train.yaml.
        point: the number of its point.
        replicate: which of the point's replicates it is.
    """

    number: int
    name: str
    overrides: Mapping[str, Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    point: int = 0
    replicate: int = 0


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A trial that ended, as its run is closed.

    Attributes:
        run_id: its MLflow run.
        state: the trial's final state; it decides the run's status.
        reason: why, empty for none.
        attempt: the last attempt's number.
        message: words for people.
        ended_at: seconds since the epoch, UTC; None is now.
    """

    run_id: str
    state: State
    reason: str = ""
    attempt: int = 0
    message: str = ""
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What MLflow knows of one trial's run.

    Attributes:
        value: the objective's metric by its `take`, as logged: NaN and infinities included; None when it
            was never logged (or not at the step that `take` names).
        step: the step that decided.
        rule: which of the logged values counted, such as `best`.
        metrics: the latest value of every metric that was logged.
    """

    value: float | None
    step: int | None
    rule: str
    metrics: Mapping[str, float]

    @property
    def logged(self) -> Sequence[str]:
        """The names of all metrics that were logged, sorted."""
        return sorted(self.metrics)


@dataclass(frozen=True, slots=True)
class SweepEnd:
    """How a sweep ended, as its parent run is closed.

    Attributes:
        state: the sweep's state, as in the JSON documents.
        message: words for people.
        artifacts: file name to text, such as `results.csv`. An iterable of parts is written as it comes.
        winner: tags of the winner, such as `trial`, `value` and `run_id`; empty for none.
        run_ids: the trials' runs that the ledger knows; other runs of the sweep are deleted.
        description: what the parent run's page says of it, in Markdown; empty leaves it as it is.
    """

    state: str
    message: str = ""
    artifacts: Mapping[str, str | Iterable[str]] = field(default_factory=dict)
    winner: Mapping[str, str] = field(default_factory=dict)
    run_ids: Collection[str] = ()
    description: str = ""

"""A tracker whose MLflow is a dictionary that can be away."""

# What is not needed of a call is ignored.
# ruff: noqa: ARG002

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from airflows.errors import TrackingUnavailableError
from airflows.scores import Measured
from airflows.tracking.contract import NoTracker
from airflows.tracking.records import EndedRun, OpenedSweep, Reading, SweepEnd, SweepRun, TrialRun

RUNNING = "running"


@dataclass
class FakeTracker(NoTracker):
    """Outlives drivers, as MLflow does: hand it to the next one.

    Attributes:
        uri: of the store.
        values: what the objective's metric is, by trial number.
        away: every call raises `TrackingUnavailableError` while it is set.
        on_create: what happens while runs are being made.
        runs: run id to the status it has, `running` or the trial's final state.
        numbers: run id to trial number.
        made: runs made so far.
        asked: calls by name.
    """

    uri: str = "http://mlflow.example.org"
    values: Mapping[int, float] = field(default_factory=dict)
    away: bool = False
    on_create: Callable[[], None] = lambda: None
    runs: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    made: int = 0
    asked: Counter[str] = field(default_factory=Counter)

    is_off = False

    def check(self) -> None:
        """Say whether it answers."""
        self._answer("check")

    def open_sweep(self, sweep: SweepRun, known: OpenedSweep | None = None) -> OpenedSweep:
        """Return ids."""
        self._answer("open_sweep")
        return OpenedSweep("1", "parent")

    def create_runs(self, trials: Sequence[TrialRun], *, uncertain: bool) -> Mapping[int, str]:
        """Make runs; only when told to, look for those that are there."""
        self.on_create()
        self._answer("create_runs")
        return {
            trial.number: (uncertain and self._run_of(trial.number)) or self._make(trial) for trial in trials
        }

    def reopen(self, run_ids: Sequence[str]) -> None:
        """Set runs to running."""
        if run_ids:
            self._answer("reopen")
        self.runs |= dict.fromkeys(run_ids, RUNNING)

    def read(self, run_ids: Sequence[str], objective: Measured) -> Mapping[str, Reading]:
        """Return the values."""
        self._answer("read")
        return {run_id: self._reading(run_id, objective.metric) for run_id in run_ids}

    def close(self, ended: Sequence[EndedRun]) -> None:
        """End runs."""
        self._answer("close")
        self.runs |= {run.run_id: run.state for run in ended}

    def close_sweep(self, end: SweepEnd) -> tuple[str, ...]:
        """Delete the runs that nobody knows."""
        self._answer("close_sweep")
        for run_id in set(self.runs) - set(end.run_ids):
            del self.runs[run_id], self.numbers[run_id]
        return ()

    def _run_of(self, number: int) -> str:
        return next((run_id for run_id, known in self.numbers.items() if known == number), "")

    def _make(self, trial: TrialRun) -> str:
        self.made += 1
        run_id = f"run-{self.made}"
        self.runs[run_id], self.numbers[run_id] = RUNNING, trial.number
        return run_id

    def _reading(self, run_id: str, metric: str) -> Reading:
        value = self.values.get(self.numbers[run_id])
        return Reading(value, None if value is None else 0, "last", {} if value is None else {metric: value})

    def _answer(self, name: str) -> None:
        self.asked[name] += 1
        if self.away:
            message = "MLflow does not answer."
            raise TrackingUnavailableError(message)

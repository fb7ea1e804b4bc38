"""A tracker for trials of which some attempts run on a service that makes MLflow runs, and others elsewhere.

An attempt elsewhere goes on in its trial's run, as usual; one on the service gets a run of its own, which is
joined to the one before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from airflows.tracking.records import EndedRun, TrialRun
from airflows.tracking.runs import RunEnd
from airflows.tracking.service import ServiceTracker
from airflows.tracking.tracker import MlflowTracker


class SharedTracker(ServiceTracker):
    """A tracker on the MLflow of a service, where this program makes runs too."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._own: set[str] | None = None
        self._reopened: set[str] = set()

    def create_runs(self, trials: Sequence[TrialRun], *, uncertain: bool) -> Mapping[int, str]:
        """Return the run id of each trial by number; see `Tracker`."""
        made = MlflowTracker.create_runs(self, trials, uncertain=uncertain)
        if self._own is not None:
            self._own |= set(made.values())
        return made

    def adopt(self, run_id: str, trial: TrialRun, *, earlier: str = "") -> None:
        """Make a service's run known as a trial's, and end the one that was made here; see `Tracker`."""
        super().adopt(run_id, trial, earlier=earlier)
        is_own = earlier in self._own_runs()
        if earlier and (is_own or earlier in self._reopened):
            self._end_here(earlier, is_own=is_own)

    def _end_here(self, run_id: str, *, is_own: bool) -> None:
        """End a run whose trial goes on in another; one made here that has nothing in it is deleted."""
        if not is_own or self._runs.latest(self._at.experiment_id, [run_id]).get(run_id):
            self._runs.end([RunEnd(run_id, "KILLED", self._now_ms(), {"airflows.state": "moved"})])
        else:
            self._runs.delete([run_id])

    def reopen(self, run_ids: Sequence[str]) -> None:
        """Set runs of trials that are taken up again to RUNNING."""
        MlflowTracker.reopen(self, run_ids)
        self._reopened |= set(run_ids)

    def close(self, ended: Sequence[EndedRun]) -> None:
        """End runs: status, time and tags."""
        MlflowTracker.close(self, ended)

    def _delete_orphans(self, known: Collection[str]) -> None:
        """Delete what was made here for nothing, and none of the runs of earlier attempts."""
        joined = {each for run_id in known for each in self._chain(run_id)}
        others = {run.run_id for run in self._trial_runs()} - self._own_runs()
        MlflowTracker._delete_orphans(self, joined | others)  # noqa: SLF001 - the base class's own

    def _own_runs(self) -> set[str]:
        """Return the runs that were made here, by this driver or an earlier one."""
        if self._own is None:
            made_by = {run.run_id: run.tags.get("mlflow.source.name", "") for run in self._trial_runs()}
            self._own = {run_id for run_id, name in made_by.items() if name == "airflows"}
        return self._own

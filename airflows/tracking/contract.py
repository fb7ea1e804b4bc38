"""What the engine asks of a tracker, and the tracker that has no MLflow."""

# The tracker without MLflow ignores what it is given.
# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from airflows.scores import Measured, MetricPoint
from airflows.tracking.records import EndedRun, OpenedSweep, Reading, SweepEnd, SweepRun, TrialRun
from airflows.tracking.runs import FoundRun
from airflows.tracking.uris import OFF


class Tracker(Protocol):
    """Where one sweep's metrics come from and its results are shown.

    Every method that talks to MLflow may raise `TrackingUnavailableError`: nothing is known, and it may be
    called again; each may be called twice with the same effect as once. `TrackingRefusedError` is final.
    """

    @property
    def uri(self) -> str:
        """The store's URI for people: without its password."""

    @property
    def is_off(self) -> bool:
        """Whether there is no MLflow: no metrics, no winner."""

    def check(self) -> None:
        """Return when MLflow answers."""

    def open_sweep(self, sweep: SweepRun, known: OpenedSweep | None = None) -> OpenedSweep:
        """Return the sweep's experiment and parent run, made when there is none; the run is RUNNING again.

        Args:
            sweep: what the parent run is made of.
            known: what the ledger remembers, which saves looking.
        """

    def attach(self, sweep: SweepRun, known: OpenedSweep) -> None:
        """Turn to a sweep whose runs are there: nothing in MLflow changes, and it is not asked."""

    def create_runs(self, trials: Sequence[TrialRun], *, uncertain: bool) -> Mapping[int, str]:
        """Return the run id of each trial by number, after making the runs.

        Args:
            trials: trials that have no run in the ledger. Many at once are cheaper than one by one.
            uncertain: a driver may have died between making a run and writing its id down: look first.
        """

    def adopt(self, run_id: str, trial: TrialRun, *, earlier: str = "") -> None:
        """Make a run that a service made for an attempt known as the trial's: tags, params, parent.

        Args:
            run_id: the service's run.
            trial: whose it is.
            earlier: the run of the attempt before, empty for none.
        """

    def reopen(self, run_ids: Sequence[str]) -> None:
        """Set runs of trials that are taken up again to RUNNING."""

    def read(self, run_ids: Sequence[str], objective: Measured) -> Mapping[str, Reading]:
        """Return what MLflow knows of runs, by run id; runs that it does not have are not in the answer."""

    def latest(self, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, MetricPoint]]:
        """Return the latest value of each metric of runs, by run id, in one call for all."""

    def curve(self, run_ids: Sequence[str], metric: str) -> Iterator[tuple[str, Sequence[MetricPoint]]]:
        """Yield (run id, all values of a metric in any order), for each of these runs."""

    def close(self, ended: Sequence[EndedRun]) -> None:
        """End runs: status, time and tags. Many at once are cheaper than one by one."""

    def count_runs(self) -> int:
        """Return how many trials' runs of the sweep MLflow has."""

    def verify(self, run_ids: Collection[str]) -> None:
        """Return when MLflow has all these runs.

        Raises:
            RunsMissingError: it does not, with the counts.
        """

    def known_sweeps(self, experiment: str) -> tuple[str, Sequence[FoundRun]]:
        """Return an experiment's id, empty when there is none, and the parent runs of all sweeps in it."""

    def known_trials(self) -> Sequence[FoundRun]:
        """Return the runs of the sweep's trials, those that no ledger knows included."""

    def close_sweep(self, end: SweepEnd) -> tuple[str, ...]:
        """Delete runs the ledger does not know, store the artifacts, end the parent run.

        Returns:
            What could not be done, in words: trouble with artifacts does not keep the run from ending.
        """

    def job_env(self) -> Mapping[str, str]:
        """Return the variables that lead a job to the store, apart from experiment and run."""

    def job_secrets(self) -> Mapping[str, str]:
        """Return further variables for jobs, to be kept as secrets: credentials, a URI with a password."""


class NoTracker:
    """`tracking: {uri: none}`."""

    uri = OFF
    is_off = True

    def check(self) -> None:
        """Do nothing."""

    def open_sweep(self, sweep: SweepRun, known: OpenedSweep | None = None) -> OpenedSweep:
        """Return empty ids."""
        return OpenedSweep("", "")

    def attach(self, sweep: SweepRun, known: OpenedSweep) -> None:
        """Do nothing."""

    def create_runs(self, trials: Sequence[TrialRun], *, uncertain: bool) -> Mapping[int, str]:
        """Make nothing."""
        return {}

    def adopt(self, run_id: str, trial: TrialRun, *, earlier: str = "") -> None:
        """Do nothing."""

    def reopen(self, run_ids: Sequence[str]) -> None:
        """Do nothing."""

    def read(self, run_ids: Sequence[str], objective: Measured) -> Mapping[str, Reading]:
        """Know nothing."""
        return {}

    def latest(self, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, MetricPoint]]:
        """Know nothing."""
        return {}

    def curve(self, run_ids: Sequence[str], metric: str) -> Iterator[tuple[str, Sequence[MetricPoint]]]:
        """Know nothing."""
        return iter(())

    def close(self, ended: Sequence[EndedRun]) -> None:
        """Do nothing."""

    def count_runs(self) -> int:
        """Return 0."""
        return 0

    def verify(self, run_ids: Collection[str]) -> None:
        """Return: nothing is expected."""

    def known_sweeps(self, experiment: str) -> tuple[str, Sequence[FoundRun]]:
        """Know nothing."""
        return "", ()

    def known_trials(self) -> Sequence[FoundRun]:
        """Know nothing."""
        return ()

    def close_sweep(self, end: SweepEnd) -> tuple[str, ...]:
        """Do nothing."""
        return ()

    def job_env(self) -> Mapping[str, str]:
        """Return nothing: training code decides for itself."""
        return {}

    def job_secrets(self) -> Mapping[str, str]:
        """Return nothing."""
        return {}

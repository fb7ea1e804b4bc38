"""What the tracker needs of an MLflow store: one small protocol, met by SQLite directly and by the client.

Every method may raise `TrackingUnavailableError` (nobody was asked, nothing is known) or
`TrackingRefusedError` (the store answered no). Runs that do not exist or were deleted are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from airflows.scores import MetricPoint


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be made. `start_ms` is milliseconds since the epoch, UTC."""

    name: str
    start_ms: int
    tags: Mapping[str, str]
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunEnd:
    """A run to be ended: `status` is FINISHED, FAILED or KILLED; the tags are set with it.

    An empty status sets the tags alone: whoever made the run ends it.
    """

    run_id: str
    status: str
    end_ms: int
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FoundRun:
    """An active run with its tags.

    Attributes:
        run_id: its id.
        tags: all of them.
        status: in MLflow's word, such as RUNNING or FINISHED.
        start_ms: milliseconds since the epoch, UTC.
    """

    run_id: str
    tags: Mapping[str, str]
    status: str = ""
    start_ms: int = 0


class Runs(Protocol):
    """The runs of one store."""

    def ping(self) -> None:
        """Return when the store answers."""

    def experiment(self, name: str) -> str:
        """Return the id of the experiment of this name, made when there is none."""

    def known_experiment(self, name: str) -> str:
        """Return the id of the experiment of this name, empty for none; nothing is made."""

    def create(self, experiment_id: str, runs: Sequence[NewRun]) -> list[str]:
        """Make runs, status RUNNING; return their ids in order."""

    def adopt(self, run_id: str, run: NewRun) -> None:
        """Set tags and params of a run that somebody else made."""

    def complete(self, run_id: str, run: NewRun) -> None:
        """Log what a run may lack whose making was cut short; nothing where runs are made at once."""

    def end(self, ends: Sequence[RunEnd]) -> None:
        """End runs and set tags. Doing it twice is doing it once."""

    def reopen(self, run_ids: Sequence[str]) -> None:
        """Set the runs' status to RUNNING."""

    def latest(self, experiment_id: str, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, MetricPoint]]:
        """Return the latest value of each metric, for each of these runs that is active."""

    def histories(self, run_ids: Sequence[str], metric: str) -> Iterator[tuple[str, Sequence[MetricPoint]]]:
        """Yield (run id, all values of a metric in any order), for each of these runs."""

    def find(self, experiment_id: str, tags: Mapping[str, str]) -> Iterator[FoundRun]:
        """Yield the active runs that have all these tags, in pages."""

    def delete(self, run_ids: Sequence[str]) -> None:
        """Delete runs, as MLflow does it: they can be restored."""

    def log_file(self, run_id: str, path: str, folder: str) -> None:
        """Store a local file under its name as an artifact, replacing an earlier one."""

"""Where trials come from: the lazy expansion, taken in chunks from where the ledger says it ended."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from airflows.ledger import Ledger, PointRow, SweepRow
from airflows.replication import further_value
from airflows.space import Expansion, Point
from airflows.spec import SweepSpec
from airflows.trial import Trial

CHUNK = 500
"""Points that a driver takes at a time."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Points and their trials, and the sweep's columns that say how far the expansion has come."""

    points: Sequence[PointRow]
    trials: Sequence[Trial]
    overrides: Mapping[int, Mapping[str, Any]]
    progress: Mapping[str, Any]


class Source(Protocol):
    """Where further trials come from."""

    @property
    def is_exhausted(self) -> bool:
        """Whether no further points will come."""

    def room(self, waiting: int, enough: int) -> int:
        """Return how many points are wanted now.

        Args:
            waiting: trials that wait already.
            enough: how many should.
        """

    def next(self, most: int) -> Chunk:
        """Return the next points, at most `most`; their numbers follow the last ones'."""


class PointSource:
    """Hands out a sweep's points with their replicates, each once, in the order of the expansion."""

    def __init__(self, row: SweepRow, expansion: Expansion, spec: SweepSpec, created: int) -> None:
        self._sweep = row.id
        self._replicates = Replicates(spec)
        self._points: Iterator[Point] = iter(expansion.points(row.expanded))
        self._expanded = row.expanded
        self._next_number = created
        self._exhausted = row.exhausted

    @property
    def is_exhausted(self) -> bool:
        """Whether no further points will come."""
        return self._exhausted

    def room(self, waiting: int, enough: int) -> int:
        """Return how many points are wanted now; see `Source`."""
        return 0 if self._exhausted or waiting >= enough else CHUNK

    def next(self, most: int) -> Chunk:
        """Return the next points, at most `most`; fewer, and exhausted, at the end."""
        points = [
            PointRow(point.index, dict(point.overrides), point.digest)
            for point in itertools.islice(self._points, most)
        ]
        trials = [
            Trial(self._sweep, number, points[place].number, replicate)
            for number, (place, replicate) in enumerate(
                itertools.product(range(len(points)), range(self._replicates.count)), self._next_number
            )
        ]
        self._expanded += len(points)
        self._next_number += len(trials)
        self._exhausted = len(points) < most
        progress: dict[str, Any] = {"expanded": self._expanded, "exhausted": self._exhausted}
        if self._exhausted:
            progress["total"] = self._next_number
        by_point = {point.number: point.overrides for point in points}
        overrides = {t.number: self._replicates.overrides(by_point[t.point], t.replicate) for t in trials}
        return Chunk(points, trials, overrides, progress)


class Replicates:
    """What a replicate adds to the overrides of its point."""

    def __init__(self, spec: SweepSpec) -> None:
        self._key = "" if spec.replicates is None else spec.replicates.key
        self._values: Sequence[Any] = [None] if spec.replicates is None else spec.replicates.values

    @property
    def count(self) -> int:
        """How many replicates a point has by the sweep file, at least 1; further ones may be added later."""
        return len(self._values)

    def value(self, replicate: int) -> Any:
        """Return what the key of the replicates is in one of them.

        Raises:
            ValueError: the file's values do not say what follows them.
        """
        if replicate < len(self._values):
            return self._values[replicate]
        return further_value(self._values, replicate)

    def overrides(self, point: Mapping[str, Any], replicate: int) -> Mapping[str, Any]:
        """Return the overrides of a trial: its point's, and the replicate's value."""
        return {**point, self._key: self.value(replicate)} if self._key else point


def open_overrides(
    ledger: Ledger, sweep: str, trials: Sequence[Trial], replicates: Replicates
) -> dict[int, Mapping[str, Any]]:
    """Return the overrides of trials by number, read from the ledger in pages."""
    wanted = {trial.point for trial in trials}
    if not wanted:
        return {}
    points = {
        point.number: point.overrides
        for point in ledger.points(sweep, start=min(wanted), stop=max(wanted) + 1)
        if point.number in wanted
    }
    return {t.number: replicates.overrides(points[t.point], t.replicate) for t in trials}

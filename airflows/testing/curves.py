"""A tracker on which the runs of a fake cluster log a value a second, for as long as they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from airflows.scores import Measured, MetricPoint, Take, take_value
from airflows.testing.fake import FakeCluster, FakeRun
from airflows.testing.tracker import FakeTracker
from airflows.tracking.records import Reading


@dataclass
class CurveTracker(FakeTracker):
    """Knows what the cluster's runs have logged by now; an attempt goes on where the one before it ended.

    Attributes:
        cluster: whose runs they are.
        value_at: trial number and step, counted from 1, to the value.
        metric: the name that the runs log it under.
    """

    cluster: FakeCluster = field(default_factory=FakeCluster)
    value_at: Callable[[int, int], float] = lambda number, _step: float(number)
    metric: str = "loss"

    def latest(self, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, MetricPoint]]:
        """Return the last value of each run, nothing of one that has logged none."""
        self._answer("latest")
        curves = {run_id: self._curve(run_id) for run_id in run_ids}
        return {run_id: {self.metric: curve[-1]} if curve else {} for run_id, curve in curves.items()}

    def curve(self, run_ids: Sequence[str], metric: str) -> Iterator[tuple[str, Sequence[MetricPoint]]]:
        """Yield all values of each run."""
        if run_ids:
            self._answer("curve")
        yield from ((run_id, self._curve(run_id) if metric == self.metric else []) for run_id in run_ids)

    def read(self, run_ids: Sequence[str], objective: Measured) -> Mapping[str, Reading]:
        """Return the values that count."""
        self._answer("read")
        return {run_id: self._read(run_id, objective) for run_id in run_ids}

    def _read(self, run_id: str, objective: Measured) -> Reading:
        curve, take = self._curve(run_id), Take.of(objective.take)
        taken = take_value(curve if objective.metric == self.metric else [], take, objective.goal)
        return Reading(taken.value, taken.step, take.rule, {self.metric: curve[-1].value} if curve else {})

    def _curve(self, run_id: str) -> list[MetricPoint]:
        number, now = self.numbers[run_id], self.cluster.clock()
        steps = int(sum(_ran(run, now) for run in self.cluster.runs.values() if run.job.number == number))
        return [MetricPoint(step, self.value_at(number, step), step) for step in range(1, steps + 1)]


def _ran(run: FakeRun, now: float) -> float:
    seen = run.observe(now)
    return max(0.0, (seen.ended_at or now) - (seen.started_at or now))

"""A tracker for trials whose runs a service makes: one for each attempt, adopted when it is seen.

A trial owns all of them. Its curve is theirs joined by step, the later attempt's value where both have one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflows.scores import Measured, MetricPoint, Take, Taken, take_value
from airflows.tracking.records import EndedRun, Reading, TrialRun
from airflows.tracking.tracker import EARLIER, MlflowTracker
from airflows.trial import State


class ServiceTracker(MlflowTracker):
    """A tracker on the MLflow of a service."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._earlier: dict[str, str] = {}
        self._has_looked = False

    def create_runs(self, trials: Sequence[TrialRun], *, uncertain: bool) -> Mapping[int, str]:
        """Make nothing: the service makes a run when an attempt starts."""
        del trials, uncertain
        return {}

    def adopt(self, run_id: str, trial: TrialRun, *, earlier: str = "") -> None:
        """Make a service's run known as a trial's; see `Tracker`."""
        super().adopt(run_id, trial, earlier=earlier)
        if earlier:
            self._earlier[run_id] = earlier

    def reopen(self, run_ids: Sequence[str]) -> None:
        """Do nothing: the next attempt gets a run of its own."""

    def read(self, run_ids: Sequence[str], objective: Measured) -> Mapping[str, Reading]:
        """Return what MLflow knows of trials, by the run of their newest attempt; see `Tracker`."""
        chains = {run_id: self._chain(run_id) for run_id in run_ids}
        known = {run_id: chain for run_id, chain in chains.items() if len(chain) > 1}
        readings = dict(super().read([run_id for run_id in run_ids if run_id not in known], objective))
        if known:
            readings |= self._joined(known, objective)
        return readings

    def latest(self, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, MetricPoint]]:
        """Return the latest value of each metric of trials, by the run of their newest attempt."""
        chains = {run_id: self._chain(run_id) for run_id in run_ids}
        found = super().latest(sorted({run_id for chain in chains.values() for run_id in chain}))
        joined: dict[str, dict[str, MetricPoint]] = {}
        for run_id, chain in chains.items():
            for each in chain:
                joined[run_id] = joined.get(run_id, {}) | dict(found.get(each, {}))
        return joined

    def curve(self, run_ids: Sequence[str], metric: str) -> Iterator[tuple[str, Sequence[MetricPoint]]]:
        """Yield all values of a metric for each of these trials, by the run of their newest attempt."""
        chains = {run_id: self._chain(run_id) for run_id in run_ids}
        every = sorted({run_id for chain in chains.values() for run_id in chain})
        found = dict(super().curve(every, metric))
        for run_id, chain in chains.items():
            yield run_id, joined_curve(chain, found)

    def close(self, ended: Sequence[EndedRun]) -> None:
        """Write how trials ended that did not simply succeed: of those MLflow itself says FINISHED."""
        untold = [run for run in ended if run.state is not State.SUCCEEDED or run.reason or run.message]
        ends = [self._end(run) for run in untold]
        self._runs.end([replace(end, status="") if end.status == "FINISHED" else end for end in ends])

    def _delete_orphans(self, known: Collection[str]) -> None:
        """Delete nothing: every run here is an attempt's."""

    def _chain(self, run_id: str) -> list[str]:
        """Return the runs of a trial's attempts, oldest first, the given one last."""
        if not self._has_looked:
            # An earlier driver may have adopted some of them.
            for run in self._trial_runs():
                if run.tags.get(EARLIER):
                    self._earlier.setdefault(run.run_id, run.tags[EARLIER])
            self._has_looked = True
        chain = [run_id]
        while (before := self._earlier.get(chain[0])) is not None and before not in chain:
            chain.insert(0, before)
        return chain

    def _joined(self, chains: Mapping[str, Sequence[str]], objective: Measured) -> dict[str, Reading]:
        every = sorted({run_id for chain in chains.values() for run_id in chain})
        latest = self._runs.latest(self._at.experiment_id, every)
        take = Take.of(objective.take)
        histories: dict[str, Sequence[MetricPoint]] = {}
        if take.needs_history:
            logged = [run_id for run_id in every if objective.metric in latest.get(run_id, {})]
            histories = dict(self._runs.histories(logged, objective.metric))
        found: dict[str, Reading] = {}
        for run_id, chain in chains.items():
            if not any(each in latest for each in chain):
                continue
            metrics: dict[str, MetricPoint] = {}
            for each in chain:
                metrics |= latest.get(each, {})
            point = metrics.get(objective.metric)
            taken = Taken() if point is None else Taken(point.value, point.step)
            if take.needs_history and point is not None:
                taken = take_value(joined_curve(chain, histories), take, objective.goal)
            values = {name: one.value for name, one in metrics.items()}
            found[run_id] = Reading(taken.value, taken.step, take.rule, values)
        return found


def joined_curve(chain: Sequence[str], histories: Mapping[str, Sequence[MetricPoint]]) -> list[MetricPoint]:
    """Return the values of a trial's attempts, those of a later attempt in place of an earlier one's.

    A run with several values of the only step logged them without steps: there nothing replaces anything.
    """
    runs = [histories.get(run_id, ()) for run_id in chain]
    curve = [point for points in runs for point in points]
    if len({point.step for point in curve}) == 1 and any(len(points) > 1 for points in runs):
        return curve
    curve, later = [], set[int]()
    for points in reversed(runs):
        curve += [point for point in points if point.step not in later]
        later |= {point.step for point in points}
    return curve

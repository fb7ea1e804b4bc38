"""Where an adaptive sweep's points come from: asked one at a time, as slots free up and values arrive.

A sampler is told of one end after another, and asked as soon as a slot is free by what it was told; which
ends came before a point is kept with it. So a driver that finds many ends at once asks what one that saw
them come would have asked.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from airflows import ids
from airflows.engine.outcomes import aims_of, outcome_of, scored
from airflows.engine.source import Chunk, Replicates
from airflows.engine.warmstart import past_of
from airflows.ledger import Ledger, PointRow, SweepRow
from airflows.search.adaptive import Notes, Outcome, Past, Setting, open_sampler
from airflows.space import expand
from airflows.spec import SweepSpec
from airflows.sweepfile import LoadedSweep
from airflows.trial import Trial


class AdaptiveSource:
    """Hands out the points of a sweep whose method learns, each once, when there is room for it.

    Args:
        ledger: the durable record, which is asked what became of the trials.
        row: the sweep.
        sweep: the same as it was loaded.
        created: trials there are.
        room: trials in flight.
    """

    def __init__(self, ledger: Ledger, row: SweepRow, sweep: LoadedSweep, created: int, room: int) -> None:
        self._exhausted = row.exhausted
        # What cancels a sweep, or ends it, has no use for a sampler.
        self._open: Callable[[], _Search] = partial(_Search, ledger, row, sweep, created, room)

    @property
    def is_exhausted(self) -> bool:
        """Whether no further points will come."""
        return self._exhausted

    def room(self, waiting: int, enough: int) -> int:
        """Return how many points are wanted now: one where there is a slot for it."""
        del waiting, enough
        return 0 if self._exhausted else self._search.room()

    def next(self, most: int) -> Chunk:
        """Return the next point with its trials; none, and exhausted, at the end."""
        del most
        chunk = self._search.next()
        self._exhausted = bool(chunk.progress["exhausted"])
        return chunk

    @cached_property
    def _search(self) -> _Search:
        return self._open()


class _Search:
    """A sampler with what it was told, rebuilt from the ledger."""

    def __init__(self, ledger: Ledger, row: SweepRow, sweep: LoadedSweep, created: int, room: int) -> None:
        self._row = row
        self._sweep = sweep
        self._replicates = Replicates(sweep.spec)
        self._outcomes = _Outcomes(ledger, row.id, sweep.spec)
        self._slots = max(1, -(-room // self._replicates.count))
        self._known = [point.overrides for point in expand(sweep).points()]
        self._next_number = created
        self._expanded = 0
        self._seen: dict[str, int] = {}
        self._repeats: dict[int, list[int]] = defaultdict(list)
        self._told: dict[int, Outcome] = {}
        self._told_since: list[int] = []
        points = list(ledger.points(row.id))
        memos: list[dict[str, Any]] = [json.loads(point.memo or "{}") for point in points]
        self._past = _past(memos[0]) if memos else past_of(ledger, sweep)
        self._sampler = open_sampler(sweep.space, sweep.base.tree, setting_of(sweep.spec), self._past)
        self._take_over(points, memos)
        self._take_over_ends(ledger.trials(row.id), {n for memo in memos for n in memo.get("told", ())})

    def room(self) -> int:
        """Return 1 when a point is wanted now, else 0."""
        if self._is_complete:
            return 1
        self._outcomes.look()
        while self._outcomes.open >= self._slots and self._outcomes.ended:
            self._tell(self._outcomes.ended[0])
        return int(self._outcomes.open < self._slots)

    def next(self) -> Chunk:
        """Return the next point with its trials; none, and exhausted, at the end."""
        if self._is_complete:
            return self._chunk([], [])
        overrides, notes = self._chosen()
        number, text = self._expanded, ids.canonical_json(overrides)
        same_as = self._seen.setdefault(text, number)
        memo = self._memo(notes)
        self._expanded, self._told_since = number + 1, []
        if same_as != number:
            self._repeat(number, same_as)
            digest = ids.digest({"point": number, "same_as": same_as})
            return self._chunk([PointRow(number, dict(overrides), digest, memo, same_as)], [])
        trials = [
            Trial(self._row.id, self._next_number + replicate, number, replicate)
            for replicate in range(self._replicates.count)
        ]
        self._next_number += len(trials)
        self._outcomes.follow(number, trials)
        return self._chunk([PointRow(number, dict(overrides), ids.digest(overrides), memo)], trials)

    @property
    def _is_complete(self) -> bool:
        """Whether all points are there: as many as are wanted, or all of a finite space."""
        wanted, count = self._sweep.spec.search.trials or 0, expand(self._sweep).count()
        is_finite = count is not None and count < wanted
        return self._expanded >= wanted or (is_finite and len(self._seen) >= (count or 0))

    def _chosen(self) -> tuple[Mapping[str, Any], Notes]:
        if self._expanded < len(self._known):
            overrides = self._known[self._expanded]
            return overrides, self._sampler.add(overrides)
        proposal = self._sampler.ask()
        return proposal.overrides, proposal.notes

    def _chunk(self, points: Sequence[PointRow], trials: Sequence[Trial]) -> Chunk:
        is_complete = self._is_complete
        progress: dict[str, Any] = {"expanded": self._expanded, "exhausted": is_complete}
        if is_complete:
            progress["total"] = self._next_number
        overrides = {t.number: self._replicates.overrides(points[0].overrides, t.replicate) for t in trials}
        return Chunk(points, trials, overrides, progress)

    def _tell(self, number: int) -> None:
        self._told[number] = self._outcomes.take(number)
        self._told_since.append(number)
        for each in (number, *self._repeats[number]):
            self._sampler.finish(each, self._told[number])

    def _repeat(self, number: int, same_as: int) -> None:
        self._repeats[same_as].append(number)
        if same_as in self._told:
            self._sampler.finish(number, self._told[same_as])

    # What is kept with a point

    def _memo(self, notes: Notes) -> str | None:
        memo: dict[str, Any] = {}
        if self._told_since:
            memo["told"] = self._told_since
        if notes.trial:
            memo["trial"] = notes.trial
        if notes.study:
            memo["study"] = notes.study
        if self._past and not self._expanded:
            memo["past"] = [[p.overrides, p.outcome.values, p.outcome.violations] for p in self._past]
        return json.dumps(memo) if memo else None

    def _take_over(self, points: Sequence[PointRow], memos: Sequence[Mapping[str, Any]]) -> None:
        for point, memo in zip(points, memos, strict=True):
            self._sampler.add(point.overrides, Notes(memo.get("trial", {}), memo.get("study", {})))
            if point.same_as is None:
                self._seen[ids.canonical_json(point.overrides)] = point.number
            else:
                self._repeats[point.same_as].append(point.number)
        self._expanded = len(points)

    def _take_over_ends(self, trials: Sequence[Trial], told: set[int]) -> None:
        """Tell what was told before the last point; what runs again since then will be told again."""
        by_point: dict[int, list[Trial]] = defaultdict(list)
        for trial in trials:
            by_point[trial.point].append(trial)
        for number, members in by_point.items():
            self._outcomes.follow(number, members)
        self._outcomes.look()
        for number in [number for number in self._outcomes.ended if number in told]:
            self._tell(number)
        self._told_since = []


def _past(memo: Mapping[str, Any]) -> list[Past]:
    """Return what the first point keeps of earlier sweeps."""
    return [
        Past(made, Outcome("complete", tuple(values), violations=violations))
        for made, values, violations in memo.get("past", ())
    ]


class _Outcomes:
    """Follows the points that have trials until it is known what became of them.

    Attributes:
        running: trials by point.
        ended: points of which all trials have ended and been read, in the order of their ends.
    """

    def __init__(self, ledger: Ledger, sweep: str, spec: SweepSpec) -> None:
        self._ledger = ledger
        self._sweep = sweep
        self._spec = spec
        self._aims = aims_of(spec)
        self._metrics = [c.metric for o in spec.all_objectives for c in o.constraints]
        self._ready: dict[int, tuple[float, Outcome]] = {}
        self.running: dict[int, list[int]] = {}
        self.ended: list[int] = []

    @property
    def open(self) -> int:
        """How many points a sampler takes for running."""
        return len(self.running) + len(self.ended)

    def follow(self, point: int, trials: Sequence[Trial]) -> None:
        """Take a point whose end is not known yet."""
        self.running[point] = [trial.number for trial in trials]

    def take(self, point: int) -> Outcome:
        """Return what became of an ended point, and forget it."""
        self.ended.remove(point)
        return self._ready.pop(point)[1]

    def look(self) -> None:
        """Find those that have ended since the last look."""
        numbers = [number for trials in self.running.values() for number in trials]
        if not numbers:
            return
        found = {
            trial.number: trial
            for trial in self._ledger.trials(self._sweep, numbers=numbers)
            if trial.state.is_final and trial.closed
        }
        over = [point for point, trials in self.running.items() if all(n in found for n in trials)]
        if not over:
            return
        constrained = self._ledger.constraint_scores(self._sweep, self._metrics)
        others = self._ledger.objective_scores(self._sweep) if len(self._aims) > 1 else {}
        for point in over:
            trials = [found[number] for number in self.running.pop(point)]
            members = [
                scored(t, constrained.get(t.number, {}), others.get(t.number, {}), len(self._aims))
                for t in trials
            ]
            ended_at = max(trial.ended_at or 0.0 for trial in trials)
            self._ready[point] = ended_at, outcome_of(self._aims, members)
        self.ended = sorted(self._ready, key=lambda point: (self._ready[point][0], point))


def setting_of(spec: SweepSpec) -> Setting:
    """Return what makes the sampler of a sweep file what it is."""
    if spec.method not in {"tpe", "gp", "cmaes", "nsga2"}:
        raise ValueError(spec.method)
    return Setting(spec.method, spec.search.seed, tuple(o.goal for o in spec.all_objectives))

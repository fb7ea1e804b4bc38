"""Playing a rehearsal: looks at its trials while they run; says which is killed, and which has done enough.

It takes the place of `Judging` in a driver. All it decides by is in MLflow, on the disk and in the ledger, so
that the next driver decides the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from airflows.backends.base import Backend
from airflows.backends.measuring import MeasuresMemory
from airflows.engine.metricnames import Unseen
from airflows.errors import BackendUnavailableError, TrackingUnavailableError
from airflows.ledger import Lease, Ledger, StoredScore
from airflows.planner import NO_ORDERS, Orders
from airflows.rehearsal.directing import Cue, Playing, cue, wants_checkpoint
from airflows.rehearsal.evidence import OF_THE_SYSTEM, Curves, since
from airflows.rehearsal.script import Script
from airflows.scores import MetricPoint
from airflows.tracking import Tracker, TrackingRefusedError
from airflows.trial import State, Trial

HOST_MEMORY = "airflows/host_bytes"
GPU_MEMORY = "airflows/gpu_bytes"
"""The ledger's scores under these names have the bytes as their step; the largest one counts."""
# Where asking costs nobody anything, and where each look is some requests.
_EVERY_S, _ELSEWHERE_EVERY_S = 0.5, 2.0
_BACK_OFF_S = 5.0
# Further metrics, besides those that decide, that are looked at while a trial runs.
_MOST_CURVES = 4
# What memory grows by is written down when it is worth it.
_GROWTH = 1.02


class Rehearsing:
    """Directs the trials of one rehearsal.

    Args:
        script: how it goes.
        tracker: where the trials log.
        backend: where they run.
        saved: returns the newest complete checkpoint of a trial, empty for none.

    Attributes:
        held: trials that must wait: none.
        note: what is being waited for, empty when all is well.
        unseen: what is said of metrics meanwhile: nothing.
    """

    def __init__(
        self, script: Script, tracker: Tracker, backend: Backend, saved: Callable[[Trial], str]
    ) -> None:
        self._script = script
        self._tracker = tracker
        self._backend = backend
        self._saved = saved
        self._trials: dict[int, Trial] = {}
        self._cues: dict[int, Cue] = {}
        self._saved_before: dict[int, str] = {}
        self._memory: dict[tuple[int, str], int] = {}
        self._every_s = _EVERY_S if backend.capabilities.shares_host else _ELSEWHERE_EVERY_S
        self._due_at = 0.0
        self.held = 0
        self.note = ""
        self.unseen = Unseen(())

    def take_over(self, ledger: Ledger, sweep: str) -> None:
        """Take the trials as an earlier driver left them."""
        self.expect(ledger.trials(sweep))

    def expect(self, trials: Iterable[Trial]) -> None:
        """Take new trials."""
        for trial in trials:
            self._trials[trial.number] = trial

    def follow(self, trial: Trial) -> None:
        """Take a trial as it stands after a transition."""
        self._trials[trial.number] = trial
        if trial.state is not State.RUNNING:
            self._cues.pop(trial.number, None)

    def look(self, ledger: Ledger, lease: Lease, now: float) -> None:
        """Look at what runs, and decide; every now and then."""
        running = [trial for trial in self._trials.values() if trial.state is State.RUNNING]
        if now < self._due_at or not running:
            return
        self._due_at = now + self._every_s
        self._measure(ledger, lease, running)
        try:
            curves = self._curves(running)
        except (TrackingUnavailableError, TrackingRefusedError) as exc:
            self.note, self._due_at = str(exc), now + _BACK_OFF_S
            curves = {}
        else:
            self.note = ""
        for trial in running:
            playing = self._playing(trial, curves.get(trial.run_id, {}), now)
            found = cue(self._script, playing, logs=not self._tracker.is_off)
            if found is not None:
                self._cues.setdefault(trial.number, found)
                self._saved_before[trial.number] = playing.checkpoint

    def orders(self, *, planned: int | None, may_start: bool) -> Orders:
        """Return which trials are to be killed and resumed, and which have done enough."""
        del planned, may_start
        if not self._cues:
            return NO_ORDERS
        resumed = {number: each.words for number, each in self._cues.items() if each.resumes}
        ended = {number: each.words for number, each in self._cues.items() if not each.resumes}
        return Orders(ended, resumed, frozenset(resumed), "")

    def _playing(self, trial: Trial, curves: Curves, now: float) -> Playing:
        began = trial.claimed_at if trial.attempt else None
        before, own = {} if began is None else since(curves, None, began), since(curves, began, None)
        seconds = 0.0 if trial.started_at is None else now - trial.started_at
        playing = Playing(trial.number, trial.attempt, seconds, before=before, now=own)
        if trial.number >= self._script.branches or not (self._tracker.is_off or wants_checkpoint(playing)):
            return playing
        saved = self._saved(trial)
        is_newer = saved != self._saved_before.setdefault(trial.number, saved)
        return Playing(trial.number, trial.attempt, seconds, saved, is_newer, before, own)

    def _curves(self, running: Sequence[Trial]) -> Mapping[str, Curves]:
        """Return what each MLflow run has logged, as far as it matters now."""
        run_ids = [trial.run_id for trial in running if trial.run_id]
        if self._tracker.is_off or not run_ids:
            return {}
        latest = self._tracker.latest(run_ids)
        found: dict[str, dict[str, Sequence[MetricPoint]]] = {run_id: {} for run_id in run_ids}
        for metric in self._watched(latest):
            for run_id, points in self._tracker.curve(run_ids, metric):
                if points:
                    found[run_id][metric] = points
        return found

    def _watched(self, latest: Mapping[str, Mapping[str, MetricPoint]]) -> list[str]:
        steps: dict[str, int] = {}
        for metrics in latest.values():
            for name, point in metrics.items():
                if not name.startswith(OF_THE_SYSTEM):
                    steps[name] = max(steps.get(name, 0), point.step)
        # Those that decide come first, then those that are logged most often.
        decide = [name for name in self._script.metrics if name in steps]
        others = sorted(steps.keys() - set(decide), key=lambda name: (-steps[name], name))
        return [*decide, *others[:_MOST_CURVES]]

    # Memory

    def _measure(self, ledger: Ledger, lease: Lease, running: Sequence[Trial]) -> None:
        if not isinstance(self._backend, MeasuresMemory) or self._backend.remembers_memory:
            return
        numbers = {trial.handle: trial.number for trial in running if trial.handle is not None}
        try:
            used = self._backend.memory(list(numbers))
        except BackendUnavailableError:
            return
        rows = [
            StoredScore(numbers[handle], name, value, float(value))
            for handle, memory in used.items()
            for name, value in ((HOST_MEMORY, memory.host_bytes), (GPU_MEMORY, memory.gpu_bytes))
            if value is not None and value > self._memory.get((numbers[handle], name), 0) * _GROWTH
        ]
        self._memory |= {(row.number, row.metric): row.step for row in rows}
        ledger.add_scores(lease, rows)

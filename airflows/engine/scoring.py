"""After the end: reads each final trial's metric from MLflow once, ends its MLflow run, and closes the row.

MLflow that does not answer delays this and nothing else. Doing any of it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from airflows.errors import TrackingUnavailableError
from airflows.ledger import Closing, Lease, Ledger
from airflows.objective import Objective
from airflows.scores import is_sound, shown
from airflows.tracking import EndedRun, Reading, Tracker, TrackingRefusedError
from airflows.trial import Reason, State, Trial

_EVERY_S = 0.5
_BACK_OFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
PATIENCE_S = 300.0
"""How long nothing but MLflow is waited for."""
# The step under which the ledger keeps a metric's latest value.
_LATEST = -1
# That of the second of several objectives; further ones follow downwards.
_SECOND = -2
_SCORED = frozenset({State.SUCCEEDED, State.STOPPED})


class Scoring:
    """Closes the final trials of one sweep, in batches."""

    def __init__(
        self,
        tracker: Tracker,
        objectives: Sequence[Objective],
        tail: Callable[[Trial], Sequence[str]],
        remark: Callable[[Trial], str] = lambda _trial: "",
    ) -> None:
        self._tracker = tracker
        self._objectives = objectives
        self._tail = tail
        self._remark = remark
        self._open: dict[int, Trial] = {}
        self._not_before = 0.0
        self._failures = 0
        self._away_since: float | None = None
        self.note = ""
        self.best: tuple[float, int] | None = None

    @property
    def is_off(self) -> bool:
        """Whether there is no MLflow, so that final trials are closed at once."""
        return self._tracker.is_off

    @property
    def is_open(self) -> bool:
        """Whether final trials are still to be closed."""
        return bool(self._open)

    def add(self, trial: Trial) -> None:
        """Take a trial that became final."""
        if not trial.closed:
            self._open[trial.number] = trial

    def take_over(self, trials: Sequence[Trial]) -> None:
        """Take final trials that an earlier driver left open."""
        for trial in trials:
            self.add(trial)

    def due_in(self, now: float) -> float:
        """Return the seconds until `work` has something to do."""
        return max(0.0, self._not_before - now)

    def work(self, ledger: Ledger, lease: Lease, now: float, *, idle: bool) -> None:
        """Close what is open, twice a second at most.

        Raises:
            TrackingUnavailableError: nothing else is left, and MLflow has not answered for five minutes.
        """
        if not self._open or now < self._not_before:
            return
        batch = [self._open[number] for number in sorted(self._open)]
        self._not_before = now + _EVERY_S
        try:
            closings = self._close(batch)
        except TrackingUnavailableError as exc:
            self._wait_for_answer(exc, now, idle=idle)
            return
        self._failures, self._away_since, self.note = 0, None, ""
        ledger.apply(lease, [], closings)
        for closing in closings:
            del self._open[closing.number]
            self._better(closing)

    def latest_step(self, trial: Trial) -> int:
        """Return the last step at which a trial logged the metric, -1 for none, or while MLflow is silent."""
        if self._tracker.is_off or not (self._objectives and trial.run_id):
            return -1
        last = self._objectives[0].model_copy(update={"take": "last"})
        try:
            reading = self._tracker.read([trial.run_id], last).get(trial.run_id)
        except (TrackingUnavailableError, TrackingRefusedError):
            return -1
        return -1 if reading is None or reading.step is None else reading.step

    def _wait_for_answer(self, exc: TrackingUnavailableError, now: float, *, idle: bool) -> None:
        wait = _BACK_OFF_S[min(self._failures, len(_BACK_OFF_S) - 1)]
        self._failures += 1
        self._not_before = now + wait
        self._away_since = self._away_since or now
        self.note = f"{exc} Asking again in {wait:.0f} s."
        if idle and now - self._away_since >= PATIENCE_S:
            raise exc

    def _close(self, batch: Sequence[Trial]) -> list[Closing]:
        readings = self._read([t for t in batch if t.state in _SCORED and t.run_id])
        closings = [self._closing(trial, readings.get(trial.number, ())) for trial in batch]
        why = {closing.number: closing.reason for closing in closings if closing.reason}
        self._tracker.close(
            [
                EndedRun(t.run_id, t.state, why.get(t.number) or t.reason, t.attempt, self._words(t))
                for t in batch
                if t.run_id
            ]
        )
        return closings

    def _words(self, trial: Trial) -> str:
        return trial.message or (self._remark(trial) if trial.state in _SCORED else "")

    def _read(self, trials: Sequence[Trial]) -> dict[int, Sequence[Reading]]:
        """Return what MLflow says of each objective, by trial, of those that it knows."""
        if not self._objectives or not trials:
            return {}
        runs = [trial.run_id for trial in trials]
        answers = [self._tracker.read(runs, objective) for objective in self._objectives]
        return {
            trial.number: [answer[trial.run_id] for answer in answers]
            for trial in trials
            if all(trial.run_id in answer for answer in answers)
        }

    def _closing(self, trial: Trial, readings: Sequence[Reading]) -> Closing:
        if not readings:
            return Closing(trial.number)
        made = Closing(trial.number, scores=self._scores(readings))
        raw = readings[0].value
        if raw is not None:
            value = raw if is_sound(raw) else None
            unsound = "" if value is not None else shown(raw)
            made = replace(made, value=value, value_step=readings[0].step, raw_value=unsound)
        if trial.state is State.SUCCEEDED and any(reading.value is None for reading in readings):
            return replace(made, reason=Reason.NO_METRIC, message=self._no_metric(trial, readings))
        return made

    def _scores(self, readings: Sequence[Reading]) -> list[tuple[str, int, float]]:
        """Return what constraints and all objectives but the first one decide by."""
        wanted = {constraint.metric for one in self._objectives for constraint in one.constraints}
        latest = readings[0].metrics
        return [(name, _LATEST, latest[name]) for name in sorted(wanted & set(latest))] + [
            (objective.metric, _SECOND - place, reading.value)
            for place, (objective, reading) in enumerate(zip(self._objectives[1:], readings[1:], strict=True))
            if reading.value is not None
        ]

    def _no_metric(self, trial: Trial, readings: Sequence[Reading]) -> str:
        both = zip(self._objectives, readings, strict=True)
        metric = " and ".join(objective.metric for objective, reading in both if reading.value is None)
        reading = readings[0]
        logged = ", ".join(repr(name) for name in reading.logged[:8]) or "nothing"
        lines = [line for line in self._tail(trial) if line.strip()][-3:]
        last = f" Last lines: {' | '.join(lines)}" if lines else ""
        return f"{metric} was not logged; logged: {logged}.{last}"

    def _better(self, closing: Closing) -> None:
        # Of several objectives no single one says what is best.
        if closing.value is None or len(self._objectives) != 1:
            return
        sign = 1 if self._objectives[0].goal == "minimize" else -1
        if self.best is None or sign * closing.value < sign * self.best[0]:
            self.best = (closing.value, closing.number)

"""Scores of trials while they run: read from MLflow in one call for all, stored, and judged by the rules.

What is decided follows from what is stored, so a driver that starts again decides the same. MLflow that does
not answer delays this and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from airflows.engine.metricnames import Unseen
from airflows.errors import TrackingUnavailableError
from airflows.ledger import Lease, Ledger, StoredScore
from airflows.planner import NO_ORDERS, Orders
from airflows.scores import MetricPoint
from airflows.stopping.curves import Score, kept, next_step, on_its_own, series
from airflows.stopping.halving import Verdict, halve
from airflows.stopping.rungs import Standing, Stop, judge
from airflows.stopping.setting import Setting
from airflows.tracking import Tracker, TrackingRefusedError
from airflows.trial import State, Trial

_EVERY_S = 1.0
# Judging takes a while where there are many.
_EVERY_S_PER_TRIAL = 0.001
# Without a rule that compares there is little to find, and every sweep has this.
_SELDOM_S = 10.0
_BACK_OFF_S = (2.0, 5.0, 10.0, 30.0)
# Looking for a checkpoint may mean asking a service.
_SAVED_EVERY_S = 3.0
_MANY = 10**9
_OF_THE_SYSTEM = "system/"
_Latest = Mapping[str, Mapping[str, MetricPoint]]


@dataclass(slots=True)
class _Known:
    """What is kept of a trial in memory.

    Attributes:
        trial: as it stands.
        scores: the stored ones, by step.
        look_from: the step from which on its history says more.
        is_read: nothing was logged since it was last looked at, because it had ended.
        scored_at: when the last of the scores was stored, as far as this driver knows.
        saved_step: the last score's step once there was a checkpoint for it.
        ask_at: when it is looked for a checkpoint again.
    """

    trial: Trial
    scores: dict[int, float] = field(default_factory=dict)
    look_from: int = 0
    is_read: bool = False
    scored_at: float | None = None
    saved_step: int = -1
    ask_at: float = 0.0

    @property
    def kept(self) -> list[Score]:
        return [Score(step, self.scores[step]) for step in sorted(self.scores)]

    @property
    def is_open(self) -> bool:
        """Whether values may come of which nothing is known."""
        return not (self.trial.state.is_final and self.is_read)


class Judging:
    """Looks at the curves of one sweep's trials.

    Args:
        tracker: where they log.
        setting: the rule, None for none.
        expected: the metrics that decide.
        saved: whether a trial has a checkpoint of this step, or one without a step made since this time.
        replicates: trials of a point by the sweep file. Those that were added later are to confirm a winner,
            and are not compared.

    Attributes:
        held: trials that wait at a rung and do not run.
        note: that MLflow does not answer, empty when all is well.
        unseen: whether the metrics that decide are logged at all.
    """

    def __init__(
        self,
        tracker: Tracker,
        setting: Setting | None,
        expected: Sequence[str],
        saved: Callable[[Trial, int, float], bool] = lambda _trial, _step, _since: True,
        replicates: int = 1,
    ) -> None:
        self._tracker = tracker
        self._setting = setting
        self._saved = saved
        self._replicates = replicates
        self._reopened_ms: dict[int, float] = {}
        self._now = 0.0
        self._known: dict[int, _Known] = {}
        # Those that have not ended: few of many, and looked through at every tick.
        self._open: dict[int, _Known] = {}
        self._stored: dict[int, dict[int, float]] = {}
        self._alone: dict[int, Stop] = {}
        self._due_at = 0.0
        self._failures = 0
        self._is_news = True
        self._judged: tuple[Mapping[int, Stop], Mapping[int, Verdict]] = ({}, {})
        self._judged_for: tuple[int | None, bool] = (None, True)
        self.held = 0
        self.note = ""
        self.unseen = Unseen(expected)

    def take_over(self, ledger: Ledger, sweep: str) -> None:
        """Take what an earlier driver has stored."""
        if self._is_off:
            return
        self._reopened_ms = {number: at * 1000 for number, at in ledger.reopenings(sweep).items()}
        if self._setting is None:
            return
        for score in ledger.curve_scores(sweep, self._setting.metric):
            self._stored.setdefault(score.number, {})[score.step] = score.value
        if self._setting.compares:
            for trial in ledger.trials(sweep):
                self._keep(trial)

    def expect(self, trials: Iterable[Trial]) -> None:
        """Take new trials: the others of their point are compared when all of them have come that far."""
        if self._compares and not self._is_off:
            for trial in trials:
                self._keep(trial)

    def follow(self, trial: Trial) -> None:
        """Take a trial as it stands after a transition."""
        if not self._is_off:
            self._keep(trial)

    @property
    def _is_off(self) -> bool:
        return self._tracker.is_off or (self._setting is None and self.unseen.is_settled)

    @property
    def _compares(self) -> bool:
        return self._setting is not None and self._setting.compares

    # Reading

    def look(self, ledger: Ledger, lease: Lease, now: float) -> None:
        """Read what running and newly ended trials have logged, and store what the rules need of it."""
        self._now = now
        if self._is_off or now < self._due_at:
            return
        looked_at = [known for known in self._known.values() if self._is_due(known)]
        if not looked_at:
            return
        try:
            logged = self._tracker.latest([known.trial.run_id for known in looked_at])
            latest = self._since_reopened(looked_at, logged)
            rows = self._rows(looked_at, latest, logged)
        except (TrackingUnavailableError, TrackingRefusedError) as exc:
            wait = _BACK_OFF_S[min(self._failures, len(_BACK_OFF_S) - 1)]
            self._failures += 1
            self._due_at = now + wait
            self.note = f"{exc} No trial is stopped early meanwhile."
            return
        self._failures, self.note = 0, ""
        seldom = self._setting is None or self._setting.method == "nan"
        self._due_at = now + (_SELDOM_S if seldom else max(_EVERY_S, _EVERY_S_PER_TRIAL * len(self._known)))
        if rows:
            ledger.add_scores(lease, rows)
        self._take(rows)
        self._settle(looked_at, latest)

    def _is_due(self, known: _Known) -> bool:
        trial = known.trial
        if not trial.run_id or known.is_read:
            return False
        if trial.state is State.RUNNING:
            return True
        # What ended may have logged its last values since.
        return trial.state.is_final and (self._compares or not self.unseen.is_settled)

    def _since_reopened(self, looked_at: Sequence[_Known], logged: _Latest) -> _Latest:
        """Leave out what was logged before a trial was taken up again, maybe by other code."""
        found = dict(logged)
        for trial in (known.trial for known in looked_at):
            if trial.number in self._reopened_ms and trial.run_id in found:
                metrics = found[trial.run_id].items()
                found[trial.run_id] = {name: p for name, p in metrics if self._counts(trial, p)}
        return found

    def _counts(self, trial: Trial, point: MetricPoint) -> bool:
        return point.at_ms >= self._reopened_ms.get(trial.number, point.at_ms)

    def _rows(self, looked_at: Sequence[_Known], latest: _Latest, logged: _Latest) -> list[StoredScore]:
        """Return what is new of their curves.

        Args:
            looked_at: the trials.
            latest: of each metric that counts.
            logged: the same, with what does not: behind it there may be earlier steps that do.
        """
        setting = self._setting
        if setting is None:
            return []
        points = {
            known.trial.run_id: point
            for known in looked_at
            if (point := latest.get(known.trial.run_id, {}).get(setting.metric)) is not None
        }
        wanted = [
            known
            for known in looked_at
            if (last := logged.get(known.trial.run_id, {}).get(setting.metric)) is not None
            and last.step >= known.look_from
        ]
        histories = dict(self._tracker.curve([known.trial.run_id for known in wanted], setting.metric))
        rows: list[StoredScore] = []
        for known in looked_at:
            trial, scores = known.trial, list[Score]()
            if trial.run_id in histories:
                curve = series(point for point in histories[trial.run_id] if self._counts(trial, point))
                scores = kept(setting, trial.point, curve)
                known.look_from = next_step(setting, trial.point, curve)
            if trial.run_id in points:
                now = Score(points[trial.run_id].step, points[trial.run_id].value)
                # Patience alone needs more than the last value.
                scores += [now] if setting.method != "patience" and on_its_own(setting, [now]) else []
            fresh = {score.step: score.value for score in scores if score.step >= 0}
            rows += [
                StoredScore(trial.number, setting.metric, step, value)
                for step, value in sorted(fresh.items())
                if step not in known.scores
            ]
        return rows

    def _take(self, rows: Iterable[StoredScore]) -> None:
        for row in rows:
            self._known[row.number].scores[row.step] = row.value
            self._known[row.number].scored_at = self._now
            self._is_news = True
        for number in {row.number for row in rows}:
            self._look_at(self._known[number])

    def _settle(self, looked_at: Sequence[_Known], latest: _Latest) -> None:
        for known in looked_at:
            if known.trial.run_id in latest:
                names = latest[known.trial.run_id].keys()
                self.unseen.look(names, has_ended=_says_what_is_logged(known.trial, names))
            if known.trial.state.is_final:
                known.is_read = self._is_news = True

    def _keep(self, trial: Trial) -> None:
        known = self._known.get(trial.number)
        if known is None:
            known = self._known[trial.number] = _Known(trial, self._stored.pop(trial.number, {}))
            self._is_news = True
            if self._setting is not None:
                from_here = known.kept if self._setting.compares else ()
                known.look_from = next_step(self._setting, trial.point, from_here)
            self._look_at(known)
        known.trial, known.is_read = trial, trial.state.is_final and not trial.run_id
        if trial.state.is_final:
            self._open.pop(trial.number, None)
        else:
            self._open[trial.number] = known
        self._is_news |= known.is_read
        if trial.state.is_final and not self._compares and self.unseen.is_settled:
            del self._known[trial.number]
            self._alone.pop(trial.number, None)

    def _look_at(self, known: _Known) -> None:
        found = None if self._setting is None else on_its_own(self._setting, known.kept)
        if found is not None:
            score, words = found
            self._alone[known.trial.number] = Stop(score.step, score.value, words)

    # Judging

    def orders(self, *, planned: int | None, may_start: bool) -> Orders:
        """Return which trials are to be stopped, and which wait at a rung.

        Args:
            planned: trials of the sweep, None when not known yet.
            may_start: whether trials that never started still may.
        """
        if self._tracker.is_off:
            return NO_ORDERS
        if self._is_news or self._judged_for != (planned, may_start):
            self._judged = self._judge(self._coming(planned) if may_start else 0, may_start=may_start)
            self._judged_for, self._is_news = (planned, may_start), False
        by_point, verdicts = self._judged
        stops: dict[int, str] = {}
        waits: dict[int, str] = {}
        for number, known in self._open.items() if self._alone or by_point or verdicts else ():
            point = known.trial.point if self._is_compared(known) else None
            stop = self._alone.get(number) or (None if point is None else by_point.get(point))
            if stop is not None:
                stops[number] = f"stopped at step {stop.step}: {stop.words}"
            elif point is not None and verdicts.get(point) is Verdict.WAITS and known.scores:
                waits[number] = f"waits at step {max(known.scores)} until it is known who goes on"
        self.held = sum(self._known[number].trial.state is State.PENDING for number in waits)
        return Orders(stops, waits, self._pausable(waits), self.unseen.words)

    def _pausable(self, waits: Collection[int]) -> frozenset[int]:
        """Return those that lose nothing by waiting, since they have a checkpoint to go on from."""
        running = [n for n in waits if self._known[n].trial.state is State.RUNNING]
        return frozenset(n for n in running if self._is_saved(self._known[n]))

    def _is_saved(self, known: _Known) -> bool:
        step = max(known.scores)
        if known.scored_at is None:
            # An earlier driver stored it, at a time that nobody kept.
            known.scored_at = self._now
        if known.saved_step != step and self._now >= known.ask_at:
            known.ask_at = self._now + _SAVED_EVERY_S
            if self._saved(known.trial, step, known.scored_at):
                known.saved_step = step
        return known.saved_step == step

    def _coming(self, planned: int | None) -> int:
        """Return how many points are not there yet; all trials of a point come at once."""
        return _MANY if planned is None else -(-max(0, planned - len(self._known)) // self._replicates)

    def _is_compared(self, known: _Known) -> bool:
        return known.trial.replicate < self._replicates

    def _judge(self, coming: int, *, may_start: bool) -> tuple[Mapping[int, Stop], Mapping[int, Verdict]]:
        setting = self._setting
        if setting is None or not setting.compares:
            return {}, {}
        compared = filter(self._is_compared, self._known.values())
        standings = [self._standing(known, may_start=may_start) for known in compared]
        if setting.resume:
            verdicts, stops = halve(setting, standings, coming=coming)
            return stops, verdicts
        return judge(setting, standings), {}

    def _standing(self, known: _Known, *, may_start: bool) -> Standing:
        trial = known.trial
        never = trial.state is State.PENDING and not trial.attempt and trial.claimed_at is None
        is_open = known.is_open and trial.number not in self._alone and (may_start or not never)
        return Standing(trial.number, trial.point, is_open, known.kept)


def _says_what_is_logged(trial: Trial, names: Collection[str]) -> bool:
    """Whether no further names are to be expected of a trial's program.

    One that did not succeed may have died before it logged anything; what MLflow logs by itself is no sign.
    """
    if trial.state is State.SUCCEEDED:
        return True
    return trial.state.is_final and any(not name.startswith(_OF_THE_SYSTEM) for name in names)

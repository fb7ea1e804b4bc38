"""Driving a sweep from wherever it stands to its end: lease, MLflow parent run, driver, closing."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from airflows.backends.base import KeepsCheckpoints, Packing, WithdrawsRuns, keeper_of
from airflows.backends.places import HasPlaces, place_named
from airflows.checkpoints import newest
from airflows.drivers import Owner, current_owner
from airflows.edits import Edits
from airflows.engine import record
from airflows.engine.adaptive import AdaptiveSource
from airflows.engine.driver import LEASE_TTL_S, Driver, Parts
from airflows.engine.finish import finish
from airflows.engine.judge import Judge
from airflows.engine.judging import Judging
from airflows.engine.lookout import back_off
from airflows.engine.observers import Observer, Shielded
from airflows.engine.rehearsing import Rehearsing
from airflows.engine.results import best_so_far
from airflows.engine.roster import Roster
from airflows.engine.scoring import PATIENCE_S, Scoring
from airflows.engine.site import Site, limits_of, require_host, retry_of
from airflows.engine.source import PointSource, Replicates, Source, open_overrides
from airflows.engine.submission import Submission
from airflows.errors import AirflowsError, BackendUnavailableError, TrackingUnavailableError
from airflows.ledger import Lease, SweepRow, Wish
from airflows.planner import Rules, Tally
from airflows.planning import PlaceRule
from airflows.rehearsal.script import Script
from airflows.relief import relief_note
from airflows.retry import NO_RETRIES
from airflows.space import expand
from airflows.spec import ADAPTIVE
from airflows.stopping.setting import setting_of
from airflows.trial import IN_FLIGHT, State, Trial

_LAST_LINES = 20
# While it waits for MLflow alone, it must still see soon that it is to pause.
_LONGEST_WAIT_S = 5.0


@dataclass(slots=True)
class Drive:
    """One driver's hold on one sweep.

    Attributes:
        site: what the sweep works with.
        clock: seconds since the epoch, UTC.
        new_token: makes a new lease token for every call.
        owner: who drives; default this process.
        only_cancels: carry out what people asked to cancel, start nothing, and return.
        keeps_wish: `pause` is no person's wish: whoever comes next may drive on.
    """

    site: Site
    observer: Observer
    clock: Callable[[], float] = time.time
    new_token: Callable[[], str] = lambda: uuid.uuid4().hex
    owner: Owner = field(default_factory=current_owner)
    only_cancels: bool = False
    keeps_wish: bool = False
    driver: Driver | None = None
    is_paused: bool = False
    _note: str = ""
    _recorded: SweepRow | None = None

    def pause(self) -> None:
        """Stop driving soon; what runs goes on. Safe from a signal handler."""
        self.is_paused = True
        if self.driver is not None:
            self.driver.pause()

    @property
    def waits_for(self) -> str:
        """What the driver is waiting for, empty when all is well."""
        if self._note or self.driver is None:
            return self._note
        return self.driver.snapshot(self.clock()).note

    def run(self, sweep: str) -> SweepRow:
        """Drive a sweep to its end, or until `pause`; return its row as it stands then.

        Raises:
            LeaseHeldError: somebody else drives it.
            BackendUnavailableError: its trials are processes of another machine.
            LeaseLostError: somebody else took over in the middle.
            TrackingUnavailableError: MLflow was away for long and nothing else was left to do.
        """
        ledger = self.site.ledger
        lease = ledger.hold(sweep, self.owner, now=self.clock(), ttl_s=LEASE_TTL_S, token=self.new_token())
        try:
            row = ledger.sweep(sweep)
            if row.ended_at is None:
                require_host(ledger, row, now=self.clock())
                self._drive(row, lease)
        finally:
            self._let_go(lease)
        return ledger.sweep(sweep)

    def _let_go(self, lease: Lease) -> None:
        ledger = self.site.ledger
        # The record first, and only one's own: once the lease is free, the next driver writes its name there.
        if self._recorded is not None and ledger.sweep(lease.sweep).lease_token == lease.token:
            record.keep_all(self.site.roots, self._recorded, None)
        ledger.release(lease)

    def _drive(self, row: SweepRow, lease: Lease) -> None:
        ledger = self.site.ledger
        if row.wish is Wish.PAUSED and not self.only_cancels:
            ledger.update_sweep(lease, wish=Wish.RUN)
        self._open_tracking(row, lease)
        row = self._recorded = ledger.sweep(row.id)
        record.keep_all(self.site.roots, row, self.owner)
        self.driver = self.build(row, lease)
        if self.is_paused:
            self.driver.pause()
        with self.driver.keeping_lease():
            wish = self.driver.run()
            is_over = wish is not Wish.PAUSED and self._finish(row.id, lease, wish)
        if not (is_over or self.only_cancels or self.keeps_wish):
            ledger.update_sweep(lease, wish=Wish.PAUSED)

    def _finish(self, sweep: str, lease: Lease, wish: Wish) -> bool:
        """Finish, and ask an MLflow that does not answer again for some minutes; False when paused.

        Raises:
            TrackingUnavailableError: it has not answered for five minutes; what is left may be done later.
        """
        began, times = self.clock(), 0
        while True:
            try:
                finish(self.site, sweep, lease, wish, now=self.clock())
            except TrackingUnavailableError as exc:
                if self.clock() - began >= PATIENCE_S:
                    raise
                self._tell(str(exc))
            else:
                return True
            if self.is_paused or self.only_cancels:
                return False
            self.site.backend.wait(min(back_off(times), _LONGEST_WAIT_S))
            times += 1

    def _tell(self, note: str) -> None:
        self._note = note
        if self.driver is not None:
            Shielded(self.observer).on_tick(replace(self.driver.snapshot(self.clock()), note=note))

    def _open_tracking(self, row: SweepRow, lease: Lease) -> None:
        try:
            opened = self.site.open_tracking(row)
        except TrackingUnavailableError:
            # Runs that are to be cancelled must not go on because MLflow is away.
            if not (self.only_cancels or row.wish is Wish.STOP):
                raise
            self.site.attach_tracking(row)
            return
        if opened.parent_run_id != row.parent_run_id:
            self.site.ledger.update_sweep(
                lease, experiment_id=opened.experiment_id, parent_run_id=opened.parent_run_id
            )

    def build(self, row: SweepRow, lease: Lease) -> Driver:
        """Rebuild a driver from the ledger, wherever the last one ended."""
        site, ledger = self.site, self.site.ledger
        if not all(place.own.capabilities.shares_host for place in site.places):
            ledger.survive_power_cuts()
        submission = Submission(
            site.sweep.base.tree,
            lambda place: site.launcher(row, place),
            site.tracker,
            site.backend,
            self.clock,
            site.spec.retry.on_out_of_memory or {},
        )
        submission.pack = site.spec.pack
        submission.ran_out_of_memory(ledger.ran_out_of_memory(row.id))
        for attempt in ledger.ended_attempts(row.id):
            submission.hosts.add(attempt)
        counts = ledger.counts(row.id)
        created = sum(counts.values())
        replicates = Replicates(site.spec)
        open_trials = ledger.trials(row.id, states=[State.PENDING, *IN_FLIGHT])
        overrides = open_overrides(ledger, row.id, open_trials, replicates)
        tally = Tally(
            started=ledger.started_count(row.id),
            signatures=ledger.first_failures(row.id, row.resumed_at or row.created_at),
            accelerator_s=sum(ledger.accelerator_seconds(row.id).values()),
        )
        orphaned = Edits.from_text(row.edits).orphaned
        failed = ledger.trials(row.id, states=[State.FAILED]) if orphaned else []
        roster = Roster(counts, tally, orphaned, sum(trial.point in orphaned for trial in failed))
        roster.load(open_trials, overrides)
        submission.doubt([trial for trial in open_trials if trial.state is State.SUBMITTING])
        source = self._source(row, created)
        scoring = Scoring(
            site.tracker,
            site.spec.all_objectives,
            self._last_lines,
            lambda trial: relief_note(submission.relief(trial.number)),
        )
        scoring.best = best_so_far(ledger, row, site.spec)
        scoring.take_over(ledger.trials(row.id, open_only=True))
        judging: Judge = Judging(
            site.tracker,
            setting_of(site.spec),
            [objective.metric for objective in site.spec.all_objectives],
            lambda trial, step, since: self._has_saved(submission, trial, step, since),
            replicates.count,
        )
        script = Script.of_tags(site.spec.tracking.tags)
        if script is not None:
            judging = Rehearsing(script, site.tracker, site.backend, lambda t: self._newest(submission, t)[0])
        judging.take_over(ledger, row.id)
        parts = Parts(ledger, site.backend, submission, scoring, source, roster, judging, self.clock)
        parts.observer = self.observer
        return Driver(row, parts, lease, self._rules(row, lease), only_cancels=self.only_cancels)

    def _source(self, row: SweepRow, created: int) -> Source:
        site = self.site
        if site.spec.method in ADAPTIVE:
            return AdaptiveSource(site.ledger, row, site.sweep, created, site.room)
        return PointSource(row, expand(site.sweep), site.spec, created)

    def _has_saved(self, submission: Submission, trial: Trial, step: int, since: float) -> bool:
        """Whether a trial has a checkpoint of a step or later; without a step in its name, one made since."""
        path, saved = self._newest(submission, trial)
        if not path or saved >= 0:
            return bool(path) and saved >= step
        try:
            # When a file was made that is out of our sight is not known.
            return self._keeper(trial) is None and Path(path).stat().st_mtime > since
        except OSError:
            return False

    def _newest(self, submission: Submission, trial: Trial) -> tuple[str, int]:
        """Return (path, step) of a trial's newest checkpoint; an empty path where none is known."""
        keeper = self._keeper(trial)
        look = newest if keeper is None else keeper.newest_checkpoint
        try:
            return look(*submission.checkpoints(trial.number)) or ("", -1)
        except (BackendUnavailableError, OSError):
            return "", -1

    def _keeper(self, trial: Trial) -> KeepsCheckpoints | None:
        return keeper_of(place_named(self.site.backend, trial.backend).own)

    def _last_lines(self, trial: Trial) -> list[str]:
        if trial.handle is None:
            return []
        try:
            return list(self.site.backend.logs(trial.handle, node=0, follow=False, lines=_LAST_LINES))
        except (AirflowsError, OSError):
            return []

    def _place_rules(self) -> tuple[PlaceRule, ...]:
        backend, config = self.site.backend, self.site.sweep.base.config
        if not isinstance(backend, HasPlaces):
            return ()
        return tuple(
            PlaceRule(place.name, backend.room_at(place, config), place.own.capabilities.visibility_lag_s)
            for place in backend.places
        )

    def _rules(self, row: SweepRow, lease: Lease) -> Rules:
        site = self.site
        can = site.backend.capabilities
        return Rules(
            limits=limits_of(site.spec, site.room, row.total),
            retry=NO_RETRIES if can.retries_itself else retry_of(site.spec, site.sweep.base.tree),
            since=max(self.clock(), lease.doubt_until),
            settle_s=can.visibility_lag_s,
            idempotent=can.idempotent_submit,
            backend=site.backend.name,
            strict=site.spec.strict,
            queue=can.slots if can.queues_itself and site.spec.method not in ADAPTIVE else 0,
            places=self._place_rules(),
            after_s=site.backend.after_s if isinstance(site.backend, HasPlaces) else 0.0,
            withdraws=frozenset(p.name for p in site.places if isinstance(p.own, WithdrawsRuns)),
            pack=site.spec.pack if can.packing is Packing.ALLOCATIONS else 1,
        )

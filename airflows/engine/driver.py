"""The shell around `plan`: look, decide, write down, carry out, write down.

`Driver.tick` is the whole of watching and the whole of crash recovery: it may die between any two of
its calls, and the next driver's first tick goes on from what the ledger, the backend and MLflow say.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from airflows import ids
from airflows.backends.base import Backend
from airflows.engine.batching import batches
from airflows.engine.judge import Judge
from airflows.engine.lookout import back_off
from airflows.engine.lookouts import Lookouts
from airflows.engine.observers import Observer, Shielded, Silent, Snapshot
from airflows.engine.roster import Roster
from airflows.engine.scoring import Scoring
from airflows.engine.source import Source
from airflows.engine.submission import Outcome, Submission
from airflows.errors import AirflowsError, LeaseLostError
from airflows.hosts import EndedAttempt, avoiding_words
from airflows.ledger import Change, Lease, Ledger, SweepRow, Wish
from airflows.planner import Orders, Plan, Rules, View, plan
from airflows.relief import relief_words
from airflows.trial import Event, EventKind, Reason, State, Trial, advance

LEASE_TTL_S = 30.0
_RENEW_EVERY_S = 5.0
_CHUNK = 500
_MANY = 500
_WISH_EVERY_S = 1.0
_FAILED = "failed: "


@dataclass(slots=True)
class Parts:
    """What a driver works with, each replaceable.

    Attributes:
        ledger: the durable record.
        backend: where trials run.
        submission: makes MLflow runs and launch directories and submits.
        scoring: reads metrics and ends MLflow runs.
        source: where further trials come from.
        roster: the open trials, as the ledger has them.
        judging: looks at the curves of running trials.
        clock: seconds since the epoch, UTC.
        observer: is told what happens.
    """

    ledger: Ledger
    backend: Backend
    submission: Submission
    scoring: Scoring
    source: Source
    roster: Roster
    judging: Judge
    clock: Callable[[], float]
    observer: Observer = field(default_factory=Silent)


class Driver:
    """Drives one sweep while it holds the lease. Disposable: all that matters is in the ledger."""

    def __init__(
        self, row: SweepRow, parts: Parts, lease: Lease, rules: Rules, *, only_cancels: bool = False
    ) -> None:
        self._row = row
        self._ledger = parts.ledger
        self._backend = parts.backend
        self._submission = parts.submission
        self._submission.fence(self._check_lease)
        self._scoring = parts.scoring
        self._clock = parts.clock
        self._observer = Shielded(parts.observer)
        self._lease = lease
        self._rules = rules
        self._source = parts.source
        self._roster = parts.roster
        self._judging = parts.judging
        self._lookout = Lookouts(
            row.id, parts.backend, parts.submission, parts.roster, parts.clock, parts.scoring.latest_step
        )
        self._only_cancels = only_cancels
        self._wish = row.wish
        self._requests = -1
        self._wishes_at = 0.0
        self._cancels: set[int] = set()
        self._halted = row.halted
        self._place_from = 0.0
        self._refusals = 0
        self._note = ""
        self._has_moved = False
        self._renewed_at = time.monotonic()
        self._paused = threading.Event()
        self._lease_lost = threading.Event()

    # The loop

    def run(self) -> Wish:
        """Tick until nothing is left to do or `pause` is called; return what became of it.

        Returns:
            PAUSED when paused, else the sweep's wish at its end: everything is final, or halted.

        Raises:
            LeaseLostError: another driver took over.
            TrackingUnavailableError: only MLflow is still missing, and it has not answered for long.
            LedgerError: the ledger cannot be written.
        """
        while not self._paused.is_set():
            if not self.tick():
                self._wait()
            elif not self._was_overtaken():
                return self._wish
        return Wish.PAUSED

    def _was_overtaken(self) -> bool:
        """Whether somebody has asked for something since the last look, which is then taken again."""
        if self._ledger.wishes(self._row.id)[1] == self._requests:
            return False
        self._wishes_at = float("-inf")
        return True

    @contextmanager
    def keeping_lease(self) -> Iterator[None]:
        """Renew the lease meanwhile, in a thread of its own."""
        stop = threading.Event()
        renewer = threading.Thread(target=self._renew, args=(stop,), daemon=True, name="lease")
        renewer.start()
        try:
            yield
        finally:
            stop.set()
            renewer.join()

    def pause(self) -> None:
        """Ask `run` to return after the current tick; runs go on. Safe from a signal handler."""
        self._paused.set()

    def tick(self) -> bool:
        """Do all that can be done now; return whether nothing is left to do."""
        self._check_lease()
        self._has_moved = False
        now = self._clock()
        self._look_at_wishes(now)
        self._expand()
        self._judging.look(self._ledger, self._lease, now)
        made = plan(self._view(now))
        claimed = self._write(made, now)
        self._lookout.cancel(self._roster.in_flight.values(), now)
        self._lookout.keep_from_hosts(self._roster.in_flight.values(), now)
        self._submit(claimed, now, made.throttle)
        # A method that learns may have nothing to do before it knows the values.
        is_idle = made.done or not (self._roster.in_flight or self._roster.waiting)
        self._scoring.work(self._ledger, self._lease, now, idle=is_idle)
        self._observer.on_tick(self.snapshot(now))
        if self._only_cancels and self._wish is not Wish.STOP and not self._has_cancels():
            self.pause()
        return made.done and not self._scoring.is_open

    def _check_lease(self) -> None:
        """Return if nobody can have taken over: called before anything that no later write can take back.

        Raises:
            LeaseLostError: another driver has the sweep.
        """
        if self._lease_lost.is_set():
            message = f"another driver has taken over sweep {self._row.id}; this one stops."
            raise LeaseLostError(message)
        if time.monotonic() - self._renewed_at > LEASE_TTL_S / 2:
            # This process was held up for long, or the ledger did not answer the thread that renews.
            self._renew_lease()

    def _renew_lease(self) -> None:
        asked_at = time.monotonic()
        self._ledger.renew(self._lease, now=self._clock(), ttl_s=LEASE_TTL_S)
        self._renewed_at = asked_at

    def _has_cancels(self) -> bool:
        in_flight = self._roster.in_flight
        waiting = any(n in in_flight or self._roster.pending(frozenset({n})) for n in self._cancels)
        return waiting or any(t.state is State.STOPPING for t in in_flight.values())

    def snapshot(self, now: float) -> Snapshot:
        """Return how the sweep stands."""
        created = sum(self._roster.counts.values())
        total = created if self._source.is_exhausted else self._row.total
        note = self._lookout.note or self._note or self._scoring.note or self._judging.note
        avoided, unseen = self._submission.hosts.avoided, self._judging.unseen.words
        best = self._scoring.best
        return Snapshot(self._row.id, now, total, +self._roster.counts, best, note, avoided, unseen)

    def _renew(self, stop: threading.Event) -> None:
        while not stop.wait(_RENEW_EVERY_S):
            try:
                self._renew_lease()
            except LeaseLostError:
                self._lease_lost.set()
                return
            except AirflowsError:
                # The ledger did not answer; the fence in the next write decides, not this thread.
                continue

    def _wait(self) -> None:
        if self._has_moved and (self._wish is Wish.STOP or not self._roster.in_flight):
            return
        now = self._clock()
        due = self._roster.next_due()
        # A look at many runs costs more, and the wait ends by itself when one of them does.
        longest = _WISH_EVERY_S * (2 if len(self._roster.in_flight) >= _MANY else 1)
        timeout = longest if due is None else max(0.0, min(longest, max(due, self._place_from) - now))
        if self._scoring.is_open:
            timeout = min(timeout, self._scoring.due_in(now))
        self._backend.wait(timeout)

    # Looking

    def _look_at_wishes(self, now: float) -> None:
        if 0 <= now - self._wishes_at < _WISH_EVERY_S / 2 and self._requests >= 0:
            return
        self._wishes_at = now
        self._wish, requests = self._ledger.wishes(self._row.id)
        if requests != self._requests:
            self._requests = requests
            self._cancels = self._ledger.cancel_requests(self._row.id)

    def _expand(self) -> None:
        if self._halted or self._wish is not Wish.RUN or self._only_cancels:
            return
        enough = max(self._rules.limits.concurrent, self._rules.queue) + _CHUNK // 2
        # What waits at a rung may wait for trials that are not there yet.
        while most := self._source.room(self._roster.waiting - self._judging.held, enough):
            chunk = self._source.next(most)
            self._ledger.add_points(self._lease, chunk.points, chunk.trials, **chunk.progress)
            self._roster.add(chunk.trials, chunk.overrides)
            self._judging.expect(chunk.trials)

    def _view(self, now: float) -> View:
        in_flight = list(self._roster.in_flight.values())
        counts_s = self._rules.limits.accelerator_s is not None
        orders = self._orders()
        ready = self._ready(now, orders.waits)
        if self._wish is Wish.STOP:
            ready = self._roster.all_pending(_CHUNK)
        elif to_end := self._cancels | orders.stops.keys():
            known = {trial.number for trial in ready}
            ready = [*ready, *self._roster.pending(frozenset(to_end - known))]
        return View(
            now=now,
            began_at=self._row.resumed_at or self._row.created_at,
            wish=Wish.PAUSED if self._only_cancels and self._wish is Wish.RUN else self._wish,
            halted=self._halted,
            in_flight=in_flight,
            sightings=self._lookout.look(in_flight, now, self._must_go),
            ready=ready,
            waiting=self._roster.waiting,
            exhausted=self._source.is_exhausted or self._wish is Wish.STOP,
            cancels=frozenset(self._cancels),
            tally=self._roster.tally,
            running_accelerator_s=sum(self._accelerator_s(t, now) for t in in_flight) if counts_s else 0.0,
            rules=self._rules,
            hopeless=self._roster.failed_once() if self._halted.startswith(_FAILED) else (),
            orders=orders,
            silent=self._lookout.silent,
            refused=self._submission.refused,
        )

    def _orders(self) -> Orders:
        created = sum(self._roster.counts.values())
        limit = self._rules.limits.trials
        return self._judging.orders(
            planned=created if self._source.is_exhausted else self._row.total,
            may_start=not limit or self._roster.tally.started < limit,
        )

    def _ready(self, now: float, held: Collection[int]) -> list[Trial]:
        limits = self._rules.limits
        if self._clock() < self._place_from:
            return []
        fresh = None if not limits.trials else limits.trials - self._roster.tally.started
        # One pack is enough to see whether submitting is possible again.
        room = self._rules.pack if self._refusals else max(1, limits.concurrent, self._rules.queue)
        return self._roster.ready(now, room, fresh, held)

    def _overrides_now(self, number: int) -> Mapping[str, Any]:
        """Return what an attempt at a trial has: its overrides, and what relieves it."""
        overrides, relief = self._roster.overrides(number), self._submission.relief(number)
        return {**overrides, **relief} if relief else overrides

    def _token(self, trial: Trial) -> ids.Token:
        return ids.token(ids.SweepId(self._row.id), trial.number, trial.attempt)

    def _accelerator_s(self, trial: Trial, now: float) -> float:
        if trial.started_at is None:
            return 0.0
        return max(0.0, (trial.ended_at or now) - trial.started_at) * self._accelerators(trial)

    def _accelerators(self, trial: Trial) -> float:
        return self._submission.accelerators(self._overrides_now(trial.number), trial.backend)

    def _must_go(self, trial: Trial) -> bool:
        return self._wish is Wish.STOP or trial.number in self._cancels

    # Writing down and carrying out

    def _write(self, made: Plan, now: float) -> list[Trial]:
        """Write the plan's transitions and claims in one transaction; return what is to be submitted."""
        changes = [self._change(trial, event) for trial, event in made.events]
        changes += [self._change(trial, self._claim(trial, made, now)) for trial in made.claims]
        self._apply(changes)
        if made.halt:
            self._halt(made)
        again = {trial.number for trial in made.resubmits}
        return [
            change.after
            for change in changes
            if change.event.kind is EventKind.CLAIMED or change.after.number in again
        ]

    def _claim(self, trial: Trial, made: Plan, now: float) -> Event:
        place = made.places.get(trial.number, self._rules.backend)
        avoided = self._submission.avoided_at(place)
        words = (relief_words(self._submission.relief(trial.number)), avoiding_words(avoided))
        detail = "; ".join(filter(None, words))
        return Event(EventKind.CLAIMED, now, detail=detail, changes=made.claimed(trial, place))

    def _halt(self, made: Plan) -> None:
        self._halted = f"{'stopped: ' if made.spent else _FAILED}{made.halt}"
        self._ledger.update_sweep(self._lease, halted=self._halted, wish=Wish.HALT)
        self._wish = Wish.HALT

    def _change(self, trial: Trial, event: Event) -> Change:
        after = advance(trial, event)
        if self._scoring.is_off and after.state.is_final:
            after = replace(after, closed=True)
        accelerators = self._accelerators(after) if event.kind is EventKind.CLAIMED else 1
        return Change(trial, after, event, self._token(trial), self._row.code, accelerators)

    def _apply(self, changes: Sequence[Change]) -> None:
        if not changes:
            return
        self._ledger.apply(self._lease, changes)
        self._has_moved = True
        for change in changes:
            self._follow(change)
        self._observer.on_changes(changes)

    def _follow(self, change: Change) -> None:
        if change.event.kind in _ATTEMPT_ENDS and change.before.state is not State.PENDING:
            ended = change.event.facts.get("ended_at", change.event.at)
            started = change.event.facts.get("started_at", change.before.started_at)
            if started is not None:
                self._roster.spend(max(0.0, ended - started) * self._accelerators(change.before))
            if change.event.reason is Reason.OUT_OF_MEMORY:
                self._submission.ran_out_of_memory([change.before.number])
            self._submission.hosts.add(EndedAttempt.of(change.before, change.event))
        self._judging.follow(change.after)
        if change.after.state.is_final:
            self._scoring.add(change.after)
            self._cancels.discard(change.after.number)
        self._roster.move(change.before, change.after, change.event)

    def _submit(self, claimed: Sequence[Trial], now: float, throttle: int) -> None:
        error: AirflowsError | None = None
        why_not = ""
        if claimed:
            self._note = ""
        for batch in batches(claimed, self._backend.capabilities.max_batch, throttle, self._rules.pack):
            if why_not:
                outcome = self._submission.hold_back(batch, why_not)
            else:
                overrides = {trial.number: self._roster.overrides(trial.number) for trial in batch}
                outcome = self._submission.submit(batch, overrides, now, throttle)
                self._heed(outcome)
            self._apply([self._change(trial, event) for trial, event in outcome.events])
            error = error or outcome.error
            why_not = why_not or (str(error) if error else outcome.note if outcome.waits else "")
        if error is not None:
            raise error

    def _heed(self, outcome: Outcome) -> None:
        """Place nothing for a while when nothing can be submitted, longer each time."""
        self._note = outcome.note or self._note
        if not outcome.waits:
            self._refusals = 0
            return
        self._place_from = self._clock() + back_off(self._refusals)
        self._refusals += 1


_ENDS = frozenset({EventKind.SUCCEEDED, EventKind.FAILED, EventKind.REJECTED, EventKind.GONE})
_ATTEMPT_ENDS = _ENDS | {EventKind.RETRIED}

"""What a decision needs, and what it comes to: plain values. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflows.backends.base import Observation
from airflows.failures import Verdict
from airflows.ledger.records import Wish
from airflows.retry import NO_PROGRESS, Progress, RetryPolicy
from airflows.trial import Event, Handle, Reason, Trial

PASSED_ON = frozenset({Reason.MOVED, Reason.NO_ROOM})
"""Why a trial goes on behind the place where it was."""

_LEAST_REFUSED_S = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be spent. None and 0 are no limit, but for `concurrent`.

    Attributes:
        concurrent: trials in flight, at least 1.
        trials: most trials ever started.
        failed_trials: this many failed trials end the sweep as failed.
        identical_failures: this many first attempts with one signature, and none succeeded, halt it.
        wall_time_s: seconds since the sweep was started or resumed.
        accelerator_s: accelerator-seconds over all attempts, those still running included.
        cancels: whether a reached limit cancels what runs.
    """

    concurrent: int = 1
    trials: int | None = None
    failed_trials: int | None = None
    identical_failures: int = 3
    wall_time_s: float | None = None
    accelerator_s: float | None = None
    cancels: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """What has happened so far.

    Attributes:
        started: trials that ever had an attempt.
        retrying: those of them that wait for another.
        succeeded: trials.
        failed: trials.
        signatures: how many trials' first failure was each.
        accelerator_s: accelerator-seconds of ended attempts.
    """

    started: int = 0
    retrying: int = 0
    succeeded: int = 0
    failed: int = 0
    signatures: Mapping[str, int] = field(default_factory=dict)
    accelerator_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Sighting:
    """What is known of an in-flight trial now.

    Attributes:
        observation: from `poll`; None when the backend did not say.
        handle: from `find`, for a trial that was being submitted.
        run_id: the MLflow run of such a trial.
        absent: `find` answered and does not know the trial's token.
        doubted_since: since when it is tried to submit such a trial in its place.
        verdict: why it ended, for an ended run that is no clean exit.
        progress: how far it was when it ended.
        relieves: its next attempt would have other values, should it have run out of memory.
        suspects_host: no trial has done well on its host yet, though some did elsewhere.
    """

    observation: Observation | None = None
    handle: Handle | None = None
    run_id: str = ""
    absent: bool = False
    doubted_since: float | None = None
    verdict: Verdict | None = None
    progress: Progress = NO_PROGRESS
    relieves: bool = False
    suspects_host: bool = False


@dataclass(frozen=True, slots=True)
class PlaceRule:
    """One of several places.

    Attributes:
        name: as in `Trial.backend`.
        concurrent: most trials in flight there.
        settle_s: as in `Rules`, there.
    """

    name: str
    concurrent: int
    settle_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Refusals:
    """A row of submissions that one of several places did not let through, and none that it did.

    Attributes:
        first_at: when it began, seconds since the epoch.
        last_at: when the last of them was.
    """

    first_at: float
    last_at: float

    def may_ask_at(self, after_s: float) -> float:
        """Return when a trial may lose its turn elsewhere for another try, ever more seldom.

        Args:
            after_s: as in `Rules`.
        """
        return self.last_at + max(_LEAST_REFUSED_S, after_s, self.last_at - self.first_at)


@dataclass(frozen=True, slots=True)
class Rules:
    """What does not change while a driver lives.

    Attributes:
        limits: of the sweep.
        retry: of the sweep.
        since: nothing that an earlier driver sends is sent later than this, seconds since the epoch.
        settle_s: seconds after a claim, and after `since`, before a run that cannot be found counts as
            never submitted; each of several places has its own.
        idempotent: submitting again is safe before that.
        backend: the backend's name, written with each attempt.
        strict: nothing new starts once it is known that the metric is not logged under its name.
        queue: most trials in flight on a backend that queues by itself and is given them whole, so that they
            run to their ends with no driver alive; 0 where it does not.
        pack: so many trials that are submitted together are one allocation of the backend.
        places: where trials may go, in order; empty where there is only one place.
        after_s: how long a trial waits in the queue of one of several places before it is moved on.
        withdraws: the backends that can take out of their queue what waits, and leave alone what has started.
    """

    limits: Limits
    retry: RetryPolicy
    since: float
    settle_s: float
    idempotent: bool
    backend: str
    queue: int = 0
    strict: bool = False
    pack: int = 1
    places: tuple[PlaceRule, ...] = ()
    after_s: float = 0.0
    withdraws: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Orders:
    """What the stopping rule says.

    Attributes:
        stops: why trials are to be stopped, by number.
        waits: what trials wait for that nobody starts until then, by number.
        pauses: those of the waiting ones that run and are to be taken off.
        unseen: that the metric is logged under no name that the file has, empty while that is not known.
    """

    stops: Mapping[int, str] = field(default_factory=dict)
    waits: Mapping[int, str] = field(default_factory=dict)
    pauses: frozenset[int] = frozenset()
    unseen: str = ""


NO_ORDERS = Orders()


@dataclass(frozen=True, slots=True)
class View:
    """Everything a decision needs, at one time.

    Attributes:
        now: seconds since the epoch, UTC.
        began_at: when the sweep was started or last resumed.
        wish: what people want.
        halted: why nothing new starts any more, empty while it does.
        in_flight: trials that a backend may hold.
        sightings: by trial number; a missing one is unknown.
        ready: PENDING trials that may start now, lowest number first, at least as many as there is room.
        waiting: PENDING trials in all, ready or not.
        exhausted: no further points will come.
        cancels: trials that a person asked to cancel.
        tally: what has happened so far.
        running_accelerator_s: accelerator-seconds of the attempts that run now.
        rules: what does not change.
        orders: what the stopping rule says.
        hopeless: PENDING trials whose own failure would have been followed by another attempt, had the sweep
            not failed as a whole.
        silent: since when places do not answer, by name.
        refused: places that let nothing through, by name.
    """

    now: float
    began_at: float
    wish: Wish
    halted: str
    in_flight: Sequence[Trial]
    sightings: Mapping[int, Sighting]
    ready: Sequence[Trial]
    waiting: int
    exhausted: bool
    cancels: frozenset[int]
    tally: Tally
    running_accelerator_s: float
    rules: Rules
    hopeless: Sequence[Trial] = ()
    orders: Orders = NO_ORDERS
    silent: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, Refusals] = field(default_factory=dict)


@dataclass(slots=True)
class Plan:
    """The next steps, in the order in which they are carried out.

    Attributes:
        events: transitions to write, at most one a trial.
        claims: PENDING trials to claim (write first) and then submit.
        resubmits: SUBMITTING trials to submit again after writing RECLAIMED.
        places: where each of the claims goes, by number; a missing one goes where all do.
        throttle: most of those submitted now that may run at once, where the backend sees to it; 0 elsewhere.
        halt: why the sweep halts now, empty when it does not.
        spent: the halt is a spending limit, so the sweep ends as stopped rather than failed.
        done: nothing is left to do.
    """

    events: list[tuple[Trial, Event]] = field(default_factory=list)
    claims: list[Trial] = field(default_factory=list)
    resubmits: list[Trial] = field(default_factory=list)
    places: dict[int, str] = field(default_factory=dict)
    throttle: int = 0
    halt: str = ""
    spent: bool = False
    done: bool = False

    def claimed(self, trial: Trial, place: str) -> dict[str, Any]:
        """Return what a claim for a place changes of a trial; what was passed on stays so until sent."""
        kept = {"reason": trial.reason} if self.places and trial.reason in PASSED_ON else {}
        return {"backend": place, **kept}

"""What to do next: `plan(view)` looks at everything known and returns the next steps. Pure.

It decides placement, retries, limits and halting. It never decides from "I could not find out": a trial
without a sighting stays as it is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from airflows.backends.base import Observation, Phase
from airflows.ledger.records import Wish
from airflows.placing import LEAVES, Rooms, in_order_of_placing, move_on
from airflows.planning import NO_ORDERS, Limits, Orders, Plan, Rules, Sighting, Tally, View
from airflows.retry import after_failure
from airflows.trial import Event, EventKind, Reason, State, Trial

__all__ = [
    "CANCELLED",
    "NO_ORDERS",
    "Limits",
    "Orders",
    "Plan",
    "Rules",
    "Sighting",
    "Tally",
    "View",
    "is_first_failure",
    "plan",
]

CANCELLED = "CANCELLED"
"""A scheduler's word for a run that a person ended there; our own cancels are asked for before."""


def plan(view: View) -> Plan:
    """Return the next steps for what is known now."""
    made = Plan()
    _follow(view, made)
    made.halt, made.spent = _halting(view, made)
    _stop(view, made)
    _stop_early(view, made)
    _give_up(view, made)
    _take_back(view, made)
    rooms = Rooms(view, made) if view.rules.places else None
    _place(view, made, rooms)
    if rooms is not None:
        move_on(view, made, rooms)
    made.done = _is_done(view, made)
    return made


def _follow(view: View, made: Plan) -> None:
    """Turn sightings into transitions."""
    for trial in view.in_flight:
        seen = view.sightings.get(trial.number)
        if seen is None:
            continue
        if trial.state is State.SUBMITTING:
            _follow_submission(view, trial, seen, made)
        elif seen.observation is not None and (event := _next_event(view, trial, seen)) is not None:
            made.events.append((trial, event))


def _follow_submission(view: View, trial: Trial, seen: Sighting, made: Plan) -> None:
    if seen.handle is not None:
        known = {"run_id": seen.run_id or trial.run_id}
        accepted = Event(EventKind.ACCEPTED, view.now, facts={"handle": seen.handle}, changes=known)
        made.events.append((trial, accepted))
    elif seen.absent:
        is_settled = _is_settled(view, trial)
        is_wanted = view.wish is Wish.RUN and not view.halted and trial.number not in view.cancels
        if is_settled and is_wanted and _is_in_vain(view, seen):
            detail = f"{trial.backend} let no submission of it through."
            made.events.append((trial, Event(EventKind.UNSENT, view.now, Reason.NO_ROOM, detail)))
        elif is_wanted and (is_settled or view.rules.idempotent):
            made.events.append((trial, Event(EventKind.RECLAIMED, view.now)))
            made.resubmits.append(trial)
        elif is_settled:
            made.events.append((trial, Event(EventKind.UNSENT, view.now, Reason.UNSENT)))


def _is_in_vain(view: View, seen: Sighting) -> bool:
    """Whether a submission has been tried in one of several places for as long as a trial waits there."""
    since = view.now if seen.doubted_since is None else seen.doubted_since
    return bool(view.rules.places) and view.now - since >= view.rules.after_s


def _is_settled(view: View, trial: Trial) -> bool:
    """Whether a submission that `find` does not know can no longer be on its way."""
    rules = view.rules
    settle_s = next((each.settle_s for each in rules.places if each.name == trial.backend), rules.settle_s)
    return view.now >= max(trial.claimed_at or 0.0, rules.since) + settle_s


def _next_event(view: View, trial: Trial, seen: Sighting) -> Event | None:
    observation = seen.observation
    if observation is None or observation.phase in {Phase.UNKNOWN, Phase.QUEUED}:
        return None
    if observation.phase is Phase.RUNNING:
        if trial.state is State.STOPPING and _may_stay(view, trial):
            return _started_after_all(view, observation)
        if trial.state is not State.QUEUED:
            return None
        return Event(EventKind.STARTED, view.now, facts=_facts(observation), changes=_changes(observation))
    return _end(view, trial, seen, observation)


def _may_stay(view: View, trial: Trial) -> bool:
    """Whether a trial was only to be taken out of the queue, so that it goes on if it has started."""
    return trial.reason is Reason.MOVED and trial.backend in view.rules.withdraws


def _started_after_all(view: View, observation: Observation) -> Event:
    facts = {name: value for name, value in _facts(observation).items() if name != "exit_code"}
    detail = "It started before it was taken out of the queue."
    return Event(EventKind.STARTED, view.now, detail=detail, facts=facts, changes=_changes(observation))


def _end(view: View, trial: Trial, seen: Sighting, observation: Observation) -> Event | None:
    facts = {"ended_at": observation.ended_at or view.now} | _facts(observation)
    changes = _changes(observation)
    if observation.exit_code == 0 and not observation.word:
        return Event(EventKind.SUCCEEDED, view.now, facts=facts, changes=changes)
    if trial.state is State.STOPPING:
        return _stopped(view, trial, observation, facts)
    if observation.word == CANCELLED:
        # Somebody wanted it: it is seen gone at the next look.
        return Event(EventKind.STOP_ASKED, view.now, Reason.USER, "It was cancelled outside of airflows.")
    if seen.verdict is None:
        return None
    policy = replace(view.rules.retry, relieves=seen.relieves, suspects_host=seen.suspects_host)
    failed = after_failure(trial, seen.verdict, seen.progress, policy, view.now)
    return Event(failed.kind, failed.at, failed.reason, failed.detail, facts, {**failed.changes, **changes})


def _stopped(view: View, trial: Trial, observation: Observation, facts: dict[str, Any]) -> Event:
    never_ran = observation.exit_code is None and observation.word == CANCELLED
    if trial.reason is Reason.MOVED and never_ran:
        # What the scheduler tells as its start is when it was taken out.
        return Event(EventKind.GONE, view.now, trial.reason, facts={"ended_at": facts["ended_at"]})
    if not never_ran and _may_stay(view, trial):
        # At the next look it is told like any other end.
        return _started_after_all(view, observation)
    return Event(EventKind.GONE, view.now, trial.reason, facts=facts, changes=_changes(observation))


def _facts(observation: Observation) -> dict[str, object]:
    facts = {
        "host": observation.host or None,
        "resumed_from": observation.resumed_from or None,
        "started_at": observation.started_at,
        "exit_code": observation.exit_code,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _changes(observation: Observation) -> dict[str, Any]:
    """Return what an observation says of the trial rather than of its attempt: the service's MLflow run."""
    return {"run_id": observation.mlflow_run_id} if observation.mlflow_run_id else {}


def _halting(view: View, made: Plan) -> tuple[str, bool]:
    """Return (why the sweep halts now, whether by a spending limit)."""
    if view.halted or view.wish is not Wish.RUN:
        return "", False
    return _systematic(view, made) or _spent(view) or ("", False)


def _systematic(view: View, made: Plan) -> tuple[str, bool] | None:
    limits, tally = view.rules.limits, view.tally
    if view.rules.strict and view.orders.unseen:
        return f"{view.orders.unseen} (strict: true)", False
    failed = tally.failed + sum(event.kind is EventKind.FAILED for _, event in made.events)
    if limits.failed_trials and failed >= limits.failed_trials:
        return f"{failed} trials failed, which is the limit (limits.failed_trials)", False
    succeeded = tally.succeeded or any(event.kind is EventKind.SUCCEEDED for _, event in made.events)
    if not limits.identical_failures or succeeded:
        return None
    signatures = Counter(tally.signatures)
    signatures.update(
        event.changes["signature"] for trial, event in made.events if is_first_failure(trial, event)
    )
    for signature, count in signatures.most_common(1):
        if count >= limits.identical_failures:
            return f"the first {count} trials to fail all ended alike, and none succeeded: {signature}", False
    return None


def is_first_failure(trial: Trial, event: Event) -> bool:
    """Whether the event is the first failure of a trial's own since it was started or resumed."""
    kinds = {EventKind.RETRIED, EventKind.FAILED, EventKind.REJECTED}
    return event.kind in kinds and not trial.errors and bool(event.changes.get("signature"))


def _spent(view: View) -> tuple[str, bool] | None:
    limits, tally = view.rules.limits, view.tally
    waits = view.waiting > 0 or not view.exhausted or bool(_queued(view))
    if not waits and not (limits.cancels and view.in_flight):
        return None
    # The started ones have their retries, which is no reason to start others.
    is_idle = not view.in_flight and not tally.retrying
    if is_idle and limits.trials and tally.started >= limits.trials:
        return f"{tally.started} trials were started, which is the limit (limits.trials)", True
    if limits.wall_time_s and view.now - view.began_at >= limits.wall_time_s:
        return "the wall time is used up (limits.wall_time)", True
    used = tally.accelerator_s + view.running_accelerator_s
    if limits.accelerator_s and used >= limits.accelerator_s:
        return "the accelerator-hours are used up (limits.accelerator_hours)", True
    return None


def _queued(view: View) -> list[Trial]:
    """Return the trials that wait on a backend that was given all of them, or in one of several places."""
    may_wait = view.rules.queue or view.rules.places
    return [trial for trial in view.in_flight if may_wait and trial.state is State.QUEUED]


def _take_back(view: View, made: Plan) -> None:
    """Take those that still wait out of the backend's queue once nothing new may start."""
    if not (view.halted or made.halt) or view.wish in {Wish.STOP, Wish.PAUSED}:
        return
    moved = {trial.number for trial, _ in made.events}
    for trial in _queued(view):
        if trial.number not in moved:
            made.events.append((trial, Event(EventKind.STOP_ASKED, view.now, Reason.MOVED)))


def _stop(view: View, made: Plan) -> None:
    """Ask the runs to end that a person, a wish or a limit wants gone."""
    everything = view.wish is Wish.STOP
    by_limit = bool(view.halted or made.halt) and view.rules.limits.cancels
    if not (everything or by_limit or view.cancels):
        return
    moved = {trial.number for trial, _ in made.events}
    for trial in (*view.in_flight, *view.ready):
        asked = everything or trial.number in view.cancels
        stoppable = trial.state in {State.PENDING, State.QUEUED, State.RUNNING} and trial.number not in moved
        if stoppable and asked:
            made.events.append((trial, Event(EventKind.STOP_ASKED, view.now, Reason.USER)))
        elif stoppable and by_limit and trial.state is not State.PENDING:
            made.events.append((trial, Event(EventKind.STOP_ASKED, view.now, Reason.LIMIT)))


def _stop_early(view: View, made: Plan) -> None:
    """Ask the runs to end that the stopping rule has judged, and take off those that wait at a rung."""
    orders = view.orders
    if view.wish is Wish.PAUSED or not (orders.stops or orders.pauses):
        return
    # What is taken off comes back only where something may still start.
    goes_on = view.wish is Wish.RUN and not (view.halted or made.halt)
    moved = {trial.number for trial, _ in made.events}
    for trial in (*view.in_flight, *view.ready):
        if trial.number in moved or trial.state not in {State.PENDING, State.QUEUED, State.RUNNING}:
            continue
        if trial.number in orders.stops:
            words = orders.stops[trial.number]
            made.events.append((trial, Event(EventKind.STOP_ASKED, view.now, Reason.RULE, words)))
        elif goes_on and trial.number in orders.pauses and trial.state is State.RUNNING:
            words = orders.waits[trial.number]
            made.events.append((trial, Event(EventKind.STOP_ASKED, view.now, Reason.PAUSED, words)))


def _give_up(view: View, made: Plan) -> None:
    """Let the trials fail for good whose further attempts will not come."""
    moved = {trial.number for trial, _ in made.events}
    for trial in view.hopeless:
        if trial.number not in moved:
            detail = f"{trial.message.rstrip('.')}; not tried again, because the whole sweep was halted"
            made.events.append((trial, Event(EventKind.FAILED, view.now, trial.reason, detail)))


def _place(view: View, made: Plan, rooms: Rooms | None) -> None:
    """Claim ready trials while there is room."""
    if view.wish is not Wish.RUN or view.halted or made.halt:
        return
    # What leaves one place for another has its own turn again at once, and nothing else takes it.
    freed = sum(event.kind in LEAVES and not _is_moved(trial, event) for trial, event in made.events)
    limits, queue = view.rules.limits, view.rules.queue
    room = limits.concurrent - (len(view.in_flight) - freed)
    if queue:
        pack = min(view.rules.pack, limits.concurrent)
        made.throttle = max(pack, room + len(made.resubmits))
        may_start = room >= max(1, min(pack, len(view.ready)))
        room = max(room, queue - (len(view.in_flight) - freed)) if may_start else 0
    room = _in_whole_packs(view, room)
    fresh_left = None if not limits.trials else limits.trials - view.tally.started
    cancelled = {trial.number for trial, _ in made.events}
    for trial in view.ready if rooms is None else in_order_of_placing(view.ready):
        if len(made.claims) >= room:
            return
        if trial.number in cancelled:
            continue
        is_fresh = trial.claimed_at is None and trial.attempt == 0
        if is_fresh and fresh_left is not None and fresh_left <= 0:
            continue
        if rooms is not None:
            place = rooms.take(trial)
            if not place:
                continue
            made.places[trial.number] = place
        if is_fresh and fresh_left is not None:
            fresh_left -= 1
        made.claims.append(trial)


def _is_moved(trial: Trial, event: Event) -> bool:
    return event.kind is EventKind.GONE and trial.reason is Reason.MOVED


def _in_whole_packs(view: View, room: int) -> int:
    """Return the room for trials that are submitted together, rather than one by one as others end.

    An allocation with one trial in it costs as much as one that is full.
    """
    pack = min(view.rules.pack, view.rules.limits.concurrent)
    ready = min(room, len(view.ready))
    is_all = view.exhausted and len(view.ready) <= room
    # With nothing in flight there is nothing to wait for.
    if pack == 1 or is_all or not view.in_flight:
        return room
    return ready - ready % pack


def _is_done(view: View, made: Plan) -> bool:
    if view.in_flight or made.claims or made.events:
        return False
    if made.halt and not made.spent:
        # At the next look it is known which trials that leaves without hope.
        return False
    if view.wish in {Wish.STOP, Wish.HALT} or view.halted or made.halt:
        return True
    return view.exhausted and not view.waiting

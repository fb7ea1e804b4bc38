"""What a driver keeps in memory, against the plain lists it stands for."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflows.engine.roster import Roster
from airflows.planner import Tally, is_first_failure
from airflows.trial import Event, EventKind, Handle, Reason, State, Trial, advance

NOW = 1_700_000_000.0


def trial(number, **fields):
    return Trial("digits-3fa9c1", number, number, 0, **fields)


def filled(count=5, tally=Tally()):  # noqa: B008 - frozen
    roster = Roster({}, tally)
    roster.add([trial(n) for n in range(count)], {n: {"parameters.lr": n} for n in range(count)})
    return roster


def move(roster, before, kind, reason=Reason.NONE, facts=(), changes=()):
    event = Event(kind, NOW, reason, "", dict(facts), dict(changes))
    after = advance(before, event)
    roster.move(before, after, event)
    return after


def start(roster, before):
    claimed = move(roster, before, EventKind.CLAIMED)
    return move(roster, claimed, EventKind.ACCEPTED, facts={"handle": Handle(f"h{before.number}")})


def numbers(trials):
    return [trial.number for trial in trials]


def test_ready_trials_come_lowest_number_first_and_stay_until_they_move():
    roster = filled()

    assert numbers(roster.ready(NOW, 3)) == [0, 1, 2]
    assert numbers(roster.ready(NOW, 3)) == [0, 1, 2]
    start(roster, roster.ready(NOW, 1)[0])
    assert numbers(roster.ready(NOW, 9)) == [1, 2, 3, 4]


def test_a_retry_waits_until_it_is_due_and_then_goes_first():
    roster = filled()
    running = [start(roster, each) for each in roster.ready(NOW, 2)]
    move(roster, running[0], EventKind.RETRIED, changes={"not_before": NOW + 10})

    assert roster.next_due() == NOW + 10
    assert numbers(roster.ready(NOW + 9, 9)) == [2, 3, 4]
    assert numbers(roster.ready(NOW + 10, 9)) == [0, 2, 3, 4]
    assert roster.next_due() is None


def test_only_so_many_that_never_started_are_handed_out():
    roster = filled()
    again = [move(roster, start(roster, each), EventKind.RETRIED) for each in roster.ready(NOW, 2)]

    assert numbers(roster.ready(NOW, 9, fresh=0)) == numbers(again) == [0, 1]
    assert numbers(roster.ready(NOW, 9, fresh=1)) == [0, 1, 2]
    assert numbers(roster.ready(NOW, 9, fresh=None)) == [0, 1, 2, 3, 4]


def test_a_clock_that_is_set_back_loses_no_retry():
    roster = filled(1)
    move(roster, start(roster, roster.ready(NOW, 1)[0]), EventKind.RETRIED, changes={"not_before": NOW + 10})

    assert numbers(roster.ready(NOW + 10, 9)) == [0]
    assert numbers(roster.ready(NOW - 3600, 9)) == []
    assert roster.next_due() == NOW + 10
    assert numbers(roster.ready(NOW + 10, 9)) == [0]


def test_what_is_in_flight_is_kept_and_what_ended_is_forgotten():
    roster = filled(2)
    zero, one = (start(roster, each) for each in roster.ready(NOW, 2))
    move(roster, zero, EventKind.SUCCEEDED)

    assert set(roster.in_flight) == {1}
    assert roster.overrides(1) == {"parameters.lr": 1}
    with pytest.raises(KeyError):
        roster.overrides(0)
    move(roster, one, EventKind.FAILED)
    assert roster.in_flight == {}
    assert +roster.counts == {State.SUCCEEDED: 1, State.FAILED: 1}


def test_memory_follows_what_is_open_and_not_the_size_of_the_sweep():
    roster = filled(0)
    for number in range(500):
        roster.add([trial(number)], {number: {}})
        running = start(roster, roster.ready(NOW, 1)[0])
        waiting = move(roster, running, EventKind.RETRIED, changes={"not_before": NOW})
        roster.ready(NOW, 1)
        move(roster, start(roster, waiting), EventKind.SUCCEEDED)

    roster.ready(NOW, 1)
    kept = [value for name, value in vars(roster).items() if name not in {"counts", "_signatures"}]
    assert sum(len(value) for value in kept if hasattr(value, "__len__")) == 0
    assert roster.counts[State.SUCCEEDED] == 500


def test_pending_trials_are_found_whether_due_or_not():
    roster = filled(4)
    zero = start(roster, roster.ready(NOW, 1)[0])
    move(roster, zero, EventKind.RETRIED, changes={"not_before": NOW + 99})
    start(roster, roster.ready(NOW, 1)[0])

    assert numbers(roster.pending(frozenset({0, 1, 3, 77}))) == [0, 3]
    assert sorted(numbers(roster.all_pending(99))) == [0, 2, 3]
    assert len(roster.all_pending(2)) == 2
    assert roster.waiting == 3


def test_a_cancelled_waiting_trial_is_never_ready_again():
    roster = filled(2)
    move(roster, roster.pending(frozenset({0}))[0], EventKind.STOP_ASKED, Reason.USER)

    assert numbers(roster.ready(NOW, 9)) == [1]
    assert roster.counts[State.CANCELLED] == 1


def test_the_tally_counts_trials_and_not_attempts():
    roster = filled(3)
    zero, one = (start(roster, each) for each in roster.ready(NOW, 2))
    again = move(roster, zero, EventKind.RETRIED, changes={"signature": "s", "errors": 1})
    assert roster.tally == Tally(started=2, retrying=1, signatures={"s": 1})

    zero = start(roster, again)
    assert roster.tally == Tally(started=2, signatures={"s": 1})

    move(roster, zero, EventKind.FAILED, changes={"signature": "s"})
    move(roster, one, EventKind.SUCCEEDED)
    assert roster.tally == Tally(started=2, succeeded=1, failed=1, signatures={"s": 1})


def test_what_was_never_sent_was_never_started():
    roster = filled(1)
    claimed = move(roster, roster.ready(NOW, 1)[0], EventKind.CLAIMED)
    assert roster.tally.started == 1
    move(roster, claimed, EventKind.UNSENT, Reason.UNSENT, changes={"not_before": NOW + 5})

    assert roster.tally == Tally()
    assert roster.next_due() == NOW + 5


def test_a_second_attempt_that_was_never_sent_leaves_the_trial_started():
    roster = filled(1)
    again = move(roster, start(roster, roster.ready(NOW, 1)[0]), EventKind.RETRIED)
    move(roster, move(roster, again, EventKind.CLAIMED), EventKind.UNSENT)

    assert roster.tally == Tally(started=1, retrying=1)


def test_a_roster_goes_on_from_what_the_ledger_says():
    earlier = Tally(started=7, succeeded=99, failed=99, signatures={"s": 2}, accelerator_s=60.0)
    roster = Roster({State.SUCCEEDED: 4, State.FAILED: 1, State.PENDING: 1, State.QUEUED: 1}, earlier)
    open_trials = [trial(5, attempt=1), trial(6, state=State.QUEUED, handle=Handle("h6"))]
    roster.load(open_trials, {5: {}, 6: {}})
    roster.spend(40.0)

    assert roster.tally == Tally(started=7, retrying=1, succeeded=4, failed=1, signatures={"s": 2}, accelerator_s=100.0)  # fmt: skip
    assert set(roster.in_flight) == {6}
    assert sum(roster.counts.values()) == 7


STEPS = {
    State.PENDING: [EventKind.CLAIMED, EventKind.STOP_ASKED],
    State.SUBMITTING: [EventKind.ACCEPTED, EventKind.UNSENT, EventKind.REJECTED, EventKind.RECLAIMED],
    State.QUEUED: [EventKind.STARTED, EventKind.RETRIED, EventKind.STOP_ASKED],
    State.RUNNING: [EventKind.SUCCEEDED, EventKind.RETRIED, EventKind.FAILED, EventKind.STOP_ASKED],
    State.STOPPING: [EventKind.GONE, EventKind.SUCCEEDED],
}


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 60))
def test_any_story_leaves_the_roster_as_the_trials_are(seed, count, length):
    rng, now = random.Random(seed), NOW
    roster = filled(count)
    trials = {n: trial(n) for n in range(count)}
    signatures, started = Counter(), set()
    for _ in range(length):
        now += rng.choice([0, 1, 20])
        movable = [t for t in trials.values() if not t.state.is_final and (t.state is not State.PENDING or t.not_before <= now)]  # fmt: skip
        if not movable:
            continue
        before = rng.choice(movable)
        kind = rng.choice(STEPS[before.state])
        changes = {}
        if kind in {EventKind.RETRIED, EventKind.FAILED}:
            changes = {"signature": rng.choice("ab"), "errors": before.errors + 1}
        if kind in {EventKind.RETRIED, EventKind.UNSENT}:
            changes["not_before"] = now + rng.choice([0, 5, 30])
        facts = {"handle": Handle("h")} if kind is EventKind.ACCEPTED else {}
        event = Event(kind, now, rng.choice([Reason.USER, Reason.LIMIT, Reason.MOVED]), "", facts, changes)
        after = trials[before.number] = advance(before, event)
        roster.move(before, after, event)
        signatures.update([changes["signature"]] if is_first_failure(before, event) else [])
        if kind is EventKind.CLAIMED:
            started.add(before.number)
        elif kind is EventKind.UNSENT and before.attempt == 0:
            started.discard(before.number)

    waiting = [t for t in trials.values() if t.state is State.PENDING]
    assert numbers(roster.ready(now, 99)) == [t.number for t in waiting if t.not_before <= now]
    assert roster.in_flight == {n: t for n, t in trials.items() if t.state.is_in_flight}
    assert roster.waiting == len(waiting)
    assert +roster.counts == Counter(t.state for t in trials.values())
    assert roster.tally.started == len(started)
    assert roster.tally.retrying == sum(t.attempt > 0 for t in waiting)
    assert roster.tally.signatures == signatures


def test_failures_of_points_that_an_edit_left_out_count_against_nothing():
    roster = Roster({State.FAILED: 2}, Tally(), orphaned={0, 7}, failed_orphans=1)
    roster.add([trial(0), trial(1)], {0: {}, 1: {}})
    assert roster.tally.failed == 1
    for number in (0, 1):
        queued = start(roster, roster.pending(frozenset({number}))[0])
        move(roster, queued, EventKind.FAILED, Reason.ERROR, changes={"signature": "boom"})

    assert roster.tally.failed == 2
    assert roster.tally.signatures == {"boom": 1}

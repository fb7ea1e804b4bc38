"""Placement on a backend that queues by itself: given whole, throttled there, taken back when nothing new starts."""

import pytest

from airflows.backends.base import Observation, Phase
from airflows.ledger.records import Wish
from airflows.planner import Limits, Rules, Sighting, Tally, View, plan
from airflows.retry import RetryPolicy
from airflows.trial import Handle, Reason, State, Trial

NOW = 1_700_000_000.0
HELD = frozenset({State.QUEUED, State.RUNNING, State.STOPPING})


def trial(number, state=State.PENDING):
    handle = Handle(f"h{number}") if state in HELD else None
    claimed = None if state is State.PENDING else NOW - 100
    return Trial("d-0a1b2c", number, number, 0, state=state, handle=handle, claimed_at=claimed)


def many(count, state=State.PENDING, start=0):
    return [trial(number, state) for number in range(start, start + count)]


def view(in_flight=(), ready=(), *, queue=1000, pack=1, **fields):
    limits = Limits(**{"concurrent": 8, **fields.pop("limits", {})})
    rules = Rules(limits, RetryPolicy(3, 3, 10), NOW - 1000, 30, False, "q", queue=queue, pack=pack)
    usual = {
        "now": NOW,
        "began_at": NOW - 1000,
        "wish": Wish.RUN,
        "halted": "",
        "sightings": {},
        "waiting": len(ready),
        "exhausted": True,
        "cancels": frozenset(),
        "tally": Tally(),
        "running_accelerator_s": 0.0,
    }
    return View(**{**usual, **fields}, in_flight=in_flight, ready=ready, rules=rules)


def test_all_trials_are_given_at_once_with_the_sweeps_limit_as_throttle():
    made = plan(view(ready=many(200)))

    assert (len(made.claims), made.throttle) == (200, 8)


def test_no_more_are_given_than_the_queue_takes():
    assert len(plan(view(ready=many(200), queue=50)).claims) == 50


def test_a_retry_waits_until_so_few_are_left_that_it_may_run():
    retry = many(1, start=500)

    assert plan(view(many(8, State.QUEUED), retry)).claims == []
    made = plan(view(many(5, State.RUNNING), retry))
    assert (made.claims, made.throttle) == (retry, 3)


def test_what_is_submitted_again_is_throttled_as_the_first_time():
    lost = many(20, State.SUBMITTING)
    made = plan(view(lost, sightings={one.number: Sighting(absent=True) for one in lost}))

    assert (len(made.resubmits), made.throttle) == (20, 8)


def test_elsewhere_the_limit_holds_for_what_is_given():
    made = plan(view(ready=many(200), queue=0))

    assert (len(made.claims), made.throttle) == (8, 0)


def test_what_still_waits_is_taken_back_when_nothing_new_may_start():
    in_flight = [trial(0, State.RUNNING), trial(1, State.QUEUED)]
    made = plan(view(in_flight, limits={"wall_time_s": 10}))

    assert [(one.number, event.reason) for one, event in made.events] == [(1, Reason.MOVED)]
    assert made.halt


def test_a_pause_leaves_the_queue_alone():
    assert plan(view(many(3, State.QUEUED), wish=Wish.PAUSED, halted="failed: x")).events == []


def test_a_run_that_was_cancelled_there_is_asked_for_and_then_gone():
    seen = {0: Sighting(Observation(Phase.ENDED, None, "CANCELLED"))}

    (_, asked), *_ = plan(view([trial(0, State.RUNNING)], sightings=seen)).events
    (_, gone), *_ = plan(view([trial(0, State.STOPPING)], sightings=seen)).events

    assert (asked.kind, asked.reason, gone.kind) == ("stop_asked", Reason.USER, "gone")


# Several trials in one allocation


def test_what_is_given_whole_is_given_in_whole_packs_and_the_rest_at_the_end():
    made = plan(view(many(4, State.RUNNING), many(200), queue=50, pack=4, exhausted=False))
    last = plan(view(many(4, State.RUNNING), many(3), pack=4))

    assert (len(made.claims), len(last.claims)) == (44, 3)


def test_trials_wait_for_room_for_a_whole_pack():
    ready = many(20, start=100)

    assert plan(view(many(5, State.RUNNING), ready, queue=0, pack=4)).claims == []
    assert len(plan(view(many(4, State.RUNNING), ready, queue=0, pack=4)).claims) == 4


def test_a_pack_is_no_larger_than_what_may_run_at_once():
    ready = many(20, start=100)

    assert len(plan(view((), ready, queue=0, pack=16)).claims) == 8
    assert plan(view(many(1, State.RUNNING), ready, queue=0, pack=16)).claims == []


def test_a_retry_that_nothing_else_would_join_does_not_wait():
    assert len(plan(view(many(5, State.RUNNING), many(1, start=100), queue=0, pack=4)).claims) == 1


def test_where_nothing_is_in_flight_an_incomplete_pack_does_not_wait_for_more():
    assert len(plan(view((), many(3), queue=0, pack=4, exhausted=False)).claims) == 3


@pytest.mark.parametrize(("running", "together"), [(6, 0), (5, 3), (0, 3)])
def test_retries_wait_until_they_may_run_in_one_pack(running, together):
    made = plan(view(many(running, State.RUNNING), many(3, start=100), pack=4))

    assert len(made.claims) == together
    # An array that may run fewer at once has elements of fewer.
    assert made.throttle >= 4


def test_what_is_submitted_again_is_packed_as_the_first_time():
    lost = many(3, State.SUBMITTING)
    in_flight = [*lost, *many(7, State.RUNNING, start=10)]
    made = plan(view(in_flight, pack=4, sightings={one.number: Sighting(absent=True) for one in lost}))

    assert (len(made.resubmits), made.throttle) == (3, 4)

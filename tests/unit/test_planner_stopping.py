"""What the stopping rule says becomes the end of runs, and trials that wait are not started."""

import pytest

from airflows.backends.base import Observation, Phase
from airflows.ledger.records import Wish
from airflows.planner import Limits, Orders, Rules, Sighting, Tally, View, plan
from airflows.retry import RetryPolicy
from airflows.trial import Handle, Reason, State, Trial, advance

NOW = 1_700_000_000.0
WHY = "stopped at step 9: 0.41 is below the median 0.63 of 12 trials at that step"


def trial(number=0, state=State.RUNNING, **fields):
    held = {} if state is State.PENDING else {"claimed_at": NOW - 100, "handle": Handle(f"h{number}")}
    return Trial("digits-3fa9c1", number, number, 0, state=state, **{**held, **fields})


def planned(*in_flight, orders, ready=(), sightings=None, strict=False, wish=Wish.RUN, cancels=()):
    rules = Rules(
        Limits(concurrent=4), RetryPolicy(3, 3, 10), NOW - 1000, 30, idempotent=False, backend="fake", strict=strict
    )  # fmt: skip
    view = View(
        now=NOW,
        began_at=NOW - 1000,
        wish=wish,
        halted="",
        in_flight=in_flight,
        sightings=sightings or {},
        ready=ready,
        waiting=len(ready),
        exhausted=True,
        cancels=frozenset(cancels),
        tally=Tally(),
        running_accelerator_s=0.0,
        rules=rules,
        orders=orders,
    )
    return plan(view)


def events(made):
    return [(trial.number, event.kind.value, event.reason) for trial, event in made.events]


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING])
def test_what_the_rule_has_judged_is_asked_to_end_with_the_numbers(state):
    made = planned(trial(0, state), trial(1, state), orders=Orders(stops={1: WHY}))

    assert events(made) == [(1, "stop_asked", Reason.RULE)]
    stopping = advance(*made.events[0])
    assert (stopping.state, stopping.message) == (State.STOPPING, WHY)

    gone = Observation(Phase.ENDED, 143, "killed", ended_at=NOW)
    made = planned(stopping, orders=Orders(stops={1: WHY}), sightings={1: Sighting(gone)})
    stopped = advance(*made.events[0])
    assert (stopped.state, stopped.reason, stopped.message) == (State.STOPPED, Reason.RULE, WHY)


def test_a_trial_that_waits_for_its_next_attempt_is_stopped_where_it_is():
    retried = trial(0, State.PENDING, attempt=1)
    made = planned(orders=Orders(stops={0: WHY}), ready=[retried])

    assert (advance(*made.events[0]).state, made.claims) == (State.STOPPED, [])


def test_what_ended_by_itself_is_not_stopped():
    ended = Observation(Phase.ENDED, 0, ended_at=NOW)
    made = planned(trial(0), orders=Orders(stops={0: WHY}), sightings={0: Sighting(ended)})

    assert events(made) == [(0, "succeeded", Reason.NONE)]


def test_a_person_comes_before_the_rule():
    made = planned(trial(0), orders=Orders(stops={0: WHY}), cancels=[0])

    assert events(made) == [(0, "stop_asked", Reason.USER)]


def test_what_waits_at_a_rung_is_taken_off_and_comes_back():
    orders = Orders(waits={0: "waits at step 9"}, pauses=frozenset({0}))
    made = planned(trial(0), orders=orders)
    stopping = advance(*made.events[0])

    assert (stopping.state, stopping.reason) == (State.STOPPING, Reason.PAUSED)

    gone = Observation(Phase.ENDED, 143, "killed", ended_at=NOW)
    made = planned(stopping, orders=orders, sightings={0: Sighting(gone)})
    waiting = advance(*made.events[0])
    assert (waiting.state, waiting.attempt) == (State.PENDING, 1)


def test_nothing_is_taken_off_that_could_not_come_back():
    orders = Orders(stops={1: WHY}, waits={0: "waits at step 9"}, pauses=frozenset({0}))

    assert events(planned(trial(0), trial(1), orders=orders, wish=Wish.HALT)) == [
        (1, "stop_asked", Reason.RULE)
    ]
    assert planned(trial(0), trial(1), orders=orders, wish=Wish.PAUSED).events == []


def test_what_waits_without_a_checkpoint_runs_on():
    assert planned(trial(0), orders=Orders(waits={0: "waits at step 9"})).events == []


def test_an_unseen_metric_halts_a_strict_sweep_only():
    unseen = Orders(unseen="val_acc not seen; logged: 'val/acc'")

    assert planned(orders=unseen, ready=[trial(0, State.PENDING)]).halt == ""
    made = planned(trial(1), orders=unseen, ready=[trial(0, State.PENDING)], strict=True)
    assert (made.halt, made.spent) == ("val_acc not seen; logged: 'val/acc' (strict: true)", False)
    assert (made.claims, made.events) == ([], [])

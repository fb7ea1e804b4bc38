"""What is done next, for one view: following, placement, limits, halting, stopping."""

from dataclasses import replace

import pytest

from airflows.backends.base import Observation, Phase
from airflows.failures import Verdict
from airflows.ledger.records import Wish
from airflows.planner import Limits, Rules, Sighting, Tally, View, plan
from airflows.retry import RetryPolicy
from airflows.trial import Handle, Reason, State, Trial, advance

NOW = 1_700_000_000.0
RETRY = RetryPolicy(max=3, max_without_progress=3, wait_s=10)


def trial(number=0, state=State.PENDING, **fields):
    held = {} if state is State.PENDING else {"claimed_at": NOW - 100}
    if state not in {State.PENDING, State.SUBMITTING}:
        held["handle"] = Handle(f"h{number}")
    return Trial("digits-3fa9c1", number, number, 0, state=state, **{**held, **fields})


def rules(**limits):
    return Rules(Limits(**{"concurrent": 4, **limits}), RETRY, since=NOW - 1000, settle_s=30, idempotent=False, backend="fake")  # fmt: skip


def view(**fields):
    usual = {
        "now": NOW,
        "began_at": NOW - 1000,
        "wish": Wish.RUN,
        "halted": "",
        "in_flight": [],
        "sightings": {},
        "ready": [],
        "waiting": len(fields.get("ready", [])),
        "exhausted": True,
        "cancels": frozenset(),
        "tally": Tally(),
        "running_accelerator_s": 0.0,
        "rules": rules(),
    }
    return View(**{**usual, **fields})


def ended(exit_code=0, word="", **fields):
    return Observation(Phase.ENDED, exit_code, word, ended_at=NOW - 1, **fields)


def failed(line="ValueError: x", reason=Reason.ERROR):
    return Sighting(ended(1), verdict=Verdict(reason, f"{reason}: {line}", line))


def kinds(made):
    return [(trial.number, event.kind.value) for trial, event in made.events]


# Following what is seen


def test_without_a_sighting_nothing_happens_to_a_trial():
    in_flight = [trial(n, state) for n, state in enumerate(s for s in State if s.is_in_flight)]
    made = plan(view(in_flight=in_flight))

    assert (made.events, made.claims, made.resubmits, made.done) == ([], [], [], False)


@pytest.mark.parametrize(
    "observation",
    [None, Observation(Phase.UNKNOWN), Observation(Phase.QUEUED), Observation(Phase.UNKNOWN, 1, "FAILED")],
)
@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.STOPPING])
def test_what_nobody_could_find_out_changes_nothing(state, observation):
    made = plan(view(in_flight=[trial(0, state)], sightings={0: Sighting(observation)}))

    assert made.events == []
    assert not made.done


def test_a_run_is_followed_once_from_the_queue():
    seen = Sighting(Observation(Phase.RUNNING, host="node1", started_at=NOW - 5))
    queued = plan(view(in_flight=[trial(0, State.QUEUED)], sightings={0: seen}))
    running = plan(view(in_flight=[trial(0, State.RUNNING)], sightings={0: seen}))

    assert kinds(queued) == [(0, "started")]
    assert queued.events[0][1].facts == {"host": "node1", "started_at": NOW - 5}
    assert running.events == []


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.STOPPING])
def test_exit_0_has_succeeded_even_when_a_stop_was_on_its_way(state):
    made = plan(view(in_flight=[trial(0, state)], sightings={0: Sighting(ended())}))

    assert kinds(made) == [(0, "succeeded")]
    assert made.events[0][1].facts == {"ended_at": NOW - 1, "exit_code": 0}


@pytest.mark.parametrize("observation", [ended(1), ended(None), ended(143, "killed"), ended(0, "timed_out")])
def test_a_run_that_was_stopped_is_gone_however_it_ended(observation):
    stopping = trial(0, State.STOPPING, reason=Reason.USER)
    made = plan(view(in_flight=[stopping], sightings={0: Sighting(observation)}))

    assert kinds(made) == [(0, "gone")]
    assert advance(*made.events[0]).state is State.CANCELLED


def test_a_failure_waits_for_its_verdict():
    made = plan(view(in_flight=[trial(0, State.RUNNING)], sightings={0: Sighting(ended(1))}))

    assert made.events == []


def test_exit_0_with_a_schedulers_word_is_no_success():
    seen = Sighting(ended(0, "TIMEOUT"), verdict=Verdict(Reason.TIMED_OUT, "t", "t"))
    made = plan(view(in_flight=[trial(0, State.RUNNING)], sightings={0: seen}))

    assert kinds(made) == [(0, "failed")]
    assert made.events[0][1].facts["exit_code"] == 0


# Submissions whose answer was lost


def submitting(age_s, **fields):
    return trial(0, State.SUBMITTING, claimed_at=NOW - age_s, **fields)


def test_a_submission_that_is_found_is_adopted():
    made = plan(view(in_flight=[submitting(1)], sightings={0: Sighting(handle=Handle("h9"))}))

    assert kinds(made) == [(0, "accepted")]
    assert advance(*made.events[0]).handle == "h9"
    assert made.resubmits == []


@pytest.mark.parametrize(
    ("age_s", "since_s", "idempotent", "again"),
    [
        (29, 1000, False, False),
        (30, 1000, False, True),
        # The claim is an earlier driver's, which may have sent it until this one took over.
        (500, 29, False, False),
        (500, 30, False, True),
        # Where sending a token twice is one run there is nothing to wait for.
        (0, 0, True, True),
    ],
)
def test_a_submission_that_is_absent_is_sent_again_once_it_has_settled(age_s, since_s, idempotent, again):
    settled = replace(rules(), since=NOW - since_s, idempotent=idempotent)
    before = submitting(age_s)
    made = plan(view(in_flight=[before], sightings={0: Sighting(absent=True)}, rules=settled))

    assert kinds(made) == ([(0, "reclaimed")] if again else [])
    assert made.resubmits == ([before] if again else [])


@pytest.mark.parametrize(
    "fields", [{"wish": Wish.STOP}, {"wish": Wish.HALT}, {"wish": Wish.PAUSED}, {"halted": "failed: x"}, {"cancels": frozenset({0})}]
)  # fmt: skip
def test_what_was_never_sent_is_not_sent_only_to_be_stopped(fields):
    made = plan(view(in_flight=[submitting(500)], sightings={0: Sighting(absent=True)}, **fields))

    assert kinds(made) == [(0, "unsent")]
    assert made.resubmits == []


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize(
    "fields", [{"wish": Wish.STOP}, {"halted": "failed: x"}, {"cancels": frozenset({0})}]
)
def test_a_run_that_may_yet_be_seen_is_not_given_up_for_never_sent(idempotent, fields):
    """Nobody would cancel it any more once its trial has ended."""
    settling = replace(rules(), idempotent=idempotent)
    young, old = submitting(29), submitting(30)
    known = {"sightings": {0: Sighting(absent=True)}, "rules": settling, **fields}
    waits = plan(view(in_flight=[young], **known))

    assert (kinds(waits), waits.resubmits, waits.done) == ([], [], False)
    assert kinds(plan(view(in_flight=[old], **known))) == [(0, "unsent")]


# Placement


def test_ready_trials_take_the_room_there_is_in_their_order():
    ready = [trial(n) for n in range(3, 9)]
    made = plan(view(in_flight=[trial(0, State.RUNNING), trial(1, State.STOPPING)], ready=ready))

    assert [t.number for t in made.claims] == [3, 4]


def test_a_place_that_has_just_become_free_is_taken_at_once():
    in_flight = [trial(n, State.RUNNING) for n in range(4)]
    seen = {0: Sighting(ended()), 1: failed(), 2: failed("OOM", Reason.OUT_OF_MEMORY)}
    made = plan(view(in_flight=in_flight, sightings=seen, ready=[trial(n) for n in range(4, 10)]))

    assert [t.number for t in made.claims] == [4, 5, 6]


@pytest.mark.parametrize(
    "fields", [{"wish": wish} for wish in Wish if wish is not Wish.RUN] + [{"halted": "failed: x"}]
)
def test_nothing_is_claimed_unless_the_sweep_runs(fields):
    assert plan(view(ready=[trial(0)], **fields)).claims == []


def test_a_trial_that_is_to_be_cancelled_is_not_claimed():
    made = plan(view(ready=[trial(0), trial(1)], cancels=frozenset({0})))

    assert kinds(made) == [(0, "stop_asked")]
    assert [t.number for t in made.claims] == [1]


# The end


@pytest.mark.parametrize(
    ("fields", "done"),
    [
        ({}, True),
        ({"exhausted": False}, False),
        ({"waiting": 1}, False),
        ({"in_flight": [trial(0, State.RUNNING)]}, False),
        ({"wish": Wish.HALT, "waiting": 5}, True),
        ({"halted": "stopped: x", "waiting": 5}, True),
        ({"halted": "stopped: x", "in_flight": [trial(0, State.QUEUED)]}, False),
        ({"wish": Wish.STOP, "waiting": 0, "exhausted": True}, True),
        ({"wish": Wish.STOP, "ready": [trial(0)]}, False),
        ({"wish": Wish.PAUSED, "waiting": 1}, False),
    ],
)
def test_when_a_sweep_is_done(fields, done):
    assert plan(view(**fields)).done is done


# Stopping


def test_stop_asks_everything_to_end_that_can_be_asked():
    in_flight = [
        trial(0, State.SUBMITTING),
        trial(1, State.QUEUED),
        trial(2, State.RUNNING),
        trial(3, State.STOPPING),
    ]
    made = plan(view(wish=Wish.STOP, in_flight=in_flight, ready=[trial(4)]))

    assert kinds(made) == [(1, "stop_asked"), (2, "stop_asked"), (4, "stop_asked")]
    assert {event.reason for _, event in made.events} == {Reason.USER}


def test_a_run_that_has_just_ended_is_not_asked_to_stop():
    made = plan(view(wish=Wish.STOP, in_flight=[trial(0, State.RUNNING)], sightings={0: Sighting(ended())}))

    assert kinds(made) == [(0, "succeeded")]


def test_cancelling_some_leaves_the_others_alone():
    in_flight = [trial(n, State.RUNNING) for n in range(3)]
    made = plan(view(in_flight=in_flight, ready=[trial(3), trial(4)], cancels=frozenset({1, 4})))

    assert kinds(made) == [(1, "stop_asked"), (4, "stop_asked")]


@pytest.mark.parametrize(("cancels", "asked"), [(False, []), (True, [(0, "stop_asked"), (1, "stop_asked")])])
def test_a_reached_limit_stops_what_runs_only_when_told_to(cancels, asked):
    in_flight = [trial(0, State.RUNNING), trial(1, State.QUEUED)]
    spent = rules(wall_time_s=1000, cancels=cancels)
    made = plan(view(in_flight=in_flight, ready=[trial(2)], rules=spent))
    later = plan(
        view(in_flight=in_flight, ready=[trial(2)], rules=spent, halted="stopped: x", wish=Wish.HALT)
    )

    assert made.spent
    assert kinds(made) == kinds(later) == asked
    assert all(event.reason is Reason.LIMIT for _, event in made.events)


# Limits


def test_wall_time():
    def halt(**fields):
        return plan(view(ready=[trial(1)], rules=rules(wall_time_s=1000), **fields))

    assert halt().halt == "the wall time is used up (limits.wall_time)"
    assert halt().spent
    assert halt().claims == []
    assert halt(now=NOW - 0.5).halt == ""
    # Resuming gives it anew.
    assert halt(began_at=NOW).halt == ""


def test_a_limit_does_not_matter_once_everything_has_started():
    last = [trial(0, State.RUNNING)]

    assert plan(view(in_flight=last, rules=rules(wall_time_s=1000))).halt == ""


def test_a_limit_that_cancels_holds_for_the_last_runs_too():
    made = plan(view(in_flight=[trial(0, State.RUNNING)], rules=rules(wall_time_s=1000, cancels=True)))

    assert made.spent
    assert kinds(made) == [(0, "stop_asked")]


def test_accelerator_time_counts_what_runs_now():
    def halt(running):
        limits = rules(accelerator_s=3600)
        return plan(view(ready=[trial(1)], tally=Tally(accelerator_s=3000), running_accelerator_s=running, rules=limits))  # fmt: skip

    assert halt(599).halt == ""
    assert halt(600).halt == "the accelerator-hours are used up (limits.accelerator_hours)"


def test_the_limit_of_trials_counts_trials_and_not_attempts():
    limits = rules(trials=3)
    fresh = [trial(n) for n in range(3, 6)]
    again = [trial(0, attempt=1), trial(1, attempt=2)]

    assert plan(view(ready=fresh, tally=Tally(started=1), rules=limits)).claims == fresh[:2]
    retries = plan(view(ready=[*again, *fresh], tally=Tally(started=3, retrying=2), rules=limits))
    assert (retries.claims, retries.halt) == (again, "")


@pytest.mark.parametrize(
    ("fields", "halts"),
    [
        ({}, True),
        # What was started has its retries, also those that are still to come.
        ({"tally": Tally(started=3, retrying=1)}, False),
        ({"in_flight": [trial(2, State.RUNNING)]}, False),
        ({"tally": Tally(started=2)}, False),
        ({"exhausted": False, "ready": []}, True),
        ({"ready": []}, False),
    ],
)
def test_the_limit_of_trials_halts_when_only_new_ones_are_left(fields, halts):
    made = plan(view(**{"ready": [trial(3)], "tally": Tally(started=3), "rules": rules(trials=3), **fields}))

    assert bool(made.halt) is halts
    assert made.spent is halts


@pytest.mark.parametrize(
    ("known", "now_failing", "halts"), [(4, 0, False), (5, 0, True), (3, 2, True), (3, 1, False)]
)
def test_failed_trials(known, now_failing, halts):
    in_flight = [trial(n, State.RUNNING, errors=3) for n in range(now_failing)]
    seen = {n: failed(f"ValueError: {'abcdefg'[n]}") for n in range(now_failing)}
    made = plan(view(in_flight=in_flight, sightings=seen, ready=[trial(9)], tally=Tally(failed=known, succeeded=9), rules=rules(failed_trials=5)))  # fmt: skip

    assert bool(made.halt) is halts
    assert not made.spent
    if halts:
        assert made.halt == "5 trials failed, which is the limit (limits.failed_trials)"
        assert made.claims == []


# Identical failures


def test_three_first_failures_alike_halt_the_sweep():
    in_flight = [trial(n, State.RUNNING) for n in range(4)]
    made = plan(view(in_flight=in_flight, sightings={n: failed() for n in range(4)}, ready=[trial(9)]))

    assert made.halt == "the first 4 trials to fail all ended alike, and none succeeded: error: ValueError: x"
    assert not made.spent
    assert made.claims == []


@pytest.mark.parametrize(
    ("tally", "seen", "halts"),
    [
        (Tally(), {0: failed(), 1: failed()}, False),
        (Tally(signatures={"error: ValueError: x": 1}), {0: failed(), 1: failed()}, True),
        (Tally(signatures={"error: ValueError: y": 2}), {0: failed(), 1: failed()}, False),
        (Tally(signatures={"error: ValueError: x": 3}, succeeded=1), {0: failed()}, False),
        (Tally(), {0: failed(), 1: failed(), 2: failed(), 3: Sighting(ended())}, False),
        (Tally(), {n: failed("x", Reason.PREEMPTED) for n in range(4)}, False),
        (Tally(), {n: failed("x", Reason.LOST) for n in range(4)}, False),
        (Tally(), {n: failed("x", Reason.OUT_OF_MEMORY) for n in range(3)}, True),
        (Tally(), {n: failed("x", Reason.TIMED_OUT) for n in range(3)}, True),
    ],
)
def test_when_failures_are_systematic(tally, seen, halts):
    in_flight = [trial(n, State.RUNNING) for n in range(4)]

    assert bool(plan(view(in_flight=in_flight, sightings=seen, tally=tally)).halt) is halts


def test_second_failures_of_the_same_trials_are_not_counted_again():
    in_flight = [trial(n, State.RUNNING, errors=1) for n in range(4)]
    made = plan(view(in_flight=in_flight, sightings={n: failed() for n in range(4)}))

    assert made.halt == ""


def test_identical_failures_can_be_switched_off():
    in_flight = [trial(n, State.RUNNING) for n in range(4)]
    made = plan(
        view(
            in_flight=in_flight, sightings={n: failed() for n in range(4)}, rules=rules(identical_failures=0)
        )
    )

    assert made.halt == ""


@pytest.mark.parametrize("fields", [{"wish": Wish.STOP}, {"wish": Wish.HALT}, {"halted": "failed: earlier"}])
def test_a_sweep_halts_once(fields):
    in_flight = [trial(n, State.RUNNING) for n in range(4)]

    assert plan(view(in_flight=in_flight, sightings={n: failed() for n in range(4)}, **fields)).halt == ""

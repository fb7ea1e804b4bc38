"""From what is known of a trial to its transitions."""

import pytest

from airflows.backends.base import Observation, Phase
from airflows.engine.recall import End, Known, Trace
from airflows.engine.record import fresh_row
from airflows.engine.retelling import REBUILT, Teller
from airflows.retry import RetryPolicy
from airflows.trial import EventKind, Handle, Reason, State, Trial

SWEEP = "lr-0a1b2c"
POLICY = RetryPolicy(max=1, max_without_progress=1, wait_s=1.0)
ROW = fresh_row(id=SWEEP, name="lr", backend="fake", code="c" * 64, created_at=100.0)


def teller(**fields):
    usual = {
        "row": ROW,
        "policy": lambda _number: POLICY,
        "tail": lambda _number, trace: ["Traceback", f"ValueError: {trace.handle}"],
        "relief": lambda _number: {},
        "ran_out_of_memory": lambda _number: None,
        "accelerators": lambda _number, _place: 8,
    }
    return Teller(**{**usual, **fields})


def tell(known, **fields):
    changes = teller(**fields).tell(Trial(SWEEP, 7, 7, 0), known)
    return [change.event.kind.value for change in changes], (changes[-1].after if changes else None), changes


def trace(attempt, exit_code=None, word="", phase=Phase.ENDED, **seen):
    begun = 1000.0 * (attempt + 1)
    times = {"started_at": begun + 1, "ended_at": begun + 10 if phase is Phase.ENDED else None}
    observation = Observation(phase, exit_code, word, host="n1", **{**times, **seen})
    return Trace(begun, "", Handle(f"run {attempt}"), observation)


def end(state, reason=Reason.NONE, attempt=0, message=""):
    return End(state, reason, attempt, message)


def test_a_trial_of_which_nothing_is_known_waits():
    assert tell(Known()) == ([], None, [])


@pytest.mark.parametrize(
    "seen", [trace(0, phase=Phase.RUNNING), trace(0, 0), trace(0, 1), Trace(5.0, "", Handle("x"))]
)
def test_a_last_attempt_with_a_run_is_left_to_the_driver(seen):
    kinds, trial, changes = tell(Known({0: seen}, "run-1"))

    assert kinds == ["claimed", "accepted"]
    assert (trial.state, trial.handle, trial.run_id) == (State.QUEUED, seen.handle, "run-1")
    assert changes[0].event.detail == REBUILT
    assert (changes[0].token, changes[0].code, changes[0].accelerators) == ("lr-0a1b2c-0007-a0", "c" * 64, 8)


@pytest.mark.parametrize(
    "known", [Known({0: Trace(1000.0)}, "run-1"), Known({}, "run-1"), Known({0: Trace()})]
)
def test_what_nobody_has_a_run_of_is_in_doubt(known):
    kinds, trial, _ = tell(known)

    assert kinds == ["claimed"]
    assert (trial.state, trial.run_id) == (State.SUBMITTING, known.run_id)


def test_an_attempt_that_was_followed_failed_as_it_would_have_then():
    kinds, trial, changes = tell(Known({0: trace(0, 1), 1: trace(1, phase=Phase.RUNNING)}))

    assert kinds == ["claimed", "accepted", "started", "retried", "claimed", "accepted"]
    retried = changes[3]
    assert (retried.event.at, retried.event.reason) == (1010.0, Reason.ERROR)
    assert retried.event.facts["exit_code"] == 1
    assert (trial.state, trial.attempt, trial.errors) == (State.QUEUED, 1, 1)
    assert "ValueError: run N" in trial.signature


def test_one_that_had_failed_for_good_was_taken_up_again():
    known = Known({0: trace(0, 1), 1: trace(1, 1), 2: trace(2, phase=Phase.RUNNING)})
    kinds, trial, _ = tell(known)

    assert kinds[3:8] == ["retried", "claimed", "accepted", "started", "failed"]
    assert kinds[8:] == ["reopened", "claimed", "accepted"]
    assert (trial.attempt, trial.errors, trial.state) == (2, 0, State.QUEUED)


def test_checkpoints_that_advanced_are_told_by_what_the_next_attempt_began_with():
    traces = {
        n: trace(n, None, "TIMEOUT", resumed_from=f"/ck/{SWEEP}/7/checkpoint-{n}00" if n else "")
        for n in range(4)
    }
    kinds, trial, _ = tell(Known(traces))

    assert kinds.count("retried") == 3
    assert "failed" not in kinds
    assert (trial.checkpoint, trial.checkpoint_step) == (f"/ck/{SWEEP}/7/checkpoint-300", 300)
    assert trial.stalled == 0


def test_an_attempt_of_which_nothing_is_known_any_more_was_lost():
    kinds, trial, changes = tell(Known({2: trace(2, phase=Phase.RUNNING)}))

    assert kinds == ["claimed", "accepted", "retried"] * 2 + ["claimed", "accepted"]
    assert changes[2].event.reason is Reason.LOST
    assert trial.attempt == 2


@pytest.mark.parametrize(
    ("told", "seen", "kinds", "state"),
    [
        (end(State.SUCCEEDED), trace(0, 0), ["started", "succeeded"], State.SUCCEEDED),
        # The backend has forgotten the run; or takes it for lost.
        (end(State.SUCCEEDED), Trace(1000.0), ["succeeded"], State.SUCCEEDED),
        (end(State.SUCCEEDED), trace(0, None, "LOST"), ["started", "succeeded"], State.SUCCEEDED),
        (end(State.FAILED, Reason.ERROR), trace(0, 1), ["started", "failed"], State.FAILED),
        (
            end(State.CANCELLED, Reason.USER),
            trace(0, 143, "killed"),
            ["started", "stop_asked", "gone"],
            State.CANCELLED,
        ),
        (
            end(State.STOPPED, Reason.RULE),
            trace(0, 143, "killed"),
            ["started", "stop_asked", "gone"],
            State.STOPPED,
        ),
    ],
)
def test_the_end_that_mlflow_was_told_of_counts(told, seen, kinds, state):
    found, trial, _ = tell(Known({0: seen}, "run-1", end=told))

    assert found == ["claimed", "accepted", *kinds]
    assert (trial.state, trial.reason, trial.run_id, trial.closed) == (state, told.reason, "run-1", False)


def test_the_end_of_an_earlier_attempt_does_not_count():
    known = Known({0: trace(0, 1), 1: trace(1, phase=Phase.RUNNING)}, end=end(State.FAILED, Reason.ERROR))

    assert tell(known)[1].state is State.QUEUED


def test_a_trial_that_only_mlflow_knows_has_its_attempts():
    _, trial, changes = tell(Known({}, "run-1", end=end(State.SUCCEEDED, attempt=2)))

    assert (trial.state, trial.attempt, trial.handle) == (State.SUCCEEDED, 2, None)
    assert [change.after.attempt for change in changes if change.event.kind is EventKind.CLAIMED] == [0, 1, 2]


def test_a_refused_submission_stays_refused():
    known = Known({0: Trace(1000.0)}, end=end(State.FAILED, Reason.INVALID, message="no such queue"))
    kinds, trial, _ = tell(known)

    assert kinds == ["claimed", "rejected"]
    assert (trial.state, trial.message) == (State.FAILED, "no such queue")


@pytest.mark.parametrize(
    ("told", "kinds", "state"),
    [
        (end(State.STOPPED, Reason.LIMIT, 1), [], State.PENDING),
        (end(State.CANCELLED, Reason.USER, 1), ["stop_asked"], State.CANCELLED),
        (end(State.FAILED, Reason.ERROR, 1, "halted"), ["failed"], State.FAILED),
    ],
)
def test_what_ended_while_it_waited_for_its_next_attempt_had_none(told, kinds, state):
    found, trial, _ = tell(Known({0: trace(0, 1)}, end=told))

    assert found == ["claimed", "accepted", "started", "retried", *kinds]
    assert (trial.state, trial.attempt) == (state, 1)


@pytest.mark.parametrize(
    ("why", "state", "attempt"),
    [(Reason.USER, State.CANCELLED, 0), (Reason.RULE, State.STOPPED, 0), (Reason.PAUSED, State.PENDING, 1)],
)
def test_a_run_that_was_asked_to_end_is_not_started_again(why, state, attempt):
    _, trial, _ = tell(Known({0: trace(0, 143, "killed")}), ended_by_us=why)

    assert (trial.state, trial.attempt) == (state, attempt)


def test_attempts_after_one_that_ran_out_of_memory_have_the_relief():
    short = set()
    known = Known({0: trace(0, None, "OUT_OF_MEMORY"), 1: trace(1, phase=Phase.RUNNING)})
    relieving = RetryPolicy(max=1, max_without_progress=1, wait_s=1.0, relieves=True)
    _, _, changes = tell(
        known,
        policy=lambda _number: relieving,
        relief=lambda number: {"parameters.batch": 8} if number in short else {},
        ran_out_of_memory=short.add,
    )

    claims = [change.event.detail for change in changes if change.event.kind is EventKind.CLAIMED]
    assert claims == [REBUILT, 'an earlier attempt ran out of memory, so with {"parameters.batch":8}']


def test_the_code_of_an_attempt_is_that_of_its_copy():
    own, usual = Trace(1000.0, "d" * 16, Handle("x")), Trace(1000.0, "c" * 16, Handle("x"))

    assert [tell(Known({0: each}))[2][0].code for each in (own, usual)] == ["d" * 16, "c" * 64]


def test_of_a_service_each_attempt_has_the_run_that_it_made():
    first = trace(0, None, "NODE_FAILED", mlflow_run_id="run-0")
    known = Known({0: first, 1: trace(1, phase=Phase.RUNNING)}, "run-1", is_service_s=True)

    # The driver adopts the newest one, behind the one before.
    assert tell(known)[1].run_id == "run-0"


def test_a_service_s_run_that_finished_is_a_success_where_the_service_forgot_it():
    known = Known({0: Trace()}, "run-0", is_service_s=True, is_finished=True)

    assert tell(known)[1].state is State.SUCCEEDED

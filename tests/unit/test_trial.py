"""The state machine: what may happen to a trial, and what that makes of it and of its attempt."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflows.trial import (
    FINAL,
    IN_FLIGHT,
    Event,
    EventKind,
    Handle,
    IllegalTransitionError,
    Reason,
    State,
    Trial,
    advance,
    attempt_after,
)

AT = 1_700_000_000.0
ATTEMPT = {
    "handle": Handle("local:1"),
    "batch": "b",
    "claimed_at": AT - 30,
    "submitted_at": AT - 20,
    "started_at": AT - 10,
    "exit_code": 3,
    "host": "node1",
    "resumed_from": "ckpt",
}
FORGOTTEN = {"handle": None, "batch": "", "claimed_at": None, "submitted_at": None, "started_at": None, "ended_at": None, "exit_code": None, "host": "", "resumed_from": ""}  # fmt: skip
# The whole machine, written down a second time: state, event -> next states by what makes the difference.
NEXT = {
    (State.PENDING, EventKind.CLAIMED): {State.SUBMITTING},
    (State.PENDING, EventKind.STOP_ASKED): {State.STOPPED, State.CANCELLED},
    (State.PENDING, EventKind.FAILED): {State.FAILED},
    (State.SUBMITTING, EventKind.RECLAIMED): {State.SUBMITTING},
    (State.SUBMITTING, EventKind.ACCEPTED): {State.QUEUED},
    (State.SUBMITTING, EventKind.UNSENT): {State.PENDING},
    (State.SUBMITTING, EventKind.REJECTED): {State.FAILED},
    (State.QUEUED, EventKind.STARTED): {State.RUNNING},
    (State.QUEUED, EventKind.SUCCEEDED): {State.SUCCEEDED},
    (State.QUEUED, EventKind.RETRIED): {State.PENDING},
    (State.QUEUED, EventKind.FAILED): {State.FAILED},
    (State.QUEUED, EventKind.STOP_ASKED): {State.STOPPING},
    (State.RUNNING, EventKind.SUCCEEDED): {State.SUCCEEDED},
    (State.RUNNING, EventKind.RETRIED): {State.PENDING},
    (State.RUNNING, EventKind.FAILED): {State.FAILED},
    (State.RUNNING, EventKind.STOP_ASKED): {State.STOPPING},
    (State.STOPPING, EventKind.STARTED): {State.RUNNING},
    (State.STOPPING, EventKind.SUCCEEDED): {State.SUCCEEDED},
    (State.STOPPING, EventKind.GONE): {State.PENDING, State.STOPPED, State.CANCELLED},
    (State.FAILED, EventKind.REOPENED): {State.PENDING},
    (State.STOPPED, EventKind.REOPENED): {State.PENDING},
    (State.CANCELLED, EventKind.REOPENED): {State.PENDING},
}
PAIRS = list(itertools.product(State, EventKind))
ENDS = {EventKind.SUCCEEDED, EventKind.RETRIED, EventKind.FAILED, EventKind.REJECTED, EventKind.GONE}


def trial(state=State.RUNNING, **fields):
    known = {} if state is State.PENDING else dict(ATTEMPT)
    return Trial("digits-3fa9c1", 12, 4, 0, state=state, **{**known, **fields})


def event(kind, reason=Reason.NONE, detail="", facts=(), changes=()):
    return Event(kind, AT, reason, detail, dict(facts), dict(changes))


# The table


@pytest.mark.parametrize(("state", "kind"), PAIRS)
def test_every_pair_is_in_the_table_or_raises(state, kind):
    if (state, kind) not in NEXT:
        with pytest.raises(IllegalTransitionError, match=rf"digits-3fa9c1/12: {kind} .* {state}"):
            advance(trial(state), event(kind))
        return
    made = {advance(trial(state, reason=r), event(kind, r)).state for r in Reason}

    assert made == NEXT[state, kind]


def test_final_states_are_left_by_nothing_but_reopened():
    leaving = {(state, kind) for state, kind in NEXT if state in FINAL}

    assert {kind for _, kind in leaving} == {EventKind.REOPENED}
    assert {state for state, _ in leaving} == FINAL - {State.SUCCEEDED}


def test_every_state_is_pending_in_flight_or_final():
    assert {*FINAL, *IN_FLIGHT, State.PENDING} == {*State}
    assert not FINAL & IN_FLIGHT
    assert all(state.is_final is (state in FINAL) for state in State)
    assert all(state.is_in_flight is (state in IN_FLIGHT) for state in State)


def test_every_state_can_be_reached_and_left_for_an_end():
    reached = {State.PENDING}
    for _ in State:
        reached |= {made for (state, _), nexts in NEXT.items() if state in reached for made in nexts}

    assert reached == {*State}


@given(st.lists(st.tuples(st.sampled_from(EventKind), st.sampled_from(Reason)), max_size=40))
def test_any_sequence_keeps_the_machine_sound(steps):
    now = trial(State.PENDING)
    for kind, reason in steps:
        before = now
        facts = {"handle": Handle("local:2")} if kind is EventKind.ACCEPTED else {}
        try:
            now = advance(before, event(kind, reason, facts=facts))
        except IllegalTransitionError:
            assert (before.state, kind) not in NEXT
            continue
        assert now.version == before.version + 1
        assert now.attempt - before.attempt in (0, 1)
        assert (now.handle is not None) or now.state in {State.PENDING, State.SUBMITTING, *FINAL}
        if now.state is State.PENDING:
            assert {name: getattr(now, name) for name in FORGOTTEN} == FORGOTTEN
        if now.state.is_final:
            assert now.ended_at == AT
        if now.state.is_in_flight:
            assert now.claimed_at is not None


@given(
    st.sampled_from(sorted(pair for pair in NEXT if pair[0] in IN_FLIGHT)),
    st.sampled_from(Reason),
    st.sampled_from(Reason),
)
def test_the_attempt_and_the_trial_agree(pair, reason, before_reason):
    state, kind = pair
    before = trial(state, reason=before_reason)
    happened = event(kind, reason, "words", {"exit_code": 7, "host": "node2"}, {"signature": "s"})
    after, attempt = advance(before, happened), attempt_after(before, happened)
    names = [name for name in attempt if name not in {"attempt", "state"}]

    assert attempt["signature"] == "s"
    if after.state is State.PENDING:
        # The trial forgets the attempt; its own row must not.
        assert attempt["exit_code"] == 7
        assert attempt["host"] == "node2"
    else:
        assert {n: attempt[n] for n in names} == {n: getattr(after, n) for n in names}
        assert attempt["state"] == after.state


def test_an_attempt_never_inherits_what_another_one_failed_with():
    again = trial(
        State.QUEUED, attempt=1, signature="error: old", message="old words", handle=Handle("local:2")
    )
    done = attempt_after(again, event(EventKind.SUCCEEDED))

    assert done["signature"] == ""
    assert done["message"] == ""


@pytest.mark.parametrize(
    ("state", "kind", "made"),
    [
        (State.RUNNING, EventKind.RETRIED, State.FAILED),
        (State.QUEUED, EventKind.RETRIED, State.FAILED),
        (State.SUBMITTING, EventKind.UNSENT, State.FAILED),
        (State.RUNNING, EventKind.FAILED, State.FAILED),
        (State.RUNNING, EventKind.SUCCEEDED, State.SUCCEEDED),
    ],
)
def test_state_of_an_ended_attempt(state, kind, made):
    assert attempt_after(trial(state), event(kind))["state"] is made


def test_an_attempt_that_was_moved_is_stopped_not_failed():
    moved = trial(State.STOPPING, reason=Reason.MOVED)

    assert attempt_after(moved, event(EventKind.GONE))["state"] is State.STOPPED
    assert advance(moved, event(EventKind.GONE)).state is State.PENDING


# Single transitions


def test_a_claim_starts_a_clean_attempt():
    claimed = advance(
        trial(State.PENDING, attempt=1, message="It ran out of memory.", reason=Reason.OUT_OF_MEMORY),
        event(EventKind.CLAIMED, changes={"backend": "local"}),
    )

    assert (claimed.state, claimed.claimed_at, claimed.backend) == (State.SUBMITTING, AT, "local")
    assert (claimed.message, claimed.reason) == ("", Reason.NONE)
    assert claimed.attempt == 1


def test_a_second_claim_after_silence_moves_only_the_stamp():
    before = trial(State.SUBMITTING, handle=None)
    after = advance(before, event(EventKind.RECLAIMED))

    assert after.claimed_at == AT
    assert after.attempt == before.attempt


def test_acceptance_keeps_the_handle():
    queued = advance(
        trial(State.SUBMITTING, handle=None), event(EventKind.ACCEPTED, facts={"handle": "local:9"})
    )

    assert (queued.state, queued.handle, queued.submitted_at) == (State.QUEUED, "local:9", AT)


def test_what_the_backend_saw_comes_before_when_we_heard_of_it():
    started = advance(trial(State.QUEUED), event(EventKind.STARTED, facts={"started_at": AT - 5}))
    ended = advance(started, event(EventKind.SUCCEEDED, facts={"ended_at": AT - 1}))

    assert (started.started_at, ended.ended_at, ended.exit_code) == (AT - 5, AT - 1, 0)


def test_what_was_never_sent_uses_its_number_again():
    unsent = advance(trial(State.SUBMITTING, attempt=2), event(EventKind.UNSENT, Reason.UNSENT, "no route"))

    assert (unsent.state, unsent.attempt, unsent.message) == (State.PENDING, 2, "no route")


def test_a_retry_takes_the_next_number_and_keeps_the_words():
    retried = advance(
        trial(),
        event(EventKind.RETRIED, Reason.ERROR, "ValueError: x", changes={"errors": 1, "not_before": AT + 10}),
    )

    assert (retried.state, retried.attempt, retried.errors, retried.not_before) == (
        State.PENDING,
        1,
        1,
        AT + 10,
    )
    assert (retried.reason, retried.message) == (Reason.ERROR, "ValueError: x")


@pytest.mark.parametrize(
    ("reason", "end"),
    [(Reason.USER, State.CANCELLED), (Reason.LIMIT, State.STOPPED), (Reason.RULE, State.STOPPED)],
)
def test_who_asked_decides_how_a_stopped_trial_ends(reason, end):
    stopping = advance(trial(), event(EventKind.STOP_ASKED, reason))
    gone = advance(stopping, event(EventKind.GONE, facts={"exit_code": 143}))
    at_once = advance(trial(State.PENDING), event(EventKind.STOP_ASKED, reason))

    assert stopping.state is State.STOPPING
    assert (gone.state, gone.reason, gone.exit_code) == (end, reason, 143)
    assert (at_once.state, at_once.reason, at_once.ended_at) == (end, reason, AT)


def test_a_run_that_ends_well_before_the_stop_arrives_has_succeeded():
    stopping = advance(trial(), event(EventKind.STOP_ASKED, Reason.USER))

    assert advance(stopping, event(EventKind.SUCCEEDED)).state is State.SUCCEEDED


def test_a_reopened_trial_starts_anew_under_the_next_number():
    failed = trial(State.FAILED, attempt=2, errors=3, stalled=1, signature="s", message="m", value=0.1, value_step=3, raw_value="nan", closed=True, cancel_requested=True, not_before=AT + 9, checkpoint="c", checkpoint_step=5, run_id="r")  # fmt: skip
    again = advance(failed, event(EventKind.REOPENED, Reason.RESUMED))
    cleared = {"attempt": 3, "errors": 0, "stalled": 0, "signature": "", "message": "", "value": None, "value_step": None, "raw_value": "", "closed": False, "cancel_requested": False, "not_before": 0.0}  # fmt: skip

    assert {name: getattr(again, name) for name in cleared} == cleared
    # Its checkpoints and its MLflow run are still its own.
    assert (again.checkpoint, again.checkpoint_step, again.run_id) == ("c", 5, "r")


def test_a_trial_that_never_ran_is_reopened_under_the_same_number():
    cancelled = advance(trial(State.PENDING, attempt=1), event(EventKind.STOP_ASKED, Reason.USER))

    assert advance(cancelled, event(EventKind.REOPENED)).attempt == 1


def test_only_ends_end_an_attempt():
    for state, kind in NEXT:
        before = trial(state)
        if state.is_in_flight and kind not in ENDS | {EventKind.UNSENT}:
            assert attempt_after(before, event(kind))["ended_at"] is None, (state, kind)
        if kind in ENDS:
            assert attempt_after(before, event(kind))["ended_at"] == AT, (state, kind)


# Words


def test_every_reason_has_a_sentence_of_its_own():
    sentences = [reason.sentence for reason in Reason if reason is not Reason.NONE]

    assert all(text.endswith(".") and "\n" not in text for text in sentences)
    assert len(set(sentences)) == len(sentences)


def test_only_the_place_is_infrastructure():
    assert {reason for reason in Reason if reason.is_infrastructure} == {Reason.PREEMPTED, Reason.NODE_FAILED, Reason.LOST, Reason.NO_RENDEZVOUS}  # fmt: skip


def test_a_snapshot_cannot_be_changed():
    with pytest.raises(AttributeError):
        trial().state = State.FAILED

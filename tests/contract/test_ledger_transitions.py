"""Transitions: all or nothing, only from where the row is, only by who drives; and their attempts."""

from dataclasses import fields, replace

import pytest

from airflows.errors import LeaseLostError, LedgerError, StaleTrialError
from airflows.ledger import Closing, PointRow, SweepState
from airflows.trial import EventKind, Reason, State, Trial

NOW = 1_700_000_000.0


def test_a_transition_is_written_with_its_event_and_its_attempt(book):
    zero, one, _ = book.open()
    running = book.run(zero)

    assert book.one(0) == running
    assert book.one(1) == one
    assert [
        (e.number, e.attempt, e.kind, e.from_state, e.to_state, e.at) for e in book.ledger.events(zero.sweep)
    ] == [
        (0, 0, "claimed", "pending", "submitting", NOW + 1),
        (0, 0, "accepted", "submitting", "queued", NOW + 2),
        (0, 0, "started", "queued", "running", NOW + 3),
    ]


def test_every_field_of_a_trial_comes_back(book):
    zero = book.open()[0]
    changes = {
        "message": "µ 🙂 'x'", "errors": 2, "stalled": 1, "signature": "error: N", "checkpoint": "/c/step-9",
        "checkpoint_step": 2**40, "run_id": "r" * 32, "not_before": NOW + 0.125, "value": 1e-300, "value_step": 2**40,
        "raw_value": "nan", "closed": True, "resumed_from": "/c/step-8", "exit_code": 137, "host": "node1",
        "backend": "fake", "batch": "b", "ended_at": NOW + 1e-3, "submitted_at": 1.5, "started_at": 2.5,
    }  # fmt: skip
    after = book.move(zero, EventKind.CLAIMED, changes=changes)
    untouched = {"sweep", "number", "point", "replicate", "attempt", "handle", "cancel_requested"}

    assert book.one(0) == after
    # Else a field that is not written would go unnoticed.
    usual = Trial("s", 0, 0, 0)
    assert {f.name for f in fields(Trial) if getattr(after, f.name) == getattr(usual, f.name)} <= {
        *untouched,
        "reason",
    }


def test_many_transitions_are_one_transaction(book):
    trials = book.open(50)
    changes = [book.change(t, EventKind.CLAIMED) for t in trials]
    book.ledger.apply(book.lease, changes)

    assert book.ledger.trials(book.lease.sweep) == [c.after for c in changes]
    assert len(book.ledger.attempts(book.lease.sweep)) == 50
    assert len(book.ledger.events(book.lease.sweep)) == 50


def test_a_trial_that_moved_on_is_stale_and_nothing_is_written(book):
    zero, one, two = book.open()
    book.move(one, EventKind.CLAIMED)
    before = book.everything()

    with pytest.raises(
        StaleTrialError, match=rf"the ledger moved on under {zero.id}, {one.id}, {two.id}; nothing"
    ):
        book.ledger.apply(
            book.lease,
            [book.change(t, EventKind.CLAIMED) for t in (zero, one, two)],
            [Closing(2, value=1.0, scores=[("loss", 1, 1.0)])],
        )
    assert book.everything() == before


def test_columns_of_the_sweep_are_written_with_the_transitions_or_not_at_all(book):
    zero = book.open()[0]
    stale = book.change(zero, EventKind.CLAIMED)
    book.ledger.apply(book.lease, [stale], sweep={"state": SweepState.FAILED, "message": "one"})
    assert book.ledger.sweep(zero.sweep).message == "one"
    before = book.everything()

    with pytest.raises(StaleTrialError):
        book.ledger.apply(book.lease, [stale], sweep={"message": "two"})
    assert book.everything() == before


def test_the_same_transition_twice_is_stale(book):
    change = book.change(book.open()[0], EventKind.CLAIMED)
    book.ledger.apply(book.lease, [change])

    with pytest.raises(StaleTrialError):
        book.ledger.apply(book.lease, [change])


def test_a_driver_without_the_lease_writes_nothing(book):
    zero = book.open()[0]
    old = book.lease
    book.lease = book.hold(zero.sweep, now=NOW + 31)
    before = book.everything()
    writes = [
        lambda: book.ledger.apply(old, [book.change(zero, EventKind.CLAIMED)]),
        lambda: book.ledger.apply(old, [], [Closing(0, value=1.0)]),
        lambda: book.ledger.add_points(old, [PointRow(9, {}, "9")], [Trial(zero.sweep, 9, 9, 0)], expanded=9),
        lambda: book.ledger.update_sweep(old, state=SweepState.FAILED),
        lambda: book.ledger.renew(old, now=NOW, ttl_s=99),
        lambda: book.ledger.apply(replace(old, sweep="nothing"), [book.change(zero, EventKind.CLAIMED)]),
    ]

    for write in writes:
        with pytest.raises(LeaseLostError, match=r"another driver has taken over sweep .*; this one stops\."):
            write()
    assert book.everything() == before


def test_nothing_to_write_is_no_transaction(book):
    book.open()
    book.ledger.apply(replace(book.lease, token="lost"), [])


def test_a_run_without_a_handle_is_refused_by_the_schema(book):
    zero = book.open()[0]
    claimed = book.move(zero, EventKind.CLAIMED)
    before = book.everything()

    with pytest.raises(LedgerError, match="handle_where_it_runs"):
        book.move(claimed, EventKind.ACCEPTED, handle=None)
    assert book.everything() == before


# Attempts follow


def test_an_attempts_row_follows_what_happens(book):
    zero = book.open()[0]
    ran = book.run(zero)
    attempt = book.attempt(0)
    assert (attempt.token, attempt.backend, attempt.batch, attempt.code, attempt.accelerators) == (
        f"{zero.sweep}-0000-a0", "fake", "b1", "c" * 64, 8,
    )  # fmt: skip
    assert (attempt.state, attempt.handle, attempt.host) == ("running", "fake:0.0", "node1")
    assert (attempt.claimed_at, attempt.submitted_at, attempt.started_at) == (NOW + 1, NOW + 2, NOW + 3)

    book.move(ran, EventKind.SUCCEEDED, ended_at=NOW + 8, exit_code=0, at=NOW + 9)
    attempt = book.attempt(0)
    assert (attempt.state, attempt.ended_at, attempt.exit_code) == ("succeeded", NOW + 8, 0)


def test_a_retry_leaves_the_failed_attempt_as_it_was(book):
    ran = book.run(book.open()[0])
    changes = {"signature": "error: N", "errors": 1, "not_before": NOW + 20}
    again = book.move(
        ran, EventKind.RETRIED, Reason.ERROR, "ValueError: 3", changes=changes, exit_code=1, ended_at=NOW + 8, resumed_from="/c/1"
    )  # fmt: skip
    book.move(book.run(again), EventKind.SUCCEEDED, exit_code=0, at=NOW + 30)

    first, second = book.attempt(0, 0), book.attempt(0, 1)
    assert (first.state, first.reason, first.signature, first.message) == (
        "failed",
        "error",
        "error: N",
        "ValueError: 3",
    )
    assert (first.exit_code, first.ended_at, first.handle, first.resumed_from) == (
        1,
        NOW + 8,
        "fake:0.0",
        "/c/1",
    )
    assert (second.state, second.reason, second.signature, second.message) == ("succeeded", "", "", "")
    assert (second.exit_code, second.handle) == (0, "fake:0.1")
    assert (again.handle, again.attempt) == (None, 1)


def test_what_was_never_sent_leaves_no_attempt_but_its_story(book):
    zero = book.open()[0]
    unsent = book.move(
        book.move(zero, EventKind.CLAIMED), EventKind.UNSENT, Reason.UNSENT, "no route to host"
    )

    assert book.ledger.attempts(zero.sweep) == []
    assert [e.detail for e in book.ledger.events(zero.sweep, 0)] == ["", "no route to host"]
    assert book.ledger.started_count(zero.sweep) == 0
    # Its number, and so its token, is used again.
    book.run(unsent)
    assert [a.attempt for a in book.ledger.attempts(zero.sweep)] == [0]


def test_a_refused_attempt_is_kept(book):
    zero = book.open()[0]
    claimed = book.move(zero, EventKind.CLAIMED)
    book.move(
        claimed, EventKind.REJECTED, Reason.INVALID, "no such partition", changes={"signature": "invalid: x"}
    )

    attempt = book.attempt(0)
    assert (attempt.state, attempt.reason, attempt.message) == ("failed", "invalid", "no such partition")
    assert attempt.signature == "invalid: x"


def test_a_claim_that_is_renewed_keeps_its_attempt(book):
    zero = book.open()[0]
    book.move(book.move(zero, EventKind.CLAIMED), EventKind.RECLAIMED, at=NOW + 60)

    assert [(a.attempt, a.claimed_at, a.state) for a in book.ledger.attempts(zero.sweep)] == [
        (0, NOW + 60, "submitting")
    ]


@pytest.mark.parametrize(
    ("reason", "trial_state", "attempt_state"),
    [
        (Reason.USER, "cancelled", "cancelled"),
        (Reason.LIMIT, "stopped", "stopped"),
        (Reason.MOVED, "pending", "stopped"),
    ],
)
def test_a_run_that_was_asked_to_go(book, reason, trial_state, attempt_state):
    stopping = book.move(book.run(book.open()[0]), EventKind.STOP_ASKED, reason)
    assert book.attempt(0).state == "stopping"
    gone = book.move(stopping, EventKind.GONE, reason, exit_code=143, ended_at=NOW + 9)

    attempt = book.attempt(0)
    assert (gone.state, attempt.state, attempt.reason) == (trial_state, attempt_state, reason)
    assert (attempt.exit_code, attempt.ended_at) == (143, NOW + 9)


def test_a_trial_that_is_reopened_takes_a_new_attempt(book):
    zero = book.open()[0]
    dead = book.move(
        book.run(zero), EventKind.FAILED, Reason.ERROR, "boom", exit_code=1, changes={"signature": "s"}
    )
    book.ledger.apply(book.lease, [], [Closing(0, raw_value="nan")])
    book.ledger.request_cancel(zero.sweep, [0])
    again = book.move(book.one(0), EventKind.REOPENED, Reason.RESUMED)
    book.run(again)

    assert (again.attempt, again.closed, again.raw_value, again.signature) == (1, False, "", "")
    assert not book.one(0).cancel_requested
    assert [(a.attempt, a.state, a.message) for a in book.ledger.attempts(zero.sweep)] == [
        (0, "failed", "boom"),
        (1, "running", ""),
    ]
    assert dead.state is State.FAILED


def test_attempts_are_found_by_the_backends_own_id(book):
    zero = book.open()[0]
    book.run(zero)

    assert book.ledger.attempt_by_handle("fake", "fake:0.0") == (zero.sweep, 0, 0)
    assert book.ledger.attempt_by_handle("other", "fake:0.0") is None


@pytest.mark.parametrize("text", ["a\0b", "caf\udce9", "\ud800"])
def test_words_that_a_database_refuses_do_not_stop_a_driver(book, text):
    zero = book.open()[0]
    ran = book.run(zero)
    book.move(ran, EventKind.FAILED, Reason.ERROR, f"before {text} after", exit_code=1)
    book.ledger.apply(book.lease, [], [Closing(0, message=f"again {text}")])

    assert book.attempt(0).message.startswith("before ")
    assert book.ledger.events(zero.sweep)[-1].detail.endswith(" after")
    assert book.one(0).message.startswith("again ")

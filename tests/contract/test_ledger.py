"""What a ledger promises, on SQLite and on PostgreSQL alike."""

from dataclasses import fields, replace

import pytest
import sqlalchemy as sa

from airflows.errors import LeaseLostError, LedgerError, NotFoundError, SpecError, StaleTrialError
from airflows.ledger import Closing, PointRow, SweepState, Wish
from airflows.trial import EventKind, Reason, State, Trial

NOW = 1_700_000_000.0

# Sweeps


def test_a_sweep_is_created_once(book):
    row = book.row(message="first", winner={"trial": "x", "value": 0.25}, total=7)

    assert book.ledger.create_sweep(row)
    assert not book.ledger.create_sweep(replace(row, message="second"))
    assert book.ledger.sweep(row.id) == row


def test_every_column_of_a_sweep_comes_back(book):
    row = book.row(
        instance="2026-01-31T08:00", root="/mnt/µ", code="e" * 64, single=True, wish=Wish.HALT, requests=3,
        state=SweepState.STOPPED, halted="stopped: x", expanded=2, exhausted=True, total=2**31 - 1,
        resumed_at=NOW + 0.125, ended_at=NOW + 1e-3, experiment_id="1", parent_run_id="r", winner=None,
        source="name: digits\n# µ 🙂 'quotes' \"and\" \\ % %s :x ?\n",
    )  # fmt: skip

    assert book.ledger.create_sweep(row)
    assert book.ledger.sweep(row.id) == row


def test_a_sweep_that_is_not_there_is_named(book):
    with pytest.raises(NotFoundError, match=r"there is no sweep 'nothing'\. `airflows list --all`"):
        book.ledger.sweep("nothing")


def test_sweeps_come_newest_first(book):
    for age, name in enumerate(("new", "old", "older")):
        state = SweepState.RUNNING if age else SweepState.SUCCEEDED
        book.ledger.create_sweep(book.row(name, created_at=NOW - age, state=state))

    assert [row.name for row in book.ledger.sweeps()] == ["new", "old", "older"]
    assert [row.name for row in book.ledger.sweeps(active_only=True)] == ["old", "older"]
    assert [row.name for row in book.ledger.sweeps(limit=1)] == ["new"]


def test_a_name_means_its_newest_sweep_and_an_id_itself(book):
    old, new = (
        book.row("digits", id="digits-aaaaaa"),
        book.row("digits", id="digits-bbbbbb", created_at=NOW + 1),
    )
    # A sweep may be called as another one's id.
    other = book.row("digits-aaaaaa", id="digits-aaaaaa-cccccc", created_at=NOW + 2, definition="e" * 64)
    for row in (old, new, other):
        book.ledger.create_sweep(row)

    assert book.ledger.resolve("digits")[0].id == "digits-bbbbbb"
    assert book.ledger.resolve("digits-aaaaaa")[0].id == "digits-aaaaaa"
    assert book.ledger.newest_of("digits", "d" * 64).id == "digits-bbbbbb"
    assert book.ledger.newest_of("digits", "e" * 64) is None


@pytest.mark.parametrize("text", ["digits/9", "digits/999999999", "digits/0.0/1", "nothing", "nothing/0"])
def test_ids_that_lead_nowhere_say_so(book, text):
    book.open()

    with pytest.raises((NotFoundError, SpecError)) as caught:
        book.ledger.resolve(text)
    assert text.split("/")[0] in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_trial_and_an_attempt_are_resolved(book):
    sweep = book.open()[0].sweep

    assert book.ledger.resolve(f"{sweep}/2.1") == (book.ledger.sweep(sweep), 2, 1)


def test_columns_of_a_sweep_are_its_drivers_to_set(book):
    sweep = book.open()[0].sweep
    book.ledger.update_sweep(book.lease, state=SweepState.FAILED, halted="failed: x", winner={"trial": 1})

    row = book.ledger.sweep(sweep)
    assert (row.state, row.halted, row.winner) == (SweepState.FAILED, "failed: x", {"trial": 1})


def test_a_deleted_sweep_takes_its_rows_along(book):
    row = book.row()
    book.ledger.create_sweep(row)
    book.ledger.delete_sweep(row.id)

    assert book.ledger.sweeps() == []


# Points and trials


def test_points_and_trials_are_appended_with_how_far_the_expansion_has_come(book):
    made = book.open(3)

    assert book.ledger.trials(book.lease.sweep) == made
    assert [p.overrides for p in book.ledger.points(book.lease.sweep)] == [
        {"parameters.lr": n / 10} for n in range(3)
    ]
    row = book.ledger.sweep(book.lease.sweep)
    assert (row.expanded, row.exhausted) == (3, True)


def test_overrides_keep_their_order_and_their_types(book):
    book.open(0)
    overrides = {"z": 1, "a": 1.0, "m": [True, None, "1", {"k": "µ 🙂"}], "big": 10**30, "nan": float("inf")}
    book.ledger.add_points(book.lease, [PointRow(0, overrides, "x")], [])

    found = book.ledger.point(book.lease.sweep, 0).overrides
    assert list(found) == list(overrides)
    assert repr(found) == repr(overrides)


def test_points_are_read_in_pages(book):
    book.open(0)
    points = [PointRow(n, {"n": n}, f"{n}") for n in range(2500)]
    book.ledger.add_points(book.lease, points, [])

    assert list(book.ledger.points(book.lease.sweep)) == points
    assert list(book.ledger.points(book.lease.sweep, start=998, stop=2001)) == points[998:2001]
    assert list(book.ledger.points(book.lease.sweep, start=2500)) == []


def test_a_point_cannot_be_there_twice(book):
    book.open(1)
    before = book.everything()

    with pytest.raises(LedgerError) as caught:
        book.ledger.add_points(
            book.lease,
            [PointRow(1, {"secret": "hunter2"}, f"{0:064x}")],
            [Trial(book.lease.sweep, 1, 1, 0)],
            expanded=2,
        )
    assert "hunter2" not in str(caught.value)
    assert "INSERT" not in str(caught.value)
    assert book.everything() == before


def test_trials_are_chosen_by_state_number_and_what_is_still_open(book):
    zero, one, two = book.open(3)
    book.run(one)
    book.move(book.run(two), EventKind.SUCCEEDED, at=NOW + 9)
    sweep = book.lease.sweep

    def numbers(**chosen):
        return [t.number for t in book.ledger.trials(sweep, **chosen)]

    assert numbers() == [0, 1, 2]
    assert numbers(states=[State.PENDING, State.RUNNING]) == [0, 1]
    assert numbers(numbers=[2, 0, 77]) == [0, 2]
    assert numbers(numbers=[]) == []
    assert numbers(open_only=True) == [2]
    assert numbers(limit=2) == [0, 1]
    book.ledger.apply(book.lease, [], [Closing(2)])
    assert numbers(open_only=True) == []
    assert book.ledger.counts(sweep) == {State.PENDING: 1, State.RUNNING: 1, State.SUCCEEDED: 1}
    assert zero.state is State.PENDING


def test_any_number_of_numbers_can_be_asked_for(book):
    sweep = book.open(3)[0].sweep

    assert [t.number for t in book.ledger.trials(sweep, numbers=range(66_000))] == [0, 1, 2]
    assert [t.number for t in book.ledger.trials(sweep, numbers=range(66_000), limit=1)] == [0]


# Transitions


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


# What people ask for


def test_wishes_are_counted(book):
    sweep = book.open()[0].sweep
    assert book.ledger.wishes(sweep) == (Wish.RUN, 0)

    book.ledger.wish(sweep, Wish.STOP)
    book.ledger.request_cancel(sweep, [1])
    assert book.ledger.wishes(sweep) == (Wish.STOP, 2)


def test_requests_to_cancel_name_what_is_not_final(book):
    zero, one, _ = book.open()
    book.move(book.run(one), EventKind.SUCCEEDED)
    book.ledger.request_cancel(zero.sweep, [0, 1, 77])

    assert book.ledger.cancel_requests(zero.sweep) == {0}


def test_a_request_to_cancel_survives_what_its_driver_writes(book):
    """The driver's snapshot of the trial is older than the request, which comes from another process."""
    zero = book.open()[0]
    book.second().request_cancel(zero.sweep, [0])
    ran = book.run(zero)

    assert not ran.cancel_requested
    assert book.one(0).cancel_requested
    assert book.ledger.cancel_requests(zero.sweep) == {0}


def test_a_request_does_not_make_the_drivers_trial_stale(book):
    zero = book.open()[0]
    claimed = book.move(zero, EventKind.CLAIMED)
    book.second().request_cancel(zero.sweep, range(3))
    book.move(claimed, EventKind.UNSENT)

    assert book.one(0).state is State.PENDING


def test_thousands_can_be_cancelled_at_once(book):
    sweep = book.open(2000)[0].sweep
    book.ledger.request_cancel(sweep, range(1, 2000))

    assert book.ledger.cancel_requests(sweep) == set(range(1, 2000))


# Closing


def test_a_value_is_written_into_a_final_trial(book):
    ran = book.move(book.run(book.open()[0]), EventKind.SUCCEEDED)
    book.ledger.apply(
        book.lease, [], [Closing(0, 0.25, 2**40, scores=[("loss", 3, 0.5), ("loss", 4, float("nan"))])]
    )

    assert book.one(0) == replace(ran, closed=True, value=0.25, value_step=2**40)
    scores = book.ledger.constraint_scores(book.lease.sweep, ["loss"])
    assert repr(scores) == "{0: {'loss': nan}}"
    assert book.ledger.constraint_scores(book.lease.sweep, ["other"]) == {}


def test_closing_twice_changes_nothing(book):
    book.move(book.run(book.open()[0]), EventKind.SUCCEEDED)
    closing = Closing(0, 0.25, 4, scores=[("loss", -1, 0.5)])
    book.ledger.apply(book.lease, [], [closing])
    before = book.everything()
    book.ledger.apply(book.lease, [], [closing])

    assert book.everything() == before
    assert book.ledger.constraint_scores(book.lease.sweep, ["loss"]) == {0: {"loss": 0.5}}


def test_a_closing_may_say_why_there_is_no_value(book):
    one, two = (book.move(book.run(t), EventKind.SUCCEEDED, Reason.NONE, "fine") for t in book.open()[:2])
    book.ledger.apply(
        book.lease,
        [],
        [Closing(0, reason=Reason.NO_METRIC, message="nothing was logged"), Closing(1, raw_value="inf")],
    )

    assert book.one(0) == replace(one, closed=True, reason=Reason.NO_METRIC, message="nothing was logged")
    assert book.one(1) == replace(two, closed=True, raw_value="inf")


# What a new driver counts


def test_first_failures_are_those_of_the_first_failing_attempt(book):
    trials = book.open(4)

    def fail(trial, signature, at, kind=EventKind.RETRIED):
        return book.move(book.run(trial), kind, Reason.ERROR, changes={"signature": signature}, ended_at=at)

    fail(fail(trials[0], "a", NOW + 5), "b", NOW + 6)
    fail(trials[1], "a", NOW + 7, EventKind.FAILED)
    preempted = book.move(book.run(trials[2]), EventKind.RETRIED, Reason.PREEMPTED, ended_at=NOW + 8)
    fail(preempted, "c", NOW + 9)
    # A success after a failure is no failure.
    book.move(book.run(fail(trials[3], "a", NOW + 1)), EventKind.SUCCEEDED, ended_at=NOW + 9)

    assert book.ledger.first_failures(trials[0].sweep, NOW) == {"a": 3, "c": 1}
    assert book.ledger.first_failures(trials[0].sweep, NOW + 4) == {"a": 2, "c": 1}


def test_started_trials_and_accelerator_time_are_counted_over_attempts(book):
    zero, one, two = book.open()
    again = book.move(book.run(zero), EventKind.RETRIED, Reason.ERROR, ended_at=NOW + 13)
    book.move(book.run(again), EventKind.SUCCEEDED, ended_at=NOW + 5)
    book.run(one)

    assert book.ledger.started_count(zero.sweep) == 2
    assert book.ledger.accelerator_seconds(zero.sweep) == {"failed": 80.0, "succeeded": 16.0}
    assert two.attempt == 0


def test_two_sweeps_keep_out_of_each_others_way(book):
    first = book.open(2, "one")
    kept = book.lease
    second = book.open(2, "two")
    book.run(second[0])
    book.ledger.request_cancel(second[0].sweep, [0, 1])

    assert book.ledger.trials(first[0].sweep) == first
    assert book.ledger.events(first[0].sweep) == []
    assert book.ledger.cancel_requests(first[0].sweep) == set()
    book.lease = kept
    assert book.run(first[0]).state is State.RUNNING


# The database itself


def test_events_and_rows_never_disagree(book):
    trials = book.open(3)
    for trial in trials:
        ran = book.run(trial)
        book.move(ran, EventKind.FAILED if trial.number else EventKind.SUCCEEDED, ended_at=NOW + 9)
    engine = book.ledger._engine
    query = "SELECT t.state, t.version, (SELECT e.to_state FROM events e WHERE e.sweep = t.sweep AND e.number = t.number ORDER BY e.id DESC LIMIT 1), (SELECT count(*) FROM events e WHERE e.number = t.number) FROM trials t"
    with engine.connect() as connection:
        rows = connection.execute(sa.text(query)).all()

    assert len(rows) == 3
    assert all(row[0] == row[2] and row[1] == row[3] for row in rows)


def test_a_second_connection_sees_only_what_is_committed(book):
    zero = book.open()[0]
    other = book.second()
    book.run(zero)

    assert other.trials(zero.sweep) == book.ledger.trials(zero.sweep)


def test_only_a_server_is_shared_between_hosts(book):
    assert book.ledger.is_shared is book.url.startswith("postgresql")


def test_writing_through_to_the_disk_changes_nothing_else(book):
    book.ledger.survive_power_cuts()
    book.ledger.survive_power_cuts()

    assert book.run(book.open()[0]).state is State.RUNNING

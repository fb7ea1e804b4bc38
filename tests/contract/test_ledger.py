"""What a ledger promises, on SQLite and on PostgreSQL alike."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from airflows.errors import LedgerError, NotFoundError, SpecError
from airflows.ledger import Closing, PointRow, StoredScore, SweepState, Wish
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


# What people ask for


def test_wishes_are_counted(book):
    sweep = book.open()[0].sweep
    assert book.ledger.wishes(sweep) == (Wish.RUN, 0)

    book.ledger.wish(sweep, Wish.STOP)
    book.ledger.request_cancel(sweep, [1])
    assert book.ledger.wishes(sweep) == (Wish.STOP, 2)


def test_a_driver_does_not_overwrite_a_persons_stop(book):
    sweep = book.open()[0].sweep
    book.ledger.update_sweep(book.lease, wish=Wish.HALT, halted="stopped: x")
    assert book.ledger.wishes(sweep)[0] is Wish.HALT

    book.ledger.wish(sweep, Wish.STOP)
    book.ledger.update_sweep(book.lease, wish=Wish.PAUSED, message="m")
    book.ledger.apply(book.lease, [], sweep={"halted": "stopped: y"})
    row = book.ledger.sweep(sweep)
    assert (row.wish, row.message, row.halted) == (Wish.STOP, "m", "stopped: y")


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
    book.ledger.apply(book.lease, [], [Closing(0, 0.25, 2**40, scores=[("loss", -1, float("nan"))])])

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


def test_values_of_a_curve_stay_as_they_were_first_read(book):
    trial = book.move(book.run(book.open()[0]), EventKind.SUCCEEDED)
    book.ledger.add_scores(
        book.lease, [StoredScore(0, "loss", 3, 0.5), StoredScore(0, "loss", 9, float("nan"))]
    )
    book.ledger.add_scores(book.lease, [StoredScore(0, "loss", 3, 0.7), StoredScore(1, "loss", 3, 0.25)])
    book.ledger.apply(book.lease, [], [Closing(trial.number, 0.25, 4, scores=[("loss", -1, 0.5)])])

    found = book.ledger.curve_scores(book.lease.sweep, "loss")
    assert [(row.number, row.step, repr(row.value)) for row in found] == [
        (0, 3, "0.5"),
        (0, 9, "nan"),
        (1, 3, "0.25"),
    ]
    assert book.ledger.curve_scores(book.lease.sweep, "other") == []
    assert book.ledger.constraint_scores(book.lease.sweep, ["loss"]) == {0: {"loss": 0.5}}


def test_the_curve_of_a_trial_that_is_taken_up_again_is_forgotten(book):
    failed, other = (book.move(book.run(t), EventKind.FAILED) for t in book.open()[:2])
    rows = [StoredScore(trial.number, "loss", 3, float("nan")) for trial in (failed, other)]
    book.ledger.add_scores(book.lease, rows)
    again = book.move(failed, EventKind.REOPENED, Reason.RESUMED)

    found = book.ledger.curve_scores(book.lease.sweep, "loss")
    assert [row.number for row in found] == [other.number]
    assert set(book.ledger.reopenings(book.lease.sweep)) == {again.number}


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

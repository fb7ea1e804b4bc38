"""A lost sweep comes back in one transaction, or not at all."""

from dataclasses import replace

import pytest

from airflows.ledger import PointRow
from airflows.trial import EventKind, Handle, State, Trial

NOW = 1_700_000_000.0


def story(book, sweep):
    trial = Trial(sweep, 0, 0, 0)
    claimed = book.change(trial, EventKind.CLAIMED, changes={"backend": "fake"})
    accepted = book.change(claimed.after, EventKind.ACCEPTED, handle=Handle("fake:0"))
    ended = book.change(accepted.after, EventKind.SUCCEEDED, ended_at=NOW + 5, exit_code=0)
    return [claimed, accepted, ended]


def restore(book, **fields):
    row = book.row(expanded=2, exhausted=True, **fields)
    changes = story(book, row.id)
    points = [PointRow(n, {"parameters.lr": n / 10}, f"{n:064x}") for n in range(2)]
    trials = [changes[-1].after, Trial(row.id, 1, 1, 0)]
    return row, trials, book.ledger.restore_sweep(row, points, trials, changes)


def test_trials_attempts_and_events_are_those_of_the_story(book):
    row, trials, is_new = restore(book)

    assert is_new
    assert book.ledger.sweep(row.id) == row
    assert book.ledger.trials(row.id) == trials
    (attempt,) = book.ledger.attempts(row.id)
    assert (attempt.state, attempt.handle, attempt.ended_at) == (State.SUCCEEDED, "fake:0", NOW + 5)
    assert [event.kind for event in book.ledger.events(row.id)] == ["claimed", "accepted", "succeeded"]
    assert [point.number for point in book.ledger.points(row.id)] == [0, 1]


def test_a_sweep_that_is_there_is_left_as_it_is(book):
    book.open()
    before = book.everything()

    _, _, is_new = restore(book, nonce="another")

    assert not is_new
    assert book.everything() == before


def test_what_cannot_be_written_whole_is_not_written(book):
    row = book.row()
    changes = story(book, row.id)
    trials = [replace(changes[-1].after, sweep="nowhere")]

    with pytest.raises(Exception, match=r"FOREIGN KEY|foreign key"):
        book.ledger.restore_sweep(row, [], trials, changes)
    assert not book.ledger.sweeps()

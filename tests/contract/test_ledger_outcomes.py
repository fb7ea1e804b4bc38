"""Short ways to what a large sweep comes to say the same as the long ones."""

import random
from pathlib import Path

import pytest

from airflows.engine.following import Tail
from airflows.engine.results import gather, winning_value
from airflows.ledger import schema
from airflows.testing.crash import make_world
from airflows.testing.fake import Script
from airflows.testing.tracker import FakeTracker
from airflows.trial import EventKind, State

LOSS = {"metric": "loss", "goal": "minimize"}


def test_trials_come_page_by_page_as_they_would_all_at_once(book):
    book.open(7)
    for number in (1, 4):
        book.run(book.one(number))
    sweep = book.lease.sweep

    sizes = [len(page) for page in book.ledger.trials_by_page(sweep, size=3)]
    found = [trial for page in book.ledger.trials_by_page(sweep, size=3) for trial in page]
    running = [t.number for page in book.ledger.trials_by_page(sweep, [State.RUNNING], size=1) for t in page]

    assert sizes == [3, 3, 1]
    assert found == book.ledger.trials(sweep)
    assert running == [1, 4]


def test_attempts_at_some_trials_are_those_of_all_that_are_meant(book):
    book.open(5)
    for number in (0, 2, 3):
        failed = book.move(book.run(book.one(number)), EventKind.RETRIED)
        book.run(failed)
    sweep = book.lease.sweep

    found = book.ledger.attempts_at(sweep, {3, 0, 4})

    assert found == [*book.ledger.attempts(sweep, 0), *book.ledger.attempts(sweep, 3)]
    assert [(each.number, each.attempt) for each in found] == [(0, 0), (0, 1), (3, 0), (3, 1)]
    assert book.ledger.attempts_at(sweep, ()) == []


def test_outcomes_are_what_the_trials_say(book):
    book.open(3)
    book.move(book.run(book.one(1)), EventKind.SUCCEEDED)
    sweep = book.lease.sweep

    for found, trial in zip(book.ledger.outcomes(sweep), book.ledger.trials(sweep), strict=True):
        assert found == tuple(getattr(trial, name) for name in found._fields)


def write_event(book, identity, number):
    values = {"id": identity, "sweep": book.lease.sweep, "number": number, "attempt": 0, "at": 0.0}
    words = dict.fromkeys(("kind", "from_state", "to_state", "reason", "detail"), "")
    with book.ledger._write() as connection:
        connection.execute(schema.events.insert().values(**values, **words))


def test_an_event_that_becomes_visible_after_later_ones_is_seen_too(book):
    book.open(3)
    tail = Tail(book.ledger, book.lease.sweep)
    assert tail.look() is None
    newest = book.ledger.newest_event()

    write_event(book, newest + 2, number=1)
    assert tail.look() == {1}
    # As when a transaction got its id first, and ended last.
    write_event(book, newest + 1, number=2)
    assert tail.look() == {2}
    assert tail.look() == set()


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"objective": {**LOSS, "goal": "maximize"}},
        {"objective": {**LOSS, "take": "best"}},
        {"replicates": {"key": "parameters.seed", "values": [0, 1, 2]}},
        {"objective": {**LOSS, "constraints": ["loss >= 0.3"]}},
        {"objective": None},
        {"objective": None, "objectives": [LOSS, {"metric": "speed", "goal": "maximize"}]},
    ],
    ids=("plain", "maximize", "best", "replicates", "constraint", "none", "several"),
)
def test_the_winner_s_value_is_the_same_by_the_short_way(tree, tmp_path: Path):
    """At every stage of a sweep, some of whose trials fail."""
    chance = random.Random(1)
    tracker = FakeTracker(values={number: chance.random() for number in range(36)})
    whole = {"objective": LOSS, "space": {"parameters.lr": [n / 12 for n in range(12)]}, "retry": {"max": 0}}
    whole = {key: value for key, value in {**whole, **tree}.items() if value is not None}
    world = make_world(
        tmp_path, scripts=lambda job: Script(exit_code=int(job.number % 5 == 3)), tree=whole, tracker=tracker
    )
    sweep = world.begin()
    seen = []
    for ticks in (1, 4, 6, 2000):
        row = world.drive_for(sweep, ticks)
        winner = gather(world.ledger, row).winner
        seen.append(None if winner is None else winner["value"])
        assert winning_value(world.ledger, row) == seen[-1]
    world.close()

    assert seen[0] is None
    assert (seen[-1] is None) is ("objective" not in whole)

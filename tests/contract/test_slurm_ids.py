"""Slurm's own ids lead to trials: the ledger keeps `4711_12@BATCH`, people type what squeue prints."""

import pytest

from airflows.cli.lookup import find
from airflows.errors import NotFoundError
from airflows.trial import EventKind, Handle

NOW = 1_700_000_000.0


def submitted(book, trial, handle: str, at: float = NOW) -> None:
    claimed = book.move(trial, EventKind.CLAIMED, changes={"backend": "slurm"}, at=at)
    book.move(claimed, EventKind.ACCEPTED, handle=Handle(handle), at=at)


@pytest.fixture
def queued(book):
    """Trials 0 to 2 are elements 10 to 12 of array 4711; trial 3 is alone in 47."""
    for trial in book.open(4):
        handle = f"4711_{trial.number + 10}@d-b1" if trial.number < 3 else "47_0@d-b2"
        submitted(book, trial, handle)
    return book


@pytest.mark.parametrize(
    ("text", "number", "attempt"),
    [
        ("slurm:4711_12", 2, 0),
        ("slurm:4711_12@d-b1", 2, 0),
        ("slurm:4711", None, None),
        ("slurm:47_0", 3, 0),
        ("slurm:47", 3, 0),
    ],
)
def test_an_id_of_slurm_names_a_trial_or_its_sweep(queued, text, number, attempt):
    found = find(queued.ledger, text)

    assert (found.row.id, found.number, found.attempt) == (queued.lease.sweep, number, attempt)


@pytest.mark.parametrize(
    "text", ["slurm:4711_1", "slurm:471", "slurm:4711_%", "slurm:", "slurm:_", "local:4711"]
)
def test_nothing_else_names_anything(queued, text):
    with pytest.raises(NotFoundError, match="no trial was run as"):
        find(queued.ledger, text)


def test_of_an_id_that_came_up_again_the_newest_is_meant(queued):
    sweep = queued.lease.sweep
    (again,) = queued.open(1, "later")
    submitted(queued, again, "4711_12@later-b1", at=NOW + 1e6)

    assert find(queued.ledger, "slurm:4711_12").row.id == queued.lease.sweep != sweep

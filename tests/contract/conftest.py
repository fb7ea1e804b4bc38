"""A ledger with a sweep in it, on SQLite and on PostgreSQL; how its errors must read; worlds to drive in."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflows import ids
from airflows.backends.base import Job
from airflows.drivers import Owner
from airflows.errors import LedgerError
from airflows.ledger import Change, Lease, Ledger, PointRow, SweepRow, SweepState, Wish, schema
from airflows.ledger.opening import connect
from airflows.testing.crash import World, make_world
from airflows.testing.fake import Script
from airflows.trial import Event, EventKind, Handle, Reason, Trial, advance

NOW = 1_700_000_000.0
# Owners nobody can ask about, and one that has certainly gone.
ALICE = Owner("alice.example.org", "boot-a", "pid:[1]", 11, 1)
BOB = Owner("bob.example.org", "boot-b", "pid:[1]", 22, 2)


@dataclass
class Book:
    """A ledger, and the hand of a driver that writes into it."""

    ledger: Ledger
    url: str
    lease: Lease | None = None
    tokens: int = 0
    others: list[Ledger] = field(default_factory=list)

    def row(self, name="digits", **fields) -> SweepRow:
        usual = {
            "id": ids.sweep_id(name, "d" * 64),
            "name": name,
            "definition": "d" * 64,
            "instance": "",
            "source": "name: digits\n",
            "directory": "/srv",
            "backend": "fake",
            "root": "/srv/root",
            "code": "c" * 64,
            "single": False,
            "wish": Wish.RUN,
            "requests": 0,
            "state": SweepState.RUNNING,
            "message": "",
            "halted": "",
            "expanded": 0,
            "exhausted": False,
            "total": None,
            "created_at": NOW,
            "resumed_at": None,
            "ended_at": None,
            "tracking_uri": "none",
            "experiment_id": "",
            "parent_run_id": "",
            "winner": None,
            "lease_owner": "",
            "lease_token": "",
            "lease_since": None,
            "lease_until": None,
            "doubt_until": 0.0,
        }
        return SweepRow(**{**usual, **fields})

    def open(self, trials=3, name="digits") -> list[Trial]:
        """Create a sweep, take its lease, and add points with one trial each."""
        row = self.row(name)
        assert self.ledger.create_sweep(row)
        self.lease = self.hold(row.id)
        points = [PointRow(n, {"parameters.lr": n / 10}, f"{n:064x}") for n in range(trials)]
        made = [Trial(row.id, n, n, 0) for n in range(trials)]
        self.ledger.add_points(self.lease, points, made, expanded=trials, exhausted=True)
        return made

    def hold(self, sweep: str, owner: Owner = ALICE, *, now=NOW, ttl_s=30.0) -> Lease:
        self.tokens += 1
        return self.ledger.hold(sweep, owner, now=now, ttl_s=ttl_s, token=f"token-{self.tokens}")

    def change(
        self, before: Trial, kind: EventKind, reason=Reason.NONE, detail="", at=NOW, **facts
    ) -> Change:
        changes = facts.pop("changes", {})
        event = Event(kind, at, reason, detail, facts, changes)
        token = ids.token(ids.SweepId(before.sweep), before.number, before.attempt)
        return Change(before, advance(before, event), event, token, "c" * 64, 8)

    def move(self, before: Trial, kind: EventKind, *args, **fields) -> Trial:
        change = self.change(before, kind, *args, **fields)
        self.ledger.apply(self.lease, [change])
        return change.after

    def run(self, before: Trial) -> Trial:
        """Claim, submit and start a trial."""
        claimed = self.move(before, EventKind.CLAIMED, changes={"backend": "fake", "batch": "b1"}, at=NOW + 1)
        handle = Handle(f"fake:{before.number}.{before.attempt}")
        queued = self.move(claimed, EventKind.ACCEPTED, handle=handle, at=NOW + 2)
        return self.move(queued, EventKind.STARTED, host="node1", started_at=NOW + 3, at=NOW + 3)

    def second(self) -> Ledger:
        """Open the same database once more, as another process would."""
        self.others.append(Ledger(connect(self.url)))
        return self.others[-1]

    def one(self, number: int) -> Trial:
        """Read one trial."""
        return self.ledger.trials(self.lease.sweep, numbers=[number])[0]

    def attempt(self, number: int, attempt: int = 0):
        """Read one attempt's row."""
        return next(a for a in self.ledger.attempts(self.lease.sweep, number) if a.attempt == attempt)

    def everything(self) -> tuple:
        """All that is written of the sweep, to see that nothing changed."""
        sweep = self.lease.sweep
        return (
            replace(self.ledger.sweep(sweep), lease_until=None),
            self.ledger.trials(sweep),
            self.ledger.attempts(sweep),
            self.ledger.events(sweep),
            list(self.ledger.points(sweep)),
        )


@pytest.fixture(scope="session")
def postgres_ledger_url(postgres_url) -> str:
    """URL of a database for all tests that only need its ledger empty; one for each takes too long."""
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("CREATE DATABASE books")
    return postgres_url.replace("/postgres?", "/books?")


@pytest.fixture(params=["sqlite", "postgres"])
def book(request, tmp_path) -> Iterator[Book]:
    """An empty ledger on each kind of database."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_ledger_url")
    made = Book(Ledger(connect(url)), url)
    yield made
    for ledger in made.others:
        ledger.close()
    with made.ledger._write() as connection:
        for table in reversed(schema.metadata.sorted_tables):
            if table is not schema.meta:
                connection.execute(table.delete())
    made.ledger.close()


@pytest.fixture
def is_clear() -> Callable[[str], None]:
    """Check that an error is one paragraph for people, without SQL or values."""

    def check(text):
        assert "\n" not in text
        # A hint may end with a command to type.
        assert text.endswith((".", "'airflows[postgres]'", "sweep.yaml"))
        assert not re.search(
            r"\b(SELECT|INSERT|UPDATE|BEGIN|PRAGMA)\b|\[SQL|sqlalche\.me|hunter2|Traceback|Error\)", text
        )

    return check


@pytest.fixture
def refusal(is_clear) -> Callable[..., LedgerError]:
    """Return the error with which a ledger cannot be opened."""

    def refuse(*args, **kwargs):
        with pytest.raises(LedgerError) as caught:
            connect(*args, busy_timeout_s=0.1, **kwargs)
        assert caught.value.hint
        is_clear(str(caught.value))
        return caught.value

    return refuse


@pytest.fixture
def make(tmp_path: Path, database_url: str) -> Iterator[Callable[..., World]]:
    """Make a world, on SQLite and on PostgreSQL; keywords are keys of the sweep file."""
    made: list[World] = []

    def one(scripts: Callable[[Job], Script] = lambda _job: Script(), **tree: Any) -> World:
        made.append(make_world(tmp_path, scripts=scripts, tree=tree, database=database_url))
        return made[-1]

    yield one
    for world in made:
        world.close()

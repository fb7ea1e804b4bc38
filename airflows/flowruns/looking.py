"""Reading a sweep from the ledger for those who show it. Without Prefect."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from airflows.engine.results import gather, trials_with_overrides
from airflows.errors import NotFoundError
from airflows.flowruns.texts import View
from airflows.ledger import SweepRow, open_ledger
from airflows.trial import State


def look(home: Path, sweep: str) -> View:
    """Return a sweep as it stands.

    Raises:
        LedgerError: there is no ledger yet.
        NotFoundError: no such sweep yet.
    """
    with closing(open_ledger(home, create=False)) as ledger:
        row = ledger.sweep(sweep)
        attempts = ledger.attempts(row.id) if row.ended_at is not None else []
        return View(gather(ledger, row), list(trials_with_overrides(ledger, row)), attempts)


def look_at_counts(home: Path, sweep: str) -> tuple[SweepRow, Mapping[State, int]]:
    """Return a sweep and its trials by state: much less to read than the whole.

    Raises:
        LedgerError: there is no ledger yet.
        NotFoundError: no such sweep yet.
    """
    with closing(open_ledger(home, create=False)) as ledger:
        return ledger.sweep(sweep), ledger.counts(sweep)


def recorded(home: Path, sweep: str) -> SweepRow | None:
    """Return the sweep of this id, None when the ledger has none.

    Raises:
        LedgerError: the ledger cannot be read, so nobody knows.
    """
    with closing(open_ledger(home)) as ledger:
        try:
            return ledger.sweep(sweep)
        except NotFoundError:
            return None

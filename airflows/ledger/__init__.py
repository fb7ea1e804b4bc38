"""The durable record of what was decided: SQLAlchemy Core on SQLite or PostgreSQL."""

from __future__ import annotations

import os
from pathlib import Path

from airflows.ledger.opening import connect, sqlite_url
from airflows.ledger.records import (
    AttemptRow,
    Change,
    Closing,
    EventRow,
    Lease,
    PointRow,
    StoredScore,
    SweepRow,
    SweepState,
    Wish,
)
from airflows.ledger.store import Ledger

__all__ = [
    "AttemptRow",
    "Change",
    "Closing",
    "EventRow",
    "Lease",
    "Ledger",
    "PointRow",
    "StoredScore",
    "SweepRow",
    "SweepState",
    "Wish",
    "open_ledger",
]


def open_ledger(home: Path, *, create: bool = True, url: str | None = None) -> Ledger:
    """Open the ledger of a home directory, or the one at a URL.

    Args:
        home: `$AIRFLOWS_HOME`; it holds `ledger.db`.
        create: make it when it is missing.
        url: an SQLAlchemy URL; default `$AIRFLOWS_LEDGER_URL`, else SQLite under `home`.

    Raises:
        LedgerError: it cannot be opened, with what to do about it.
    """
    return Ledger(
        connect(url or os.environ.get("AIRFLOWS_LEDGER_URL") or sqlite_url(home / "ledger.db"), create=create)
    )

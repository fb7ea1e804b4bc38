"""What a sweep is, beside its launch directories: `runs/<sweep>/sweep.json` below the backend's root.

The ledger decides; this says what was lost when there is no ledger any more. It holds what neither the
backend nor MLflow knows, such as the sweep file as it took effect, and who drove last.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflows.drivers import Owner
from airflows.ledger import SweepRow, SweepState, Wish

FILE_NAME = "sweep.json"
_TEXTS = (
    *("id", "name", "definition", "instance", "source", "directory", "backend", "root", "code"),
    *("tracking_uri", "experiment_id", "parent_run_id", "nonce", "host"),
)
_KEPT = (*_TEXTS, "single", "created_at")
# Records that were written before these were kept have none.
_LATER = ("plan", "edits")


@dataclass(frozen=True, slots=True)
class Record:
    """A sweep as it was last driven.

    Attributes:
        row: the sweep; of its columns only those that do not tell how far it has come.
        driver: who drove it and has not let go of it; None for nobody.
    """

    row: SweepRow
    driver: Owner | None = None


def fresh_row(**known: Any) -> SweepRow:
    """Return the row of a sweep of which nothing has happened yet, for the columns that are not given."""
    row = SweepRow(
        **dict.fromkeys(_TEXTS, ""),
        single=False,
        wish=Wish.RUN,
        requests=0,
        state=SweepState.RUNNING,
        message="",
        halted="",
        expanded=0,
        exhausted=False,
        total=None,
        created_at=0.0,
        resumed_at=None,
        ended_at=None,
        winner=None,
        lease_owner="",
        lease_token="",
        lease_since=None,
        lease_until=None,
        doubt_until=0.0,
    )
    return replace(row, **known)


def keep_all(roots: Iterable[Path], row: SweepRow, driver: Owner | None) -> None:
    """Write a sweep's record in each of the places where it may run; see `keep`."""
    for root in roots:
        keep(root, row, driver)


def read_any(roots: Iterable[Path], sweep: str) -> Record | None:
    """Return a sweep's record in the first place that has one; None when none has."""
    return next((found for root in roots if (found := read(root, sweep)) is not None), None)


def keep(root: Path, row: SweepRow, driver: Owner | None) -> None:
    """Write a sweep's record; where that cannot be done, nothing else will be written either.

    Args:
        root: the backend's.
        row: the sweep.
        driver: who drives it from now on; None when nobody does.
    """
    known = {name: getattr(row, name) for name in (*_KEPT, *_LATER)}
    text = json.dumps({"version": 1, "driver": driver and driver.to_text(), **known}, indent=1)
    path = _path(root, row.id)
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)


def read(root: Path, sweep: str) -> Record | None:
    """Return a sweep's record; None when there is none that can be read."""
    try:
        found = json.loads(_path(root, sweep).read_bytes())
        known = {name: found[name] for name in _KEPT}
        row = fresh_row(**known, **{name: found.get(name, "") for name in _LATER})
        driver = Owner.from_text(found["driver"]) if found.get("driver") else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Record(row, driver) if row.id == sweep else None


def records_named(root: Path, name: str) -> Iterator[Record]:
    """Yield the records of the sweep with an id, or of those with a name, newest first."""
    known = (read(root, path.parent.name) for path in root.glob(f"runs/*/{FILE_NAME}"))
    named = [record for record in known if record is not None and name in {record.row.id, record.row.name}]
    # An id before a name, and a sweep before a single run, as the ledger takes them.
    yield from sorted(
        named, key=lambda one: (one.row.id != name, one.row.single, -one.row.created_at, one.row.id)
    )


def _path(root: Path, sweep: str) -> Path:
    return root / "runs" / sweep / FILE_NAME

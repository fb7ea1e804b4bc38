"""`--detach`: a driver in a session of its own, which goes on when the terminal has gone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from airflows.cli.failure import NoResultError
from airflows.cli.lookup import driver_of
from airflows.documents import Document
from airflows.errors import LeaseHeldError
from airflows.ledger import Ledger, SweepRow
from airflows.times import to_iso

_PATIENCE_S = 15.0
_LOOK_EVERY_S = 0.05
_LAST_LINES = 5


def log_path(home: Path, sweep: str) -> Path:
    """Return where a background driver writes."""
    return home / "drivers" / f"{sweep}.log"


def refuse_second_driver(row: SweepRow) -> None:
    """Return when nobody drives a sweep.

    Raises:
        LeaseHeldError: somebody does; it says who and since when.
    """
    owner = driver_of(row)
    if owner is None:
        return
    since = to_iso(row.lease_since)
    message = f"sweep {row.id} is driven by process {owner.pid} on {owner.host}, since {since}."
    raise LeaseHeldError(
        message, owner=f"{owner.host}:{owner.pid}", hint=f"Look on with: airflows watch {row.id}"
    )


def detach(ledger: Ledger, row: SweepRow, home: Path, tracking_uri: str = "") -> Document:
    """Start a driver in the background; return once it has the sweep.

    Args:
        ledger: where the sweep is.
        row: the sweep.
        home: `$AIRFLOWS_HOME`.
        tracking_uri: of an MLflow that the ledger must not know whole; empty for none. No argument of the
            process, since others see these.

    Raises:
        NoResultError: it ended before that; the message has its last lines.
    """
    environment = {**os.environ, "AIRFLOWS_HOME": str(home)}
    if tracking_uri:
        environment["MLFLOW_TRACKING_URI"] = tracking_uri
    path = log_path(home, row.id)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as log:
        began = log.tell()
        process = subprocess.Popen(
            # -P: the working directory's files are none of this program's modules.
            [sys.executable, "-P", "-m", "airflows.cli", "_drive", row.id],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        has_ended = process.poll() is not None
        if _has_begun(ledger.sweep(row.id), process.pid):
            break
        if has_ended:
            raise _ended_early(path, began)
        time.sleep(_LOOK_EVERY_S)
    # The driver outlives this process; otherwise Python would warn that nobody waits for it.
    process.returncode = process.returncode or 0
    return {"pid": process.pid, "log": str(path)}


def _has_begun(row: SweepRow, pid: int) -> bool:
    owner = driver_of(row)
    return row.ended_at is not None or (owner is not None and owner.pid == pid)


def _ended_early(path: Path, began: int) -> NoResultError:
    with path.open("rb") as log:
        log.seek(began)
        lines = log.read().decode(errors="replace").splitlines()[-_LAST_LINES:]
    return NoResultError(
        f"the driver in the background ended at once: {' '.join(lines)}", hint=f"Its log: {path}"
    )

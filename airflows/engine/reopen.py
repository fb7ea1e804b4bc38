"""Taking an ended or halted sweep up again: failed trials back to PENDING, limits and points extended."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any

from airflows import ids
from airflows.drivers import current_owner
from airflows.edits import Edits
from airflows.engine.driver import LEASE_TTL_S
from airflows.engine.site import Site
from airflows.engine.source import Replicates
from airflows.ledger import Change, SweepRow, SweepState, Wish
from airflows.space import expand
from airflows.trial import Event, EventKind, Reason, State, Trial, advance


def reopen(
    site: Site, row: SweepRow, *, failed: bool, code: str, now: float, classes: Collection[str] = ()
) -> SweepRow:
    """Write down that a sweep goes on; return its row. One that has nothing left to do stays as it is.

    Args:
        site: what the sweep works with, with its changed settings.
        row: the sweep as it stands.
        failed: failed trials are tried again; in a cancelled sweep the cancelled ones too.
        code: digest of the code that further attempts run.
        now: seconds since the epoch, UTC.
        classes: only trials that failed with one of these reasons are tried again; empty for all.

    Raises:
        LeaseHeldError: somebody drives it.
    """
    ledger = site.ledger
    lease = ledger.hold(row.id, current_owner(), now=now, ttl_s=LEASE_TTL_S, token=uuid.uuid4().hex)
    try:
        again = _again(site, row, classes) if failed else []
        extended = _extended(site, row)
        if row.ended_at is not None and not (again or extended or _is_unfinished(site, row, failed=failed)):
            return row
        changes = [reopened(row, trial, now) for trial in again]
        # One transaction: a trial must not be open in a sweep that is over.
        ledger.apply(lease, changes, sweep=going_on(site, code, now) | extended)
    finally:
        ledger.release(lease)
    # Read again after that: this process is not who drives it.
    return ledger.sweep(row.id)


def running_again(now: float) -> dict[str, Any]:
    """Return the columns of a sweep that runs again as it was."""
    return {
        "wish": Wish.RUN,
        "state": SweepState.RUNNING,
        "halted": "",
        "message": "",
        "winner": None,
        "ended_at": None,
        "resumed_at": now,
    }


def going_on(site: Site, code: str, now: float) -> dict[str, Any]:
    """Return the columns of a sweep that goes on, with the settings and the place it has now."""
    return {
        **running_again(now),
        "source": site.sweep.source,
        "code": code,
        "backend": site.backend.name,
        "root": str(site.backend.root),
        "host": site.host,
    }


def _is_unfinished(site: Site, row: SweepRow, *, failed: bool) -> bool:
    """Whether an ended sweep has trials that never ran to an end: it was halted or cancelled."""
    if row.halted or site.ledger.trials(row.id, states=[State.PENDING], limit=1):
        return True
    return failed and not row.exhausted


def _again(site: Site, row: SweepRow, classes: Collection[str]) -> list[Trial]:
    states = [State.FAILED, *([State.CANCELLED] if row.state is SweepState.CANCELLED else [])]
    orphaned = Edits.from_text(row.edits).orphaned
    trials = [trial for trial in site.ledger.trials(row.id, states=states) if trial.point not in orphaned]
    return [trial for trial in trials if not classes or trial.reason in classes]


def _extended(site: Site, row: SweepRow) -> dict[str, Any]:
    """Return the columns that a longer expansion changes, empty when it is no longer."""
    if site.sweep.source == row.source:
        return {}
    count = expand(site.sweep).count()
    longer = count is None or count > row.expanded
    if not longer:
        return {}
    replicates = Replicates(site.spec).count
    added = sum(trial.replicate >= replicates for trial in site.ledger.trials(row.id))
    total = None if count is None else count * replicates + added
    return {"exhausted": False, "total": total}


def reopened(row: SweepRow, trial: Trial, now: float) -> Change:
    """Return the change by which an ended trial runs again."""
    event = Event(EventKind.REOPENED, now, Reason.RESUMED)
    after = advance(trial, event)
    return Change(trial, after, event, ids.token(ids.SweepId(row.id), trial.number, after.attempt))

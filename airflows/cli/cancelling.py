"""`cancel`: trials, whole sweeps, or the trials of a sweep that have some override."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from airflows.cli import options
from airflows.cli.failure import FAILED, SUCCEEDED, UsageError
from airflows.cli.terminal import Session
from airflows.documents import Document
from airflows.errors import AirflowsError

if TYPE_CHECKING:
    from airflows.ledger import Ledger


def cancel(
    session: Session,
    wanted: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="SWEEP, SWEEP/12 or a backend's id.")
    ] = None,
    *,
    where: options.Where = None,
    everything: Annotated[bool, typer.Option("--all", help="All active sweeps.")] = False,
    yes: options.Yes = False,
) -> int:
    """Cancel trials or whole sweeps, and wait until their runs are gone."""
    from airflows.cli.lookup import conditions, existing_ledger, reading  # noqa: PLC0415
    from airflows.engine import operations  # noqa: PLC0415

    conditions_given = conditions(where) or None
    _check_words(wanted or [], where=bool(where), everything=everything)
    home = options.home()
    ledger = existing_ledger(home) if everything else reading(home)
    if ledger is None:
        return _answer(session, [], [])
    if everything:
        ids = [row.id for row in ledger.sweeps(active_only=True)]
        failed: list[tuple[str, AirflowsError]] = []
    else:
        ids, failed = _resolved(ledger, wanted or [])
    if not yes and session.can_ask() and not _is_agreed(session, ids, whole=conditions_given is None):
        session.note("Nothing was cancelled.")
        return FAILED
    outcome = operations.cancel(ids, home=home, where=conditions_given)
    return _answer(session, outcome.cancelled, failed + outcome.failed)


def _check_words(wanted: list[str], *, where: bool, everything: bool) -> None:
    if everything and (wanted or where):
        message = "--all cancels all active sweeps; it takes no ids and no --where."
        raise UsageError(message, hint="Name the sweep, or leave --all out.")
    if not everything and not wanted:
        message = "there is nothing to cancel."
        raise UsageError(message, hint="Name sweeps or trials, or say --all.")
    if where and any("/" in word or ":" in word for word in wanted):
        message = "--where chooses among the trials of a sweep, and a single trial is named."
        raise UsageError(message, hint="Name the sweep alone.")


def _resolved(ledger: Ledger, wanted: list[str]) -> tuple[list[str], list[tuple[str, AirflowsError]]]:
    """Return the ids in full without attempts, and what is wrong with the others."""
    from airflows.cli.lookup import find  # noqa: PLC0415

    ids: dict[str, None] = {}
    failed = []
    for text in wanted:
        try:
            found = find(ledger, text)
        except AirflowsError as exc:
            failed.append((text, exc))
        else:
            ids[found.row.id if found.number is None else f"{found.row.id}/{found.number}"] = None
    return list(ids), failed


def _is_agreed(session: Session, ids: list[str], *, whole: bool) -> bool:
    """Ask a person about whole sweeps."""
    sweeps = [each for each in ids if "/" not in each]
    if not sweeps or not whole:
        return True
    return session.ask(f"Cancel all trials of {', '.join(sweeps)}?")


def _answer(session: Session, cancelled: list[str], failed: list[tuple[str, AirflowsError]]) -> int:
    document: Document = {
        "cancelled": cancelled,
        "failed": [{"id": each, "error": str(error)} for each, error in failed],
    }
    lines = [f"{each} is cancelled" for each in cancelled]
    if not cancelled and not failed:
        lines = ["Nothing was left to cancel."]
    session.answer(document, lines)
    word = session.note_style.paint("error:", "red", "bold")
    session.note(*(f"{word} {each}: {error}" for each, error in failed))
    return status_of(cancelled, failed)


def status_of(cancelled: Sequence[str], failed: Sequence[tuple[str, AirflowsError]]) -> int:
    """Return the exit status: that of the gravest error where nothing was cancelled."""
    if not failed:
        return SUCCEEDED
    return FAILED if cancelled else max(error.exit_code for _, error in failed)

"""`cancel`: trials, whole sweeps, or the trials of a sweep that have some override."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from airflows.cli import options
from airflows.cli.failure import FAILED, SUCCEEDED, UsageError
from airflows.cli.terminal import Session
from airflows.documents import Document
from airflows.errors import AirflowsError, NotFoundError

if TYPE_CHECKING:
    from airflows.engine.operations import CancelOutcome
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
    profile: options.Profile = None,
) -> int:
    """Cancel trials or whole sweeps, and wait until their runs are gone."""
    from airflows.cli import strangers  # noqa: PLC0415
    from airflows.cli.lookup import conditions, existing_ledger, reading  # noqa: PLC0415
    from airflows.engine import operations  # noqa: PLC0415

    conditions_given = conditions(where) or None
    _check_words(wanted or [], where=bool(where), everything=everything)
    options.use_profile(profile)
    home = options.home()
    ledger = existing_ledger(home) if everything or _are_strange(wanted or []) else reading(home)
    if ledger is None and not everything:
        unknown = NotFoundError(f"nothing was started under {home} yet.")
        asked, left = strangers.cancel([(text, unknown) for text in wanted or []], home)
        return _answer(session, operations.CancelOutcome(cancelled=asked, failed=left))
    if ledger is None:
        return _answer(session, operations.CancelOutcome())
    if everything:
        ids = [row.id for row in ledger.sweeps(active_only=True)]
        failed: list[tuple[str, AirflowsError]] = []
    else:
        ids, failed = _resolved(ledger, wanted or [])
    if not yes and session.can_ask() and not _is_agreed(session, ids, whole=conditions_given is None):
        session.note("Nothing was cancelled.")
        return FAILED
    asked, failed = strangers.cancel(failed, home)
    outcome = operations.cancel(ids, home=home, where=conditions_given)
    cancelled = [*asked, *outcome.cancelled]
    return _answer(session, replace(outcome, cancelled=cancelled, failed=failed + outcome.failed))


def _are_strange(wanted: Sequence[str]) -> bool:
    """Whether all ids are a backend's own."""
    return all(":" in text for text in wanted)


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


def _answer(session: Session, outcome: CancelOutcome) -> int:
    document: Document = {
        "cancelled": outcome.cancelled,
        "ended": [{"id": each, "state": state} for each, state in outcome.ended],
        "failed": [{"id": each, "error": str(error)} for each, error in outcome.failed],
    }
    lines = [f"{each} is cancelled" for each in outcome.cancelled]
    lines += [f"{each} had ended before: {state}" for each, state in outcome.ended]
    session.answer(document, lines or ([] if outcome.failed else ["Nothing was left to cancel."]))
    word = session.note_style.paint("error:", "red", "bold")
    session.note(*(f"{word} {each}: {error}" for each, error in outcome.failed))
    return status_of(outcome.cancelled, outcome.failed)


def status_of(cancelled: Sequence[str], failed: Sequence[tuple[str, AirflowsError]]) -> int:
    """Return the exit status: that of the gravest error where nothing was cancelled."""
    if not failed:
        return SUCCEEDED
    return FAILED if cancelled else max(error.exit_code for _, error in failed)

"""Runs that a backend has and no ledger here knows, by the backend's own id: `databricks:777`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from airflows.backends.base import Backend, DescribesRuns, Phase
from airflows.backends.registry import backend_names, open_backend
from airflows.cli.failure import FAILED, SUCCEEDED
from airflows.cli.table import one_line
from airflows.cli.terminal import Session
from airflows.errors import AirflowsError, NotFoundError
from airflows.trial import Handle


class Knowing(Backend, DescribesRuns, Protocol):
    """A backend that tells of runs that nobody here has submitted."""


def backend_of(text: str, home: Path) -> tuple[Knowing, Handle] | None:
    """Return the backend that an id names, with its part; None when it tells nothing of strangers.

    Raises:
        AirflowsError: the backend cannot be opened.
    """
    name, colon, rest = text.partition(":")
    if not (colon and rest) or name not in backend_names():
        return None
    backend = open_backend(name, home)
    return (cast("Knowing", backend), Handle(rest)) if isinstance(backend, DescribesRuns) else None


def get(session: Session, text: str, home: Path, unknown: NotFoundError) -> int:
    """Tell what a backend knows of a run.

    Raises:
        NotFoundError: no backend knows it.
    """
    found = backend_of(text, home)
    if found is None:
        raise unknown
    backend, handle = found
    document = dict(backend.describe(handle))
    width = max(len(name) for name in document)
    shown = {name: one_line(str(value)) for name, value in document.items() if value is not None}
    session.answer(document, [f"{name:<{width}}  {value}" for name, value in shown.items()])
    return SUCCEEDED


def logs(session: Session, text: str, home: Path, wanted: tuple[int, int | None, int | None]) -> int:
    """Print the log of a run, and follow it while it runs; it succeeds as the run does.

    Args:
        session: of the command.
        text: the backend's id of the run.
        home: `$AIRFLOWS_HOME`.
        wanted: node, lines, attempt; None for all lines and for the newest attempt.

    Raises:
        NotFoundError: no backend knows it.
    """
    found = backend_of(text, home)
    if found is None:
        message = f"no trial was run as {text!r}."
        raise NotFoundError(message, hint="`airflows list --runs --all` shows the backends' ids.")
    backend, handle = found
    backend.describe(handle)
    node, lines, attempt = wanted
    seen = backend.poll([handle]).get(handle)
    follow = seen is None or seen.phase is not Phase.ENDED
    for line in backend.logs_of(handle, node=node, follow=follow, lines=lines, attempt=attempt):
        if session.is_json:
            session.record({"run": text, "attempt": attempt, "node": node, "line": line})
        else:
            session.text(line)
    return FAILED if _has_failed(backend, handle) else SUCCEEDED


def _has_failed(backend: Knowing, handle: Handle) -> bool:
    seen = backend.poll([handle]).get(handle)
    if seen is None:
        # It has ended, but is not observed while an MLflow run may still be told, which it need not have.
        return backend.describe(handle).get("status") != "SUCCESS"
    return seen.phase is Phase.ENDED and (seen.exit_code != 0 or bool(seen.word))


def cancel(
    failed: Sequence[tuple[str, AirflowsError]], home: Path
) -> tuple[list[str], list[tuple[str, AirflowsError]]]:
    """Ask backends to end runs that no ledger knows; return (asked, those that nobody knows)."""
    asked: list[str] = []
    left: list[tuple[str, AirflowsError]] = []
    for text, error in failed:
        try:
            found = backend_of(text, home) if isinstance(error, NotFoundError) else None
            if found is None:
                left.append((text, error))
                continue
            backend, handle = found
            # One that is not there would be forgiven, as one that has ended is.
            backend.describe(handle)
            backend.cancel([handle])
            asked.append(text)
        except AirflowsError as exc:
            left.append((text, exc))
    return asked, left

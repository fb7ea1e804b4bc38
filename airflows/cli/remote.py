"""What the backends themselves say: `list --remote`, and why a trial waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflows.backends.base import ListsRuns, Phase, RemoteRun
from airflows.backends.places import places_of
from airflows.backends.registry import backend_names, open_backend
from airflows.cli.table import NOTHING, table, when
from airflows.cli.terminal import Session, Style
from airflows.documents import Document, remote_document
from airflows.engine.site import reload
from airflows.errors import AirflowsError, BackendUnavailableError, MissingExtraError, SpecError
from airflows.ids import canonical_json
from airflows.ledger import Ledger, SweepRow
from airflows.trial import State, Trial

_SOON_S = 5.0
_ORDER = (Phase.RUNNING, Phase.UNKNOWN, Phase.QUEUED)


def list_remote(
    session: Session,
    ledger: Ledger | None,
    home: Path,
    chosen: Callable[[Iterator[Document]], Iterable[Document]],
) -> int:
    """Ask the backends that active sweeps are on, and those that can be reached without a sweep's settings.

    Args:
        session: of the command.
        ledger: what is known, None when nothing was ever started here.
        home: `$AIRFLOWS_HOME`.
        chosen: takes the rows that are wanted, and no more than are to be shown.

    Returns:
        The exit status: 3 when a backend of an active sweep does not answer.
    """
    found: dict[tuple[str, str], RemoteRun] = {}
    silent: list[Document] = []
    asked, unasked = 0, list[str]()
    for name, backend in _backends(ledger, home, unasked):
        try:
            runs = list(backend.remote_runs())
        except BackendUnavailableError as exc:
            silent.append({"backend": name, "why": str(exc)})
            session.note(f"{name}: {exc}")
            continue
        asked += 1
        for run in runs:
            key = (name, run.handle)
            # Asked with the settings of two sweeps it may show the same; one may know more of it.
            if not (key in found and found[key].token):
                found[key] = run
    shown = list(chosen(_rows(ledger, found)))
    if not shown and not session.is_json:
        if not (asked or silent):
            session.note(*unasked, "No backend here can be asked.")
        elif not silent:
            session.note("Nothing of ours waits or runs there.")
        return 3 if silent else 0
    document = {"remote": shown, "unreachable": silent}
    session.answer(document, _lines(shown, session.style))
    return 3 if silent else 0


def _backends(ledger: Ledger | None, home: Path, unasked: list[str]) -> Iterator[tuple[str, ListsRuns]]:
    settings: dict[str, Any] = {}
    for row in ledger.sweeps(active_only=True) if ledger is not None else ():
        wanted = reload(row).spec.backend
        settings.setdefault(canonical_json(wanted), wanted)
    names = {one if isinstance(one, str) else str(one.get("type")) for one in settings.values()}
    for wanted in settings.values():
        for place in places_of(open_backend(wanted, home)):
            names.add(place.own.name)
            if isinstance(place.own, ListsRuns):
                yield place.name, place.own
    for name in backend_names():
        if name not in names:
            yield from _by_name(name, home, unasked)


def _by_name(name: str, home: Path, unasked: list[str]) -> Iterator[tuple[str, ListsRuns]]:
    try:
        backend = open_backend(name, home)
    except (SpecError, MissingExtraError):
        # It cannot be asked without settings, or not from here.
        return
    if not isinstance(backend, ListsRuns):
        return
    reach = backend.reach()
    if reach.available:
        yield backend.name, backend
    else:
        unasked.append(f"{name}: {reach.why_not}")


def _rows(ledger: Ledger | None, found: Mapping[tuple[str, str], RemoteRun]) -> Iterator[Document]:
    ordered = sorted(
        found.items(), key=lambda item: (_ORDER.index(item[1].phase), item[1].submitted_at or 0.0)
    )
    for (backend, handle), run in ordered:
        known = None if ledger is None else _attempt(ledger, backend, handle)
        yield remote_document(backend, run, known)


def _attempt(ledger: Ledger, backend: str, handle: str) -> tuple[str, int, int] | None:
    # Of several places each handle begins with the place's name.
    own = ledger.attempt_by_handle(backend, handle)
    return own or ledger.attempt_by_handle(backend, f"{backend}:{handle}")


def _lines(runs: Sequence[Document], style: Style) -> list[str]:
    """Return the table of `list --remote`."""
    header = ("RUN", "TRIAL", "STATE", "SINCE", "BACKEND SAYS", "HOST", "NAME")
    rows = [
        (
            f"{run['backend']}:{run['handle'].partition('@')[0]}",
            run["trial"] or f"unknown{_token_text(run)}",
            str(run["state"]),
            when(run["started_at"] or run["submitted_at"]),
            run["detail"] or run["word"] or "",
            run["host"] or NOTHING,
            run["name"],
        )
        for run in runs
    ]
    return table(header, rows, style)


def _token_text(run: Document) -> str:
    return f" ({run['token']})" if run["token"] else ""


def waiting_words(row: SweepRow, trials: Iterable[Trial], home: Path) -> list[str]:
    """Return what the backend says of each trial that waits in its queue, where it says anything soon."""
    handles = [trial.handle for trial in trials if trial.state is State.QUEUED and trial.handle is not None]
    words: list[str] = []

    def ask() -> None:
        try:
            seen = open_backend(reload(row).spec.backend, home).poll(handles)
        except (AirflowsError, OSError):
            return
        words.extend(one.detail for one in seen.values() if one.phase is Phase.QUEUED and one.detail)

    if handles:
        # The story is told without it when a controller takes its time.
        asking = threading.Thread(target=ask, daemon=True, name="waiting")
        asking.start()
        asking.join(_SOON_S)
    return list(words)

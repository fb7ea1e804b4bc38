"""`logs`: what trials printed, followed while they run."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airflows.cli import options
from airflows.cli.failure import NoResultError, UsageError
from airflows.cli.table import one_line
from airflows.cli.terminal import Session
from airflows.errors import AirflowsError, NotFoundError
from airflows.trial import FINAL, Handle

if TYPE_CHECKING:
    from airflows.backends.base import Backend
    from airflows.cli.lookup import Found
    from airflows.ledger import AttemptRow, Ledger, SweepRow

_LOOK_EVERY_S = 0.5


def logs(
    session: Session,
    wanted: options.AnyId,
    *,
    node: Annotated[int, typer.Option("--node", metavar="N", min=0, help="Which node's log.")] = 0,
    lines: Annotated[
        int | None,
        typer.Option("--lines", "-n", metavar="N", min=0, help="Only the last N lines to begin with."),
    ] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="A", min=0, help="Which attempt; the last by default.")
    ] = None,
    all_trials: Annotated[
        bool, typer.Option("--all-trials", help="Every trial; lines are prefixed.")
    ] = False,
    download_to: Annotated[
        Path | None, typer.Option("--download-to", metavar="DIR", help="Copy the logs there instead.")
    ] = None,
    profile: options.Profile = None,
) -> int:
    """Print logs; follow them while the trial runs."""
    from airflows.cli import strangers  # noqa: PLC0415
    from airflows.cli.lookup import Found, find, reading, the_trial  # noqa: PLC0415

    options.use_profile(profile)
    try:
        ledger = reading(options.home())
        found = find(ledger, wanted)
    except NotFoundError:
        if all_trials or download_to is not None or strangers.backend_of(wanted, options.home()) is None:
            raise
        return strangers.logs(session, wanted, options.home(), (node, lines, attempt))
    if all_trials and found.number is not None:
        message = f"{wanted} is one trial, and --all-trials wants all of its sweep's."
        raise UsageError(message, hint=f"Ask for {found.row.id}.")
    if attempt is not None:
        found = Found(found.row, found.number, attempt)
    if download_to is not None:
        return _download(session, ledger, found, download_to)
    printer = Printer(session, ledger, found.row, node, lines)
    if all_trials:
        return printer.follow_all()
    return printer.follow(the_trial(found))


def open_backend_of(row: SweepRow) -> Backend:
    """Return the backend of a recorded sweep."""
    from airflows.backends.registry import open_backend  # noqa: PLC0415
    from airflows.engine.site import reload  # noqa: PLC0415

    return open_backend(reload(row).spec.backend, options.home())


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log, and whose it is."""

    number: int
    attempt: int
    text: str


class Printer:
    """Prints the logs of a sweep's trials."""

    def __init__(self, session: Session, ledger: Ledger, row: SweepRow, node: int, lines: int | None) -> None:
        self._session = session
        self._ledger = ledger
        self._row = row
        self._node = node
        self._lines = lines
        self._backend = open_backend_of(row)
        self._sleep: Callable[[float], None] = time.sleep

    def follow(self, found: Found) -> int:
        """Print one attempt's log: the one that is named, else the last; wait for the first to start."""
        number = found.number or 0
        nodes = _nodes(self._ledger, self._row, number, self._backend)
        if self._node >= nodes:
            message = f"{self._row.id}/{number} has {nodes} node{'s' * (nodes != 1)}, counted from 0."
            raise UsageError(message, hint=f"There is no node {self._node}.")
        made = self._attempt(number, found.attempt)
        for text in self._read(made):
            self._print(Line(number, made.attempt, text), prefixed=False)
        return 0

    def _attempt(self, number: int, wanted: int | None) -> AttemptRow:
        from airflows.cli.lookup import driver_of  # noqa: PLC0415

        told = False
        while True:
            made = [a for a in self._ledger.attempts(self._row.id, number) if wanted in {None, a.attempt}]
            if made and made[-1].handle is not None:
                return made[-1]
            (trial,) = self._ledger.trials(self._row.id, numbers=[number])
            if trial.state in FINAL or driver_of(self._ledger.sweep(self._row.id)) is None:
                which = "" if wanted is None else f" attempt {wanted} of"
                message = f"there is no log of{which} {trial.id}: it is {trial.state} and has not run."
                raise NoResultError(message, hint=f"`airflows get {trial.id}` tells its story.")
            if not told:
                self._session.note(f"{trial.id} is {trial.state}; waiting for it to start.")
                told = True
            self._sleep(_LOOK_EVERY_S)

    def _read(self, made: AttemptRow) -> Iterator[str]:
        # An attempt whose trial has moved on has ended, whatever became of it.
        follow = made.ended_at is None
        handle = Handle(made.handle or "")
        return self._backend.logs(handle, node=self._node, follow=follow, lines=self._lines)

    def follow_all(self) -> int:
        """Print the logs of all trials that have run, run or are still to run."""
        found: queue.Queue[Line] = queue.Queue(maxsize=1000)
        threads: dict[tuple[int, int], threading.Thread] = {}
        while True:
            row = self._ledger.sweep(self._row.id)
            for made in self._ledger.attempts(row.id):
                key = (made.number, made.attempt)
                if made.handle is not None and key not in threads:
                    if made.ended_at is not None:
                        threads[key] = threading.current_thread()
                        for text in self._read(made):
                            self._print(Line(*key, text), prefixed=True)
                    else:
                        threads[key] = self._follower(made, found)
            going = [t for t in threads.values() if t is not threading.current_thread() and t.is_alive()]
            self._drain(found, _LOOK_EVERY_S if going else 0.0)
            if not going and found.empty() and self._is_over(row):
                return 0
            if not going:
                self._sleep(_LOOK_EVERY_S)

    def _is_over(self, row: SweepRow) -> bool:
        from airflows.cli.lookup import driver_of  # noqa: PLC0415

        return row.ended_at is not None or driver_of(row) is None

    def _follower(self, made: AttemptRow, found: queue.Queue[Line]) -> threading.Thread:
        def follow() -> None:
            try:
                for text in self._read(made):
                    found.put(Line(made.number, made.attempt, text))
            except (AirflowsError, OSError) as exc:
                self._session.note(f"{self._row.id}/{made.number}: its log cannot be followed: {exc}")

        thread = threading.Thread(target=follow, daemon=True, name=f"log-{made.number}")
        thread.start()
        return thread

    def _drain(self, found: queue.Queue[Line], patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while True:
            try:
                line = found.get(timeout=max(0.0, deadline - time.monotonic()) or 0.001)
            except queue.Empty:
                return
            self._print(line, prefixed=True)

    def _print(self, line: Line, *, prefixed: bool) -> None:
        if self._session.is_json:
            self._session.record(
                {
                    "trial": f"{self._row.id}/{line.number}",
                    "attempt": line.attempt,
                    "node": self._node,
                    "line": line.text,
                }
            )
        else:
            prefix = f"{line.number}.{line.attempt} | " if prefixed else ""
            self._session.text(f"{prefix}{line.text}")


def _download(session: Session, ledger: Ledger, found: Found, directory: Path) -> int:
    """Copy logs into `DIR/<number>.<attempt>/node_<n>.log`."""
    backend = open_backend_of(found.row)
    written: list[str] = []
    for made in ledger.attempts(found.row.id, found.number):
        if made.handle is None or found.attempt not in {None, made.attempt}:
            continue
        for node in range(_nodes(ledger, found.row, made.number, backend, made.backend)):
            path = directory / f"{made.number}.{made.attempt}" / f"node_{node}.log"
            lines = backend.logs(Handle(made.handle), node=node, follow=False)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8", errors="replace") as file:
                file.writelines(f"{line}\n" for line in lines)
            written.append(str(path))
    session.answer({"files": written}, [f"{len(written)} logs are in {one_line(str(directory))}."])
    return 0


def _nodes(ledger: Ledger, row: SweepRow, number: int, backend: Backend, place: str = "") -> int:
    """Return the nodes of a trial in a place; where it is now when none is named."""
    from airflows.backends.places import place_named  # noqa: PLC0415
    from airflows.cli.lookup import overrides_of  # noqa: PLC0415
    from airflows.engine.site import reload  # noqa: PLC0415
    from airflows.train import ACCELERATORS, effective  # noqa: PLC0415

    trials = ledger.trials(row.id, numbers=[number])
    compute = effective(reload(row).base.tree, overrides_of(ledger, row, trials)[number])["compute"]
    compute = {**compute, **place_named(backend, place or trials[0].backend).compute}
    return max(1, int(compute["num_accelerators"]) // ACCELERATORS[compute["accelerator_type"]])

"""Driving a sweep in a thread of its own, or looking on while somebody else drives it. Without Prefect."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from airflows.engine import operations
from airflows.engine.drive import Drive
from airflows.engine.observers import Observer
from airflows.engine.operations import Driven
from airflows.engine.start import Begun
from airflows.errors import LeaseHeldError, LeaseLostError
from airflows.flowruns.request import Wanted
from airflows.ledger import SweepRow, Wish, open_ledger

_LOOK_AGAIN_S = 5.0


@dataclass(slots=True)
class Driving:
    """One sweep on its way to its end.

    Attributes:
        wanted: the sweep.
        home: `$AIRFLOWS_HOME`.
        observer: is told what happens while this process drives.
        say: is told what people should know.
        looks_on: while another process drives it, wait; else that is an error.
    """

    wanted: Wanted
    home: Path
    observer: Observer
    say: Callable[[str], None]
    looks_on: bool = True
    _drive: Drive | None = None
    _left: threading.Event = field(default_factory=threading.Event)
    _is_unwanted: bool = False
    _told: str = ""

    @property
    def sweep(self) -> str:
        """The sweep's id."""
        return self.wanted.id

    def run(self) -> None:
        """Drive the sweep to its end, wherever it stands, and return; blocks.

        While another process drives it, look on, and take over when that one is gone, but not from a person
        who let go of it. Returns early after `let_go`.

        Raises:
            AirflowsError: it cannot be started or driven on; one of a lease only without `looks_on`.
        """
        work = self._start if self.wanted.loaded is not None else self._carry_on
        while True:
            try:
                row = work().row
            except (LeaseHeldError, LeaseLostError) as exc:
                if not self.looks_on:
                    raise
                self._tell_once(f"{exc} This run looks on, and takes over if that one is gone.")
                row = self._row()
            if not self._is_to_be_driven_on(row):
                return
            work = self._carry_on

    def let_go(self) -> None:
        """Stop driving soon; the trials go on, and whoever comes next drives them. Safe from any thread."""
        self._left.set()
        if self._drive is not None:
            self._drive.pause()

    def stop_trials(self) -> None:
        """Write down that all trials are to be cancelled; whoever drives does it. Safe from any thread.

        A sweep that is not in the ledger yet is cancelled as soon as it is.

        Raises:
            LedgerError: it cannot be written now.
            NotFoundError: the sweep is not in the ledger yet.
        """
        # Before the ledger is asked: what comes into it from now on is cancelled by `_begun`.
        self._is_unwanted = True
        with closing(open_ledger(self.home, create=False)) as ledger:
            if ledger.sweep(self.sweep).ended_at is None:
                ledger.wish(self.sweep, Wish.STOP)

    def _start(self) -> Driven:
        loaded, instance = self.wanted.loaded, self.wanted.instance
        assert loaded is not None  # noqa: S101 - for the type checker: `run` asks
        return operations.start(
            loaded, home=self.home, observer=self.observer, instance=instance, on_begun=self._begun
        )

    def _carry_on(self) -> Driven:
        return operations.carry_on(self.sweep, home=self.home, observer=self.observer, on_begun=self._begun)

    def _begun(self, begun: Begun, drive: Drive) -> None:
        row = begun.row
        self.wanted = Wanted(row.id)
        drive.keeps_wish = True
        self._drive = drive
        if self._is_unwanted and row.ended_at is None:
            drive.site.ledger.wish(row.id, Wish.STOP)
        if self._left.is_set():
            drive.pause()
        for notice in begun.notices if begun.is_new else ():
            self.say(notice)
        if row.ended_at is None:
            total = "trials" if row.total is None else f"{row.total} trials"
            what = "started" if begun.is_new else "taken up where it stood"
            self.say(f"{row.id}: {what}; {total} on {row.backend}, {drive.site.room} at a time.")
        else:
            again = f"airflows resume {row.id} --failed"
            self.say(f"{row.id} has ended already. `{again}` tries again what failed.")

    def _is_to_be_driven_on(self, row: SweepRow) -> bool:
        """Wait a little, and on while a person wants the sweep to rest; False when there is nothing to do."""
        while row.ended_at is None and not self._left.wait(_LOOK_AGAIN_S):
            row = self._row()
            if row.wish is not Wish.PAUSED:
                return row.ended_at is None
            if not self.looks_on:
                return False
            self._tell_once(
                f"{row.id} was let go of by a person. `airflows resume {row.id}` goes on with it."
            )
        return False

    def _row(self) -> SweepRow:
        with closing(open_ledger(self.home, create=False)) as ledger:
            return ledger.sweep(self.sweep)

    def _tell_once(self, what: str) -> None:
        if what != self._told:
            self._told = what
            self.say(what)

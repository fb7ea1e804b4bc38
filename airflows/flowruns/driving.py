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
    """

    wanted: Wanted
    home: Path
    observer: Observer
    say: Callable[[str], None]
    _drive: Drive | None = None
    _left: threading.Event = field(default_factory=threading.Event)
    _holder: str = ""

    @property
    def sweep(self) -> str:
        """The sweep's id."""
        return self.wanted.id

    def run(self) -> None:
        """Drive the sweep to its end, wherever it stands, and return; blocks.

        While another process drives it, look on, and take over when that one is gone. Returns early after
        `let_go`.

        Raises:
            AirflowsError: it cannot be started or driven on; all but `LeaseHeldError`.
        """
        work = self._start if self.wanted.loaded is not None else self._carry_on
        while True:
            try:
                row = work().row
            except (LeaseHeldError, LeaseLostError) as exc:
                self._tell_once(str(exc))
                row = self._row()
            if row.ended_at is not None or self._left.wait(_LOOK_AGAIN_S):
                return
            work = self._carry_on

    def let_go(self) -> None:
        """Stop driving soon; the trials go on, and whoever comes next drives them. Safe from any thread."""
        self._left.set()
        if self._drive is not None:
            self._drive.pause()

    def stop_trials(self) -> None:
        """Write down that all trials are to be cancelled; whoever drives does it. Safe from any thread."""
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

    def _row(self) -> SweepRow:
        with closing(open_ledger(self.home, create=False)) as ledger:
            return ledger.sweep(self.sweep)

    def _tell_once(self, who: str) -> None:
        if who != self._holder:
            self._holder = who
            self.say(f"{who} This run looks on, and takes over if that one is gone.")

"""Ctrl-C: the first one lets go of the sweep and leaves its trials running, a second one leaves at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Protocol, Self

from airflows.cli.failure import INTERRUPTED
from airflows.cli.terminal import Session

AGAIN_WITHIN_S = 3.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOW_CURSOR = "\x1b[?25h"


class Pausable(Protocol):
    """What a signal stops."""

    def pause(self) -> None:
        """Stop soon; safe from a signal handler."""


class Interrupts:
    """While it is entered, SIGINT, SIGTERM and SIGHUP pause a drive.

    Attributes:
        drive: what is paused; while there is none, a signal is a KeyboardInterrupt.
        happened: a signal came.
        remark: says something where a view is drawn, which other output would tear; whether it could. It is
            called by a signal handler, so it takes no locks.
    """

    def __init__(
        self,
        session: Session,
        *,
        clock: Callable[[], float] = time.monotonic,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self.drive: Pausable | None = None
        self.happened = False
        self.remark: Callable[[str], bool] = lambda _text: False
        self._session = session
        self._clock = clock
        self._leave = leave
        self._last = float("-inf")
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        """Take over the signals; one that is ignored, as under nohup, stays so."""
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self.on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give them back."""
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Pause, or leave at once when it is the second Ctrl-C."""
        now = self._clock()
        again = number == signal.SIGINT and now - self._last <= AGAIN_WITHIN_S
        self.happened = True
        if number == signal.SIGINT:
            self._last = now
        if again:
            self._say("\nLeft at once. Nothing is lost: the trials go on, and the ledger knows them.\n")
            self._leave(INTERRUPTED)
        elif self.drive is None:
            raise KeyboardInterrupt
        else:
            self.drive.pause()
            text = "Letting go of the sweep… (Ctrl-C again leaves at once)"
            if not self.remark(text):
                self._say(f"\n{text}\n")

    def _say(self, text: str) -> None:
        # A handler may run in the middle of a write, so it must not use the same buffers.
        cursor = _SHOW_CURSOR if self._session.shows_progress else ""
        try:
            os.write(2, f"{cursor}{text}".encode())
        except OSError:
            return


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Let the first SIGINT, SIGTERM or SIGHUP be a KeyboardInterrupt, and others be ignored from then on.

    So what was done to the terminal is undone, whichever signal comes, and however impatiently.
    """
    before: dict[signal.Signals, object] = {}

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    try:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, interrupt)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


@contextmanager
def around_stops(before: Callable[[], None], after: Callable[[], None]) -> Iterator[None]:
    """Call one before Ctrl-Z stops this process, and the other when it goes on."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        before()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        # It stops in this line, and goes on from there at SIGCONT.
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, stop)
        after()

    if signal.getsignal(signal.SIGTSTP) is signal.SIG_IGN:
        yield
        return
    given = signal.signal(signal.SIGTSTP, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, given)

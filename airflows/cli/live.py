"""Drawing the live view on a terminal: seldom, in a thread of its own, and the terminal is left as it was."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions, Group
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from airflows.cli.screen import screen
from airflows.report.live import Scene

DRAWN_EVERY_S = 0.25
_TICK_S = 1.0
_PATIENCE_S = 2.0
_LEAST = 4
_FALLBACK = os.terminal_size((80, 24))


class LiveDisplay:
    """A part of the terminal, or all of it, that shows a scene.

    The thread that shows a scene never waits for the terminal: another one draws, four times a second at the
    most, and again when the size has changed.
    """

    def __init__(self, stream: TextIO, *, color: bool, alone: bool) -> None:
        """Make ready; the terminal is taken with the first picture.

        Args:
            stream: a terminal.
            color: escape codes for colours are wanted.
            alone: the whole terminal, as a pager does; else a part below what is printed.
        """
        self._stream = stream
        self._alone = alone
        self._console = Console(
            file=stream, color_system="standard" if color else None, highlight=False, markup=False
        )
        self._size = self._measure()
        self._live = Live(
            console=self._console,
            screen=alone,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=not alone,
        )
        self._scene: Scene | None = None
        self._drawn: Sequence[Text] = ()
        self._remarks: deque[str] = deque()
        self._news = threading.Event()
        self._over = threading.Event()
        # Who holds it may take the terminal, or give it back.
        self._taking = threading.RLock()
        self._is_aside = False
        self._thread = threading.Thread(target=self._work, daemon=True, name="live view")
        self._thread.start()

    def show(self, scene: Scene) -> None:
        """Draw this soon."""
        self._scene = scene
        self._news.set()

    def note(self, *lines: str) -> None:
        """Print lines above, escape codes as they are."""
        # The terminal may be gone, as when a connection breaks.
        with contextlib.suppress(OSError, ValueError):
            for line in lines:
                self._console.print(Text.from_ansi(line), soft_wrap=True)

    def remark(self, text: str) -> None:
        """Print a line above when next drawing; takes no lock, so that a signal handler may call it."""
        self._remarks.append(text)

    def step_aside(self) -> None:
        """Leave the terminal as it was found, until `step_back`; a signal handler may call it."""
        with self._taking, contextlib.suppress(Exception):
            self._is_aside = True
            self._live.stop()

    def step_back(self) -> None:
        """Take the terminal again."""
        # Unlike any size, so that it is drawn at once.
        self._size = os.terminal_size((0, 0))
        self._is_aside = False

    def close(self) -> None:
        """Leave the terminal as it was found; where nothing else was on it, the last picture stays."""
        self._over.set()
        self._news.set()
        try:
            self._thread.join(_PATIENCE_S)
        finally:
            # A signal may come while the last picture is waited for.
            with self._taking, contextlib.suppress(Exception):
                self._live.stop()
        self._say_remarks()
        # What could not be drawn before cannot be drawn now, and the command still has to say how it ended.
        with contextlib.suppress(Exception):
            if self._alone and self._scene is not None:
                size = self._measure()
                self._console.size = ConsoleDimensions(size.columns, size.lines)
                self._console.print(*screen(self._scene, size.columns, max(_LEAST, size.lines - 3)), sep="\n")

    def _work(self) -> None:
        drawn_at = 0.0
        while not self._over.is_set():
            self._news.wait(DRAWN_EVERY_S)
            is_due = self._news.is_set() or self._remarks or time.monotonic() - drawn_at >= _TICK_S
            if (is_due or self._measure() != self._size) and not self._over.is_set():
                self._news.clear()
                # The terminal may be gone, or a scene hold what cannot be drawn: the last picture stays, and
                # the next one is tried, as without this thread nothing would be drawn any more.
                with self._taking, contextlib.suppress(Exception):
                    if not (self._is_aside or self._over.is_set()):
                        self._draw()
                drawn_at = time.monotonic()
                self._over.wait(DRAWN_EVERY_S)

    def _say_remarks(self) -> None:
        while self._remarks:
            self.note(self._remarks.popleft())

    def _draw(self) -> None:
        self._say_remarks()
        scene = self._scene
        if scene is None:
            return
        self._live.start()
        size = self._measure()
        if size.columns < self._size.columns and not self._alone:
            self._erase_what_wraps(size.columns)
        self._size = size
        self._console.size = ConsoleDimensions(size.columns, size.lines)
        # In part of a terminal the rest is for what is printed above it.
        height = size.lines if self._alone else max(_LEAST, min(size.lines - 2, size.lines * 2 // 3))
        now = time.time() if scene.live.ended_at is None else scene.now
        self._drawn = screen(replace(scene, now=now), size.columns, height)
        self._live.update(Group(*self._drawn), refresh=True)

    def _erase_what_wraps(self, columns: int) -> None:
        """Go up over lines that have become several on a narrower terminal: rich knows only the old ones."""
        extra = sum(max(0, -(-cell_len(line.plain) // columns) - 1) for line in self._drawn)
        up = [(ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1)]
        self._console.control(Control(*(up * extra)))

    def _measure(self) -> os.terminal_size:
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return _FALLBACK
        return size if size.columns and size.lines else _FALLBACK

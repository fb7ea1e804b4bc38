"""The live view gives the terminal back, whatever happens to it and to what it draws."""

import contextlib
import os
import pty
import signal
import sys
import threading

import pytest

from airflows.cli import live
from airflows.cli.interrupts import around_stops, interrupted_once
from airflows.cli.live import LiveDisplay
from airflows.cli.terminal import Session
from airflows.report.live import LiveSweep, Scene
from airflows.testing.waiting import until
from airflows.trial import State

ALONE, NOT_ALONE, HIDE, SHOW = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25l", "\x1b[?25h"


def scene(sweep: str = "lr-abc") -> Scene:
    return Scene(LiveSweep(sweep, "running", "", 2, {State.RUNNING: 2}, 0.0), 100.0, {})


class Terminal:
    """A terminal and what was written to it."""

    def __init__(self) -> None:
        self._near, far = pty.openpty()
        self.stream = os.fdopen(far, "w", encoding="utf-8")
        self.shown = ""
        os.set_blocking(self._near, False)

    def read(self) -> str:
        with contextlib.suppress(BlockingIOError):
            while True:
                self.shown += os.read(self._near, 1 << 16).decode(errors="replace")
        return self.shown

    def break_off(self) -> None:
        os.close(self._near)
        self._near = -1

    def is_as_it_was(self) -> bool:
        self.read()
        return all(
            self.shown.rfind(back) >= self.shown.rfind(on) for on, back in ((ALONE, NOT_ALONE), (HIDE, SHOW))
        )

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.stream.close()
        if self._near >= 0:
            os.close(self._near)


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    made = Terminal()
    yield made
    made.close()


@pytest.fixture
def display(terminal):
    """A view that has drawn its first picture on the whole terminal."""
    made = LiveDisplay(terminal.stream, color=False, alone=True)
    made.show(scene())
    until(lambda: "lr-abc" in terminal.read(), "the first picture")
    yield made
    made.close()


def test_nothing_printed_to_a_lost_terminal_is_an_error(terminal, display, monkeypatch):
    terminal.break_off()
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    display.note("lr-abc/1 failed")
    Session().note("lr-abc/1 failed")
    display.close()


def test_what_cannot_be_drawn_leaves_the_last_picture_and_the_next_one_is_drawn(
    terminal, display, monkeypatch
):
    failed = threading.Event()

    def fail(*_words):
        failed.set()
        return 1 / 0

    with monkeypatch.context() as patch:
        patch.setattr(live, "screen", fail)
        display.show(scene("lost"))
        assert failed.wait(10)
    display.show(scene("lr-next"))
    until(lambda: "lr-next" in terminal.read(), "the next picture")


def test_a_signal_while_the_view_is_closed_does_not_keep_the_terminal(terminal, display, monkeypatch):
    drawing, goes_on = threading.Event(), threading.Event()
    draw = display._draw

    def draw_slowly() -> None:
        drawing.set()
        goes_on.wait(10)
        draw()

    def interrupt() -> None:
        until(display._over.is_set, "the end")
        os.kill(os.getpid(), signal.SIGINT)
        goes_on.set()

    monkeypatch.setattr(display, "_draw", draw_slowly)
    display.show(scene())
    assert drawing.wait(10)
    other = threading.Thread(target=interrupt)
    with interrupted_once():
        other.start()
        with pytest.raises(KeyboardInterrupt):
            display.close()
        other.join()
    assert terminal.is_as_it_was()


def test_ctrl_z_finds_the_terminal_as_it_was_and_fg_takes_it_again(terminal, display, monkeypatch):
    stopped: list[bool] = []
    # In place of stopping the tests.
    monkeypatch.setattr(signal, "raise_signal", lambda _number: stopped.append(terminal.is_as_it_was()))
    with around_stops(display.step_aside, display.step_back):
        os.kill(os.getpid(), signal.SIGTSTP)
        until(lambda: stopped == [True], "the stop")
    until(lambda: not terminal.is_as_it_was(), "the terminal to be taken again")
    assert terminal.shown.count(ALONE) == 2

import os
import signal

import pytest

from airflows.cli.interrupts import AGAIN_WITHIN_S, Interrupts
from airflows.cli.terminal import Session
from airflows.testing.fake import ManualClock


class Drive:
    """Counts how often it is paused."""

    paused = 0

    def pause(self) -> None:
        self.paused += 1


def interrupts(clock=None):
    left: list[int] = []
    made = Interrupts(Session(), clock=clock or ManualClock(0.0), leave=left.append)
    made.drive = Drive()
    return made, left


def test_the_first_interrupt_pauses():
    made, left = interrupts()
    made.on_signal(signal.SIGINT, None)
    assert (made.drive.paused, made.happened, left) == (1, True, [])


def test_a_second_one_soon_after_leaves_at_once():
    clock = ManualClock(0.0)
    made, left = interrupts(clock)
    made.on_signal(signal.SIGINT, None)
    clock.advance(AGAIN_WITHIN_S)
    made.on_signal(signal.SIGINT, None)
    assert left == [130]


def test_a_second_one_later_is_a_first_one_again():
    clock = ManualClock(0.0)
    made, left = interrupts(clock)
    made.on_signal(signal.SIGINT, None)
    clock.advance(AGAIN_WITHIN_S + 0.1)
    made.on_signal(signal.SIGINT, None)
    assert (left, made.drive.paused) == ([], 2)


def test_sigterm_pauses_and_never_leaves_at_once():
    made, left = interrupts()
    made.on_signal(signal.SIGTERM, None)
    made.on_signal(signal.SIGTERM, None)
    assert (left, made.drive.paused) == ([], 2)


def test_before_there_is_a_drive_it_is_a_plain_interrupt():
    made, _ = interrupts()
    made.drive = None
    with pytest.raises(KeyboardInterrupt):
        made.on_signal(signal.SIGINT, None)


def test_signals_are_given_back():
    before = signal.getsignal(signal.SIGTERM)
    made, _ = interrupts()
    with made:
        os.kill(os.getpid(), signal.SIGTERM)
    assert made.drive.paused == 1
    assert signal.getsignal(signal.SIGTERM) is before

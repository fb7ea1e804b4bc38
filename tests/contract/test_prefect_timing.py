"""Driving in a thread while something is shown: trouble with Prefect never reaches the sweep."""

import asyncio
import logging
import threading

import httpx
import pytest

from airflows.errors import BackendUnavailableError
from airflows.flowruns import timing
from airflows.flowruns.timing import attend

LOGGER = logging.getLogger("test")


class FakeDriving:
    """Drives until it is told that the end has come, or lets go."""

    def __init__(self, error: Exception | None = None) -> None:
        self.end = threading.Event()
        self.log: list[str] = []
        self._error = error

    def run(self) -> None:
        assert self.end.wait(10)
        if self._error is not None:
            raise self._error
        self.log.append("ended")

    def let_go(self) -> None:
        self.log.append("let go")
        self.end.set()


class Board:
    """Ends the sweep after so many shows; the first few fail."""

    def __init__(self, driving: FakeDriving, end_after: int, failing: int = 0) -> None:
        self._driving, self._end_after, self._failing = driving, end_after, failing
        self.shows = 0

    async def show(self) -> None:
        self.shows += 1
        self._driving.log.append("shown")
        if self.shows == self._end_after:
            self._driving.end.set()
        if self.shows <= self._failing:
            message = "no route"
            raise httpx.ConnectError(message)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(timing, "FIRST_AFTER_S", 0.001)
    monkeypatch.setattr(timing, "EVERY_S", 0.001)


def test_it_is_shown_once_more_after_the_end():
    driving = FakeDriving()
    asyncio.run(attend(driving, [Board(driving, 2)], LOGGER))
    assert driving.log[-1] == "shown"
    assert driving.log.count("ended") == 1
    assert driving.log.index("ended") >= 2


def test_a_prefect_that_does_not_answer_is_asked_again_and_said_once(caplog):
    driving = FakeDriving()
    board = Board(driving, 3, failing=5)
    asyncio.run(attend(driving, [board], LOGGER))
    assert board.shows == 6
    assert [record.message for record in caplog.records] == [
        "Prefect could not be told, and will be again; the sweep goes on. ConnectError: no route"
    ]


def test_a_prefect_that_never_answers_again_does_not_keep_the_flow_for_ever():
    driving = FakeDriving()
    board = Board(driving, 1, failing=1000)
    asyncio.run(attend(driving, [board], LOGGER))
    assert driving.log.count("ended") == 1
    assert board.shows < 20


def test_what_goes_wrong_with_the_sweep_is_raised():
    driving = FakeDriving(BackendUnavailableError("gone"))
    with pytest.raises(BackendUnavailableError, match="gone"):
        asyncio.run(attend(driving, [Board(driving, 1)], LOGGER))


def test_a_cancelled_flow_lets_go_of_the_sweep_before_it_ends():
    driving = FakeDriving()

    async def cancelled() -> None:
        task = asyncio.create_task(attend(driving, [], LOGGER))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert driving.log == ["let go", "ended"]

"""Driving in a thread while something is shown: trouble with Prefect never reaches the sweep."""

import asyncio
import logging
import threading
from types import SimpleNamespace
from uuid import uuid4

import httpx
import pytest
from prefect.states import Cancelling, Running

from airflows.errors import BackendUnavailableError, LedgerError, NotFoundError
from airflows.flowruns import timing
from airflows.flowruns.timing import CancellationWatch, attend

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


class Ledger:
    """Takes the wish to stop after so many errors."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.asked = 0

    def stop(self) -> None:
        self.asked += 1
        if self._errors:
            raise self._errors.pop(0)


def watch(ledger: Ledger, state) -> CancellationWatch:
    class Client:
        async def read_flow_run(self, _):
            return SimpleNamespace(state=state)

    return CancellationWatch(Client(), uuid4(), ledger.stop, LOGGER)


def test_a_cancellation_that_the_ledger_does_not_take_is_asked_for_again(caplog):
    away = LedgerError("away")
    ledger = Ledger(NotFoundError("no such sweep"), away, away)
    watching = watch(ledger, Cancelling())

    async def five_times() -> list[bool]:
        seen = []
        for _ in range(5):
            await watching.show()
            seen.append(watching.is_cancelled)
        return seen

    assert asyncio.run(five_times()) == [False, False, False, True, True]
    assert ledger.asked == 4
    assert [record.message.rpartition(". ")[2] for record in caplog.records] == ["no such sweep", "away"]


def test_a_flow_run_that_goes_on_stops_no_trials():
    ledger = Ledger()
    asyncio.run(watch(ledger, Running()).show())
    assert ledger.asked == 0


def test_a_slow_answer_does_not_put_off_the_next_question_about_cancellation(monkeypatch):
    monkeypatch.setattr(timing, "_SHARE", 1e9)
    driving = FakeDriving()

    class Client:
        asked = 0

        async def read_flow_run(self, _):
            self.asked += 1
            if self.asked == 3:
                driving.end.set()
            return SimpleNamespace(state=Running())

    asyncio.run(attend(driving, [CancellationWatch(Client(), uuid4(), Ledger().stop, LOGGER)], LOGGER))
    assert driving.log == ["ended"]


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

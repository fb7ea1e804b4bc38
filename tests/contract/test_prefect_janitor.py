"""Sweeps that were left behind: which of them the janitor drives on, and how. Real trials, no server."""

import asyncio
import logging
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from prefect.states import Cancelled, Cancelling, Crashed

from airflows.engine import operations
from airflows.flowruns import events
from airflows.flowruns import janitor as janitor_module
from airflows.flowruns.janitor import _Janitor, was_cancelled
from airflows.ledger import Ledger, Wish, open_ledger
from airflows.sweepfile import sweep_from_mapping


class Prefect:
    """Answers with the newest flow run of a sweep, or not at all."""

    def __init__(self) -> None:
        self.states = {}

    async def read_flow_runs(self, *, flow_run_filter, **_):
        (tag,) = flow_run_filter.tags.all_
        state = self.states.get(tag.removeprefix("airflows:"))
        if isinstance(state, Exception):
            raise state
        return [] if state is None else [SimpleNamespace(state=state)]


class Board:
    async def put(self, artifacts) -> None:
        """Show nothing."""


class Left:
    """A home with sweeps that nobody drives."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self.home = home
        self.ledger: Ledger = open_ledger(home)
        self.prefect = Prefect()
        self.janitor = _Janitor(
            self.prefect, Board(), home, logging.getLogger("janitor"), asyncio.Semaphore(1)
        )

    def sweep(self, name: str) -> str:
        base = {
            "experiment_name": "x",
            "command": f"echo {name} >>{self.home}/ran",
            "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
            "parameters": {"n": 0},
        }
        tree = {"base": base, "space": {"parameters.n": [1, 2]}, "tracking": {"uri": "none"}}
        loaded = sweep_from_mapping({"name": name, **tree}, directory=self.home)
        return operations.start(loaded, home=self.home, drive=False).row.id

    def ran(self) -> list[str]:
        path = self.home / "ran"
        return path.read_text().split() if path.exists() else []

    def states(self) -> dict[str, str]:
        """Return what the janitor reports, by sweep."""
        asyncio.run(self.janitor.work())
        return {report["sweep"]: report["state"] for report in self.janitor.reports}


@pytest.fixture
def left(home, monkeypatch):
    # What was just written down is nobody's only after a lease's time.
    monkeypatch.setattr(events, "emit_event", lambda *_, **__: None)
    monkeypatch.setattr(janitor_module, "time", SimpleNamespace(time=lambda: time.time() + 60))
    made = Left(home)
    yield made
    made.ledger.close()


def test_what_was_left_behind_is_driven_to_its_end(left):
    sweep = left.sweep("one")
    left.prefect.states[sweep] = Crashed()
    assert left.states() == {sweep: "succeeded"}
    assert left.ran() == ["one"] * 2


@pytest.mark.parametrize("state", [Cancelled, Cancelling])
def test_what_was_cancelled_when_no_process_was_there_is_cancelled(left, state):
    sweep = left.sweep("one")
    left.prefect.states[sweep] = state()
    assert left.states() == {sweep: "cancelled"}
    assert left.ran() == []


def test_trouble_with_one_sweep_is_reported_and_the_others_are_driven(left):
    one, other = left.sweep("one"), left.sweep("other")
    left.prefect.states[one] = RuntimeError("no route to http://me:hush@example.org/")
    assert left.states() == {one: "left", other: "succeeded"}
    (report,) = [each for each in left.janitor.reports if each["sweep"] == one]
    assert report["message"] == "no route to http://me:***@example.org/"
    assert left.ran() == ["other"] * 2


def test_a_sweep_that_a_person_let_go_of_before_its_turn_is_left_alone(left):
    first, second = left.sweep("first"), left.sweep("second")

    async def let_go(**_):
        left.ledger.wish(second, Wish.PAUSED)
        return []

    left.prefect.read_flow_runs = let_go
    assert left.states() == {first: "succeeded"}
    assert left.ledger.sweep(second).wish is Wish.PAUSED
    assert left.ran() == ["first"] * 2


def test_a_cancellation_counts_for_what_was_not_taken_up_since():
    cancelled = Cancelled()
    cancelled.timestamp = datetime.now(UTC)
    before, after = (cancelled.timestamp + timedelta(seconds=s) for s in (-1, 1))
    assert was_cancelled(cancelled, since=before.timestamp())
    assert not was_cancelled(cancelled, since=after.timestamp())
    assert not was_cancelled(Crashed(), since=before.timestamp())
    assert not was_cancelled(None, since=before.timestamp())

"""How a driver spends its time: it waits when there is something to wait for, and an error leaves nothing half done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflows.backends.base import Job
from airflows.engine import driver as driver_module
from airflows.engine.roster import Roster
from airflows.errors import AirflowsError
from airflows.launch import Launcher
from airflows.ledger import SweepState, Wish
from airflows.testing.crash import Boundaries, Ticks, World, check
from airflows.testing.fake import Script
from airflows.testing.tracker import FakeTracker
from airflows.tracking import TrackingRefusedError
from airflows.trial import State

# What the database is makes no difference here.
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

# More than two batches at once.
WIDE = {"space": {"parameters.seed": list(range(60))}, "limits": {"concurrent": 25}}

Make = Callable[..., World]


# Waiting


def test_of_many_trials_a_few_go_ahead_and_run_while_the_others_are_prepared(make: Make) -> None:
    world = make(space={"parameters.seed": list(range(300))}, limits={"concurrent": 300})
    sweep = world.begin()
    fake = world.connect()
    fake.max_batch = 200
    world.driving(world.site(fake)).run(sweep)

    assert fake.offered == [64, 200, 36]
    check(world, sweep)


def test_when_the_last_run_has_ended_nothing_is_waited_for(make: Make) -> None:
    world = make(space={"parameters.seed": [0]})
    sweep = world.begin()
    fake = world.connect()
    ticks = Ticks()
    world.driving(world.site(fake), ticks).run(sweep)

    # Neither after the tick that sees the end nor after the one that finds nothing left.
    assert len(fake.waited) == ticks.count - 2


@pytest.mark.parametrize(("running", "longest"), [(29, 1.0), (30, 2.0)])
def test_a_driver_of_many_running_trials_looks_half_as_often(
    make: Make, monkeypatch: pytest.MonkeyPatch, running: int, longest: float
) -> None:
    monkeypatch.setattr(driver_module, "_MANY", 30)
    space = {"parameters.seed": list(range(running))}
    world = make(lambda _job: Script(seconds=60), space=space, limits={"concurrent": 40})
    sweep = world.begin()
    fake = world.connect()
    world.driving(world.site(fake)).run(sweep)

    # Those that the run itself shortens aside.
    assert max(fake.waited) == longest
    check(world, sweep)


def test_a_stop_takes_no_time_for_trials_that_have_not_started(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ticks it takes to write that they are cancelled."""
    monkeypatch.setattr(driver_module, "_CHUNK", 5)
    tree = {"space": {"parameters.seed": list(range(200))}, "limits": {"concurrent": 40}}
    world = make(lambda _job: Script(seconds=1000), **tree)
    sweep = world.begin()
    world.drive_for(sweep, 3)
    world.ledger.wish(sweep, Wish.STOP)
    fake = world.connect()
    ticks = Ticks()
    row = world.driving(world.site(fake), ticks).run(sweep)

    assert row.state is SweepState.CANCELLED
    assert ticks.count > 8
    assert len(fake.waited) <= 2


def test_while_runs_go_on_every_tick_is_followed_by_a_wait(make: Make) -> None:
    world = make(lambda _job: Script(seconds=30), space={"parameters.seed": [0]})
    sweep = world.begin()
    fake = world.connect()
    ticks = Ticks()
    world.driving(world.site(fake), ticks).run(sweep)

    assert fake.waited[:25] == [1.0] * 25
    assert ticks.count < 40


def test_a_clock_that_is_set_back_loses_no_retry(make: Make) -> None:
    """A retry had just become due when there was no room for it, and then the clock went back."""

    def scripts(job: Job) -> Script:
        failing = job.number == 0 and job.attempt == 0
        return Script(seconds=1 if failing else 20, exit_code=int(failing))

    world = make(
        scripts, space={"parameters.seed": [0, 1, 2]}, limits={"concurrent": 1}, retry={"wait": "5s"}
    )
    sweep = world.begin()
    looked: list[float] = []
    ready = Roster.ready

    def set_back(roster: Roster, now: float, *args: Any) -> list:
        found = ready(roster, now, *args)
        if not looked and any(trial.attempt for trial in found):
            looked.append(now)
            world.cluster.clock.advance(-60)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Roster, "ready", set_back)
        row = world.driving(world.site()).run(sweep)

    assert looked
    assert row.state is SweepState.SUCCEEDED
    check(world, sweep)


# An error in the middle


def fail_at(number: int, patch: pytest.MonkeyPatch) -> None:
    """Let the disk be full when the launch directory of a trial is written."""
    write = Launcher.job

    def job(self: Launcher, trial: Any, *args: Any) -> Job:
        if trial.number == number:
            message = "the disk is full."
            raise AirflowsError(message)
        return write(self, trial, *args)

    patch.setattr(Launcher, "job", job)


@pytest.mark.parametrize(("number", "sent"), [(0, 0), (9, 0), (13, 10), (24, 20)])
def test_an_error_in_one_batch_leaves_the_others_as_they_were(make: Make, number: int, sent: int) -> None:
    """Trials are submitted ten at a time: those before it run, the rest waits and nothing is in doubt."""
    world = make(**WIDE)
    sweep = world.begin()
    with pytest.MonkeyPatch.context() as patch:
        fail_at(number, patch)
        with pytest.raises(AirflowsError, match="the disk is full"):
            world.driving(world.site()).run(sweep)

    assert len(world.cluster.submissions) == sent
    in_ledger = {state: count for state, count in world.ledger.counts(sweep).items() if count}
    assert in_ledger == {State.PENDING: 60 - sent} | ({State.QUEUED: sent} if sent else {})
    assert world.drive(Boundaries(), dead_for_sure=True).state is SweepState.SUCCEEDED
    check(world, sweep)


def test_an_mlflow_that_refuses_leaves_no_trial_in_doubt(make: Make) -> None:
    world = make(**WIDE)
    tracker = world.tracker = FakeTracker()
    sweep = world.begin()

    def refuse() -> None:
        message = "you may not make runs here."
        raise TrackingRefusedError(message)

    tracker.on_create = refuse
    with pytest.raises(TrackingRefusedError, match="you may not"):
        world.driving(world.site()).run(sweep)

    assert world.ledger.counts(sweep) == {State.PENDING: 60}
    tracker.on_create = lambda: None
    assert world.drive(Boundaries(), dead_for_sure=True).state is SweepState.SUCCEEDED
    check(world, sweep)

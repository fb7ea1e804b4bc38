"""From one driver to the next, while the old one may still be alive: nothing is submitted twice, nothing lost.

Time is the cluster's. A process that hangs is one during whose call the clock moves on and others drive.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from airflows.backends.base import Job
from airflows.drivers import Owner
from airflows.engine import driver as driver_module
from airflows.engine import record
from airflows.engine.reopen import reopen
from airflows.errors import LeaseLostError
from airflows.ledger import Lease, SweepState
from airflows.testing.crash import Boundaries, Died, Ticks, World, check
from airflows.testing.fake import FakeBackend, Script
from airflows.testing.tracker import FakeTracker
from airflows.trial import State

# Nobody can ask these machines whether their processes live.
FIRST = Owner("first.example.org", "boot-1", "", 1, 1)
SECOND = Owner("second.example.org", "boot-2", "", 2, 2)
# Longer than a lease lasts without being renewed.
TOO_LONG_S = 31

Make = Callable[..., World]


def for_ever(_job: Job) -> Script:
    return Script(seconds=100_000)


def drive_to_the_end(world: World, sweep: str) -> None:
    assert world.driving(world.site()).run(sweep).state is SweepState.SUCCEEDED
    check(world, sweep)


def hang_once(world: World, meanwhile: Callable[[], None]) -> Callable[[], None]:
    """Return a call that hangs the first time; the others then do something."""
    left = [meanwhile]

    def call() -> None:
        if left:
            world.cluster.clock.advance(TOO_LONG_S)
            left.pop()()

    return call


# A submission that is on its way when the lease has run out


def attached(world: World, sweep: str) -> None:
    world.drive_for(sweep, 20, owner=SECOND)


def resumed(world: World, sweep: str) -> None:
    reopen(world.site(), world.ledger.sweep(sweep), failed=False, code="", now=world.cluster.clock())
    world.drive_for(sweep, 20, owner=SECOND)


def after_a_short_lived_driver(world: World, sweep: str) -> None:
    world.drive_for(sweep, 1, owner=SECOND)
    world.drive_for(sweep, 20, owner=SECOND)


def after_a_killed_driver(world: World, sweep: str) -> None:
    with pytest.raises(Died):
        world.drive(Boundaries(die_if=lambda name: name == "after find"), dead_for_sure=True)
    world.drive_for(sweep, 20, owner=SECOND)


@pytest.mark.parametrize("lag_s", [0, 5])
@pytest.mark.parametrize("others", [attached, resumed, after_a_short_lived_driver, after_a_killed_driver])
def test_a_driver_that_hangs_while_it_submits_and_wakes_up_later_submits_nothing_twice(
    make: Make, lag_s: int, others: Callable[[World, str], None]
) -> None:
    world = make()
    world.visible_after_s = lag_s
    sweep = world.begin()
    fake = world.connect()
    fake.on_submit = hang_once(world, lambda: others(world, sweep))
    with pytest.raises(LeaseLostError):
        world.driving(world.site(fake), owner=FIRST).run(sweep)

    assert len(world.cluster.submissions) == 2
    drive_to_the_end(world, sweep)
    assert len(world.cluster.submissions) == 3


def test_what_an_old_driver_can_no_longer_send_is_sent_again(make: Make) -> None:
    """It never wakes up: after twice the time of a lease nobody waits for it any more."""
    world = make()
    sweep = world.begin()
    fake = world.connect()

    def dies() -> None:
        raise Died

    fake.on_submit = dies
    drive = world.driving(world.site(fake), owner=FIRST)
    drive.site.ledger.release = lambda _lease: None
    with pytest.raises(Died):
        drive.run(sweep)
    del drive.site.ledger.release
    began = world.cluster.clock()
    world.cluster.clock.advance(TOO_LONG_S)
    drive_to_the_end(world, sweep)

    first = min(run.submitted_at for run in world.cluster.runs.values())
    assert TOO_LONG_S + 30 <= first - began < TOO_LONG_S + 33


# The record beside the launch directories


def test_a_driver_lets_go_of_the_record_while_it_still_holds_the_sweep(make: Make) -> None:
    """Else it would take the name of the next one from it."""
    world = make()
    sweep = world.begin()
    driving = world.driving(world.site(), owner=FIRST)
    driving.observer = Ticks({1: driving.pause})
    release, names = driving.site.ledger.release, []

    def released(lease: Lease) -> None:
        found = record.read(driving.site.backend.root, sweep)
        names.append(found and found.driver)
        release(lease)

    driving.site.ledger.release = released
    driving.run(sweep)

    assert names == [None]
    kept = record.read(driving.site.backend.root, sweep)
    assert kept is not None
    assert kept.driver is None


def test_a_driver_that_was_replaced_leaves_the_record_to_the_next(make: Make) -> None:
    world = make()
    sweep = world.begin()
    world.tracker = FakeTracker()
    root = world.site().backend.root
    second = record.fresh_row(id=sweep)
    world.tracker.on_create = hang_once(
        world,
        lambda: (world.drive_for(sweep, 1, owner=SECOND), record.keep(root, second, SECOND)),
    )
    with pytest.raises(LeaseLostError):
        world.driving(world.site(), owner=FIRST).run(sweep)

    kept = record.read(root, sweep)
    assert kept is not None
    assert kept.driver == SECOND


# A driver that has lost its lease


def test_a_driver_that_was_replaced_while_it_hung_in_mlflow_does_not_submit(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make()
    monkeypatch.setattr(driver_module, "time", SimpleNamespace(monotonic=world.cluster.clock))
    sweep = world.begin()
    world.tracker = FakeTracker()
    world.tracker.on_create = hang_once(world, lambda: world.drive_for(sweep, 1, owner=SECOND))
    with pytest.raises(LeaseLostError, match="another driver has taken over"):
        world.driving(world.site(), owner=FIRST).run(sweep)

    assert world.cluster.submissions == []
    drive_to_the_end(world, sweep)


def test_a_driver_whose_lease_was_seen_to_be_lost_does_not_submit(make: Make) -> None:
    """As the thread that renews the lease says it, while the driver waits for MLflow."""
    world = make()
    sweep = world.begin()
    world.tracker = FakeTracker()

    def replaced() -> None:
        world.drive_for(sweep, 1, owner=SECOND)
        drive.driver._lease_lost.set()

    world.tracker.on_create = hang_once(world, replaced)
    drive = world.driving(world.site(), owner=FIRST)
    with pytest.raises(LeaseLostError):
        drive.run(sweep)

    assert world.cluster.submissions == []
    drive_to_the_end(world, sweep)


def test_a_driver_that_hung_but_was_not_replaced_goes_on(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make()
    monkeypatch.setattr(driver_module, "time", SimpleNamespace(monotonic=world.cluster.clock))
    world.tracker = FakeTracker()
    world.tracker.on_create = hang_once(world, lambda: None)
    drive_to_the_end(world, world.begin())


def test_a_driver_with_nothing_to_write_learns_of_its_replacement(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trials run for days; it must not look on for days."""
    monkeypatch.setattr(driver_module, "_RENEW_EVERY_S", 0.01)
    world = make(for_ever)
    sweep = world.begin()

    class Patient(FakeBackend):
        def wait(self, timeout_s: float) -> None:
            if taken and drive.driver is not None:
                assert drive.driver._lease_lost.wait(20)
            super().wait(timeout_s)

    taken: list[bool] = []

    def replace() -> None:
        world.cluster.clock.advance(TOO_LONG_S)
        hold(world, sweep)
        taken.append(True)

    ticks = Ticks({5: replace})
    drive = world.driving(world.site(Patient(world.cluster, world.home / "root")), ticks, owner=FIRST)
    with pytest.raises(LeaseLostError, match=f"another driver has taken over sweep {sweep}"):
        drive.run(sweep)
    assert ticks.count == 5


def hold(world: World, sweep: str) -> None:
    world.ledger.hold(sweep, SECOND, now=world.cluster.clock() + TOO_LONG_S, ttl_s=30, token="taken")


def test_a_driver_that_was_replaced_while_it_looked_writes_nothing(make: Make) -> None:
    """Even though nobody else has touched the trial of which it has news."""
    world = make(lambda _job: Script(seconds=20))
    sweep = world.begin()

    class Hanging(FakeBackend):
        def poll(self, handles: list) -> object:
            hang()
            return super().poll(handles)

    seen: list[object] = []

    def replaced() -> None:
        hold(world, sweep)
        seen.extend([world.ledger.trials(sweep), world.ledger.events(sweep)])

    hang = hang_once(world, replaced)
    with pytest.raises(LeaseLostError):
        world.driving(world.site(Hanging(world.cluster, world.home / "root")), owner=FIRST).run(sweep)

    assert [world.ledger.trials(sweep), world.ledger.events(sweep)] == seen
    assert world.ledger.sweep(sweep).lease_token == "taken"


# What a dead driver has begun


def test_an_answer_that_was_lost_after_a_long_call_counts_from_the_end_of_the_call(make: Make) -> None:
    """The run may have been accepted at the end of the ten seconds, and cannot be seen for five more."""
    world = make()
    world.visible_after_s = 5
    sweep = world.begin()
    fake = world.connect()
    fake.lose_replies = 2
    fake.on_submit = lambda: world.cluster.clock.advance(10)
    row = world.driving(world.site(fake)).run(sweep)

    assert row.state is SweepState.SUCCEEDED
    check(world, sweep)


@pytest.mark.parametrize("moment", ["after create_runs", "before submit", "after submit"])
def test_the_mlflow_run_that_a_dead_driver_made_is_the_trials_run(make: Make, moment: str) -> None:
    """Its job may be logging to it already; a second run would stay empty."""
    world = make(tracking={})
    tracker = world.tracker = FakeTracker()
    with pytest.raises(Died):
        world.drive(Boundaries(die_if=lambda name: name == moment), dead_for_sure=True)
    sweep = world.drive(Boundaries(), dead_for_sure=True).id

    assert tracker.made == 3
    logged_to = {run.job.number: run.job.env["MLFLOW_RUN_ID"] for run in world.cluster.runs.values()}
    assert {trial.number: trial.run_id for trial in world.ledger.trials(sweep)} == logged_to
    assert dict.fromkeys(logged_to.values(), State.SUCCEEDED) == tracker.runs

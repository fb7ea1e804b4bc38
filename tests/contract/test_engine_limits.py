"""Limits and refusals end a sweep when they should, and never leave it waiting for nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflows.backends.base import Job, Packing
from airflows.engine import driver, source
from airflows.engine.results import exit_status, gather
from airflows.errors import SubmitError, SubmitRejectedError, SubmitUnsentError, TrackingUnavailableError
from airflows.ledger import SweepRow, SweepState
from airflows.testing.crash import Boundaries, Died, Ticks, World
from airflows.testing.fake import Script
from airflows.testing.tracker import FakeTracker
from airflows.trial import Reason, State

# What the database is makes no difference here.
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

HUNDRED = {"space": {"parameters.seed": list(range(100))}, "limits": {"concurrent": 4}}

Make = Callable[..., World]


def drive(world: World, refuse: Callable[[Job], SubmitError | None]) -> SweepRow:
    sweep = world.begin()
    fake = world.connect()
    fake.refuse = refuse
    return world.driving(world.site(fake)).run(sweep)


def test_a_trial_that_cannot_be_sent_yet_does_not_hide_the_retry_of_another(make: Make) -> None:
    """limits.trials allows two: trial 1 and 2 have started, trial 0 waits for room that the retry needs first."""
    unsent = iter([SubmitUnsentError("no GPU is free now.")] * 4)

    def scripts(job: Job) -> Script:
        return Script(seconds=3, exit_code=int((job.number, job.attempt) == (1, 0)), lines=["ValueError: x"])

    world = make(
        scripts,
        space={"parameters.seed": [0, 1, 2, 3, 4]},
        limits={"concurrent": 1, "trials": 2},
        retry={"wait": "10s"},
    )
    row = drive(world, lambda job: next(unsent, None) if job.number == 0 else None)

    assert row.state is SweepState.STOPPED
    assert "limits.trials" in row.message
    done = world.ledger.trials(row.id, states=[State.SUCCEEDED])
    assert [(trial.number, trial.attempt) for trial in done] == [(1, 1), (2, 0)]


def test_why_trials_cannot_be_sent_yet_is_said_until_they_are(make: Make) -> None:
    unsent = iter([SubmitUnsentError("no GPU is free now.")] * 3)
    world = make(lambda _job: Script(seconds=20), space={"parameters.seed": [0]})
    fake = world.connect()
    fake.refuse = lambda _job: next(unsent, None)
    ticks = Ticks()
    row = world.driving(world.site(fake), ticks).run(world.begin())

    assert row.state is SweepState.SUCCEEDED
    assert set(ticks.notes) == {"no GPU is free now."}
    assert 3 <= len(ticks.notes) < ticks.count - 10


def test_packed_trials_that_could_not_be_sent_are_sent_while_others_run(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more trials than have been made yet, so that only whole packs are sent."""
    monkeypatch.setattr(driver, "_CHUNK", 8)
    monkeypatch.setattr(source, "CHUNK", 12)
    world = make(
        lambda job: Script(seconds=500 if job.number < 4 else 1),
        space={"parameters.seed": list(range(60))},
        limits={"concurrent": 8},
        pack=4,
    )
    tracker = world.tracker = FakeTracker()
    fake = world.connect()
    fake.packing = Packing.ALLOCATIONS
    began = fake.clock()

    def be_silent_for_a_while() -> None:
        if 0 < fake.clock() - began < 20:
            message = "MLflow does not answer."
            raise TrackingUnavailableError(message)

    tracker.on_create = be_silent_for_a_while
    row = world.driving(world.site(fake)).run(world.begin())

    started = {trial.number: trial.started_at for trial in world.ledger.trials(row.id)}
    assert row.state is SweepState.SUCCEEDED
    assert started[8] < started[0] + 100


def test_a_sweep_stopped_by_a_limit_with_failed_trials_has_not_succeeded(make: Make) -> None:
    def scripts(job: Job) -> Script:
        return Script(seconds=4, exit_code=int(job.number < 2), lines=[f"Error{job.number}: x"])

    tree = {"limits": {"concurrent": 4, "wall_time": "10s"}, "retry": {"max": 0}}
    world = make(scripts, **HUNDRED | tree)
    row = drive(world, lambda _job: None)

    assert (row.state, world.ledger.counts(row.id)[State.FAILED]) == (SweepState.STOPPED, 2)
    assert exit_status(gather(world.ledger, row)) == 1


def test_a_sweep_stopped_by_a_limit_as_it_was_told_to_has_succeeded(make: Make) -> None:
    world = make(
        lambda _job: Script(seconds=4), **HUNDRED | {"limits": {"concurrent": 4, "wall_time": "10s"}}
    )
    row = drive(world, lambda _job: None)

    assert row.state is SweepState.STOPPED
    assert exit_status(gather(world.ledger, row)) == 0


def test_a_backend_that_refuses_everything_alike_is_not_asked_a_hundred_times(make: Make) -> None:
    world = make(**HUNDRED)
    row = drive(world, lambda job: SubmitRejectedError(f"invalid partition: gpuu (job {job.number})"))

    assert row.state is SweepState.FAILED
    assert "all ended alike, and none succeeded" in row.message
    assert "invalid partition: gpuu" in row.message
    counts = world.ledger.counts(row.id)
    assert 3 <= counts[State.FAILED] <= 8
    assert counts[State.PENDING] == 100 - counts[State.FAILED]


def test_refusals_are_counted_over_drivers(make: Make) -> None:
    """Each driver sees one and dies: the third knows of the others from the ledger."""
    world = make(**HUNDRED | {"limits": {"concurrent": 1}})
    sweep = world.begin()
    for _ in range(2):
        world.cluster.clock.advance(1)
        fake = world.connect()
        fake.refuse = lambda _job: SubmitRejectedError("no such partition")
        world.drive_for(sweep, 1, backend=fake)
    assert world.ledger.counts(sweep)[State.FAILED] == 2
    row = drive(world, lambda _job: SubmitRejectedError("no such partition"))

    assert row.state is SweepState.FAILED
    assert world.ledger.counts(sweep)[State.FAILED] == 3


def test_a_refused_trial_among_others_fails_alone(make: Make) -> None:
    world = make(**HUNDRED)
    row = drive(world, lambda job: SubmitRejectedError("too many GPUs") if job.number == 5 else None)

    assert world.ledger.counts(row.id) == {State.SUCCEEDED: 99, State.FAILED: 1}
    (failed,) = world.ledger.trials(row.id, states=[State.FAILED])
    assert (failed.number, failed.reason, failed.message) == (5, Reason.INVALID, "too many GPUs")


def test_the_limit_of_trials_holds_over_a_crash(make: Make) -> None:
    world = make(**HUNDRED | {"limits": {"concurrent": 4, "trials": 10}})
    with pytest.raises(Died):
        world.drive(Boundaries(30), dead_for_sure=True)
    row = world.drive(Boundaries(), dead_for_sure=True)

    assert row.state is SweepState.STOPPED
    assert len(world.cluster.submissions) == 10
    assert world.submitted_twice == []

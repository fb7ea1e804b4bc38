"""What a user has a right to expect of a driven sweep, on a cluster whose every move is scripted."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable

import pytest

from airflows.backends.base import Job
from airflows.documents import ended_document
from airflows.engine.drive import Drive
from airflows.engine.observers import Silent
from airflows.engine.reopen import reopen
from airflows.engine.results import gather
from airflows.engine.start import require_backend
from airflows.errors import LeaseHeldError
from airflows.ledger import SweepState, Wish
from airflows.testing.crash import Boundaries, Died, World, check
from airflows.testing.fake import Script
from airflows.trial import Reason, State

TWENTY = {"space": {"parameters.lr": [round(0.1 + k / 100, 2) for k in range(20)]}}
HUNDRED = {"space": {"parameters.seed": list(range(100))}, "limits": {"concurrent": 4}}
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "train.py", line 1, in <module>',
    "ModuleNotFoundError: No module named 'torchx'",
)


Make = Callable[..., World]


def run(world: World) -> str:
    return world.drive(Boundaries(), dead_for_sure=True).id


class OnALostTerminal(Silent):
    """An observer that can print nothing any more."""

    def on_changes(self, changes: object) -> None:  # noqa: ARG002
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def on_tick(self, snapshot: object) -> None:  # noqa: ARG002
        message = "I/O operation on closed file."
        raise ValueError(message)


def test_a_sweep_outlives_the_terminal_it_was_started_on(make: Make) -> None:
    world = make(**TWENTY)
    driving = world.driving(world.site())
    driving.observer = OnALostTerminal()
    assert driving.run(world.begin()).state is SweepState.SUCCEEDED


def test_a_run_accepted_before_the_crash_is_adopted_and_not_submitted_again(make: Make) -> None:
    """O9: killed after the backend accepted trial 7 and before its handle was stored."""
    world = make(**TWENTY)

    def has_accepted_trial_7(name: str) -> bool:
        return name == "after submit" and any(r.job.number == 7 for r in world.cluster.runs.values())

    with pytest.raises(Died):
        world.drive(Boundaries(die_if=has_accepted_trial_7), dead_for_sure=True)
    before = [trial for trial in world.ledger.trials(world.ledger.sweeps()[0].id) if trial.number == 7]
    sweep = run(world)

    assert [(trial.state, trial.handle) for trial in before] == [(State.SUBMITTING, None)]
    assert len(world.cluster.submissions) == 20
    check(world, sweep)


def test_a_second_driver_is_told_who_drives(make: Make) -> None:
    """O10: one owner; the other learns host, pid and since when."""
    world = make()
    sweep = run(world)
    site = world.site()
    drive = Drive(site, Silent(), clock=time.time)
    site.ledger.hold(sweep, drive.owner, now=time.time(), ttl_s=30, token="first")

    with pytest.raises(LeaseHeldError, match=rf"process {drive.owner.pid} on {drive.owner.host}, since 20"):
        drive.run(sweep)


def failing_until_fixed(fixed: list[bool]) -> object:
    def scripts(_job: Job) -> Script:
        return Script() if fixed else Script(exit_code=1, lines=TRACEBACK)

    return scripts


def test_identical_failures_stop_the_sweep_and_resume_continues_after_the_fix(make: Make) -> None:
    """O19: every trial raises the same error at once."""
    fixed: list[bool] = []
    world = make(failing_until_fixed(fixed), **HUNDRED)
    sweep = run(world)
    row = world.ledger.sweep(sweep)

    assert len(world.cluster.submissions) < 10
    assert row.state is SweepState.FAILED
    assert row.message.count("No module named") == 1
    assert re.search(r"the first [3-6] trials to fail all ended alike", row.message)
    shown = ended_document(gather(world.ledger, row))
    assert shown["message"] == row.message
    assert shown["trials"]["failed"] == len(world.cluster.submissions)
    assert shown["trials"]["failed"] + shown["trials"]["pending"] == 100
    failed = world.ledger.trials(sweep, states=[State.FAILED])
    assert {trial.reason for trial in failed} == {Reason.ERROR}
    assert all(trial.message.endswith("because the whole sweep was halted") for trial in failed)
    last = {event.number: (event.attempt, event.kind) for event in world.ledger.events(sweep)}
    assert {last[trial.number] for trial in failed} == {(0, "failed")}

    fixed.append(True)
    site = world.site()
    reopen(site, row, failed=True, code="", now=world.cluster.clock())
    ended = Drive(site, Silent(), clock=world.cluster.clock).run(sweep)
    assert ended.state is SweepState.SUCCEEDED
    assert world.ledger.counts(sweep) == {State.SUCCEEDED: 100}


CASES = {
    0: Script(exit_code=137, word="OUT_OF_MEMORY"),
    1: Script(exit_code=None, word="PREEMPTED"),
    2: Script(exit_code=1, lines=TRACEBACK),
    3: Script(exit_code=None, word="NODE_FAIL"),
}


def test_the_class_of_a_failure_decides_about_the_next_attempt(make: Make) -> None:
    """O20: memory is not retried unchanged, the place's failures are free, the same error is tried once more."""

    def scripts(job: Job) -> Script:
        always = job.number in {0, 2}
        return CASES[job.number] if always or job.attempt < 2 else Script()

    tree = {"space": {"parameters.seed": [0, 1, 2, 3]}, "retry": {"max": 1, "wait": "1s"}}
    world = make(scripts, **tree)
    sweep = run(world)
    trials = {trial.number: trial for trial in world.ledger.trials(sweep)}

    attempts = {number: trial.attempt + 1 for number, trial in trials.items()}
    assert attempts == {0: 1, 1: 3, 2: 2, 3: 3}
    assert trials[0].state is State.FAILED
    assert trials[0].reason is Reason.OUT_OF_MEMORY
    assert trials[2].reason is Reason.ERROR
    assert [trials[n].state for n in (1, 3)] == [State.SUCCEEDED, State.SUCCEEDED]
    assert [trials[n].errors for n in (1, 3)] == [0, 0]
    for trial in (trials[0], trials[2]):
        assert trial.message.startswith(trial.reason.sentence)
        assert "\n" not in trial.message


def test_a_backend_that_does_not_answer_changes_nothing(make: Make) -> None:
    world = make(lambda _job: Script(seconds=50))
    with pytest.raises(Died):
        world.drive(Boundaries(14), dead_for_sure=True)
    sweep = world.ledger.sweeps()[0].id
    before = world.ledger.trials(sweep)
    site = world.site()
    site.backend.away = True
    drive = Drive(site, Silent(), clock=world.cluster.clock)
    lease = site.ledger.hold(sweep, drive.owner, now=world.cluster.clock(), ttl_s=30, token="t")
    driver = drive.build(site.ledger.sweep(sweep), lease)
    assert any(trial.state.is_in_flight for trial in before)
    in_flight = [t for t in before if t.state.is_in_flight]
    for _ in range(20):
        driver.tick()
        world.cluster.clock.advance(5)

    now = {trial.number: trial for trial in site.ledger.trials(sweep)}
    assert [now[t.number] for t in in_flight] == in_flight
    assert "does not answer" in driver.snapshot(world.cluster.clock()).note


def test_a_stop_wish_cancels_what_runs_and_what_waits(make: Make) -> None:
    world = make(lambda _job: Script(seconds=500), **HUNDRED)
    with pytest.raises(Died):
        world.drive(Boundaries(30), dead_for_sure=True)
    sweep = world.ledger.sweeps()[0].id
    world.ledger.wish(sweep, Wish.STOP)
    run(world)
    row = world.ledger.sweep(sweep)

    assert row.state is SweepState.CANCELLED
    assert set(world.ledger.counts(sweep)) == {State.CANCELLED}
    assert all(r.cancelled_at is not None for r in world.cluster.runs.values())


def test_a_spending_limit_ends_the_sweep_as_stopped_and_running_trials_finish(make: Make) -> None:
    tree = {**HUNDRED, "limits": {"concurrent": 4, "wall_time": "10s"}}
    world = make(lambda _job: Script(seconds=4), **tree)
    sweep = run(world)
    row = world.ledger.sweep(sweep)

    assert row.state is SweepState.STOPPED
    assert "wall time" in row.message
    counts = world.ledger.counts(sweep)
    assert set(counts) == {State.SUCCEEDED, State.PENDING}
    assert 8 <= counts[State.SUCCEEDED] <= 16


def test_replicates_of_a_point_have_consecutive_numbers(make: Make) -> None:
    tree = {"replicates": {"key": "parameters.seed", "values": [5, 6]}}
    world = make(**tree)
    sweep = run(world)
    made = {r.job.number: r.job for r in world.cluster.runs.values()}
    results = gather(world.ledger, world.ledger.sweep(sweep))

    assert [t.point for t in world.ledger.trials(sweep)] == [0, 0, 1, 1, 2, 2]
    assert [b"seed: 5" in made[n].files["hyperparameters.yaml"] for n in range(4)] == [True, False] * 2
    assert results.complete


def test_the_same_file_attaches_to_its_sweep_and_a_finished_one_runs_nothing(make: Make) -> None:
    world = make()
    first = run(world)

    assert run(world) == first
    assert len(world.cluster.submissions) == 3


def test_running_beside_the_file_is_said_before_the_first_trial(make: Make) -> None:
    """On AI Runtime the command would start in an empty launch directory."""
    site = make().site()

    (notice,) = require_backend(site)
    assert str(site.base_dir) in notice
    assert "on AI Runtime" in notice

"""Taking a sweep up again, or attaching to it: what was asked for happens, and what would mix two things is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from airflows.backends.base import Job
from airflows.engine import operations
from airflows.engine.drive import Drive
from airflows.engine.reopen import reopen
from airflows.engine.site import reload
from airflows.engine.start import begin
from airflows.errors import ConflictError, TrackingUnavailableError
from airflows.ledger import SweepRow, SweepState, Wish
from airflows.sweepfile import load_sweep
from airflows.testing.crash import BASE, Boundaries, Died, World, check
from airflows.testing.fake import Script
from airflows.testing.tracker import FakeTracker
from airflows.trial import State

TRACKED = {"objective": {"metric": "loss", "goal": "minimize"}}
LOSSES = {0: 3.0, 1: 1.0, 2: 2.0}
# The lease of a process that died and of which nobody knows that.
LEASE_S = 31

Make = Callable[..., World]


@pytest.fixture
def at_work(monkeypatch: pytest.MonkeyPatch) -> Callable[[World], None]:
    """Turns what people ask for to a world, and to the cluster's time."""

    def turn(world: World) -> None:
        clock = world.cluster.clock
        monkeypatch.setenv("AIRFLOWS_LEDGER_URL", world.database)
        monkeypatch.setattr(operations, "time", SimpleNamespace(time=clock))
        monkeypatch.setattr(operations, "Drive", lambda *args: Drive(*args, clock=clock))
        monkeypatch.setattr(
            operations,
            "open_site",
            lambda loaded, _home, **_row: replace(world.site(None, world.open_ledger()), sweep=loaded),
        )

    return turn


@pytest.fixture
def resume(at_work: Callable[[World], None]) -> Callable[..., SweepRow]:
    """`airflows resume` in a world."""

    def call(world: World, sweep: str, **options: Any) -> SweepRow:
        at_work(world)
        return operations.resume(sweep, home=world.home, **options).row

    return call


def everything(world: World, sweep: str) -> object:
    return world.ledger.sweep(sweep), world.ledger.trials(sweep), world.ledger.events(sweep)


# Dying while a sweep is taken up again


def failed_world(make: Make) -> tuple[World, SweepRow]:
    """A sweep of which trial 1 failed, for a reason that is gone now."""
    fixed: list[bool] = []

    def scripts(job: Job) -> Script:
        return Script(exit_code=0 if fixed or job.number != 1 else 1)

    world = make(scripts, retry={"max": 0})
    row = world.drive(Boundaries(), dead_for_sure=True)
    assert (row.state, world.ledger.counts(row.id)[State.FAILED]) == (SweepState.FAILED, 1)
    fixed.append(True)
    return world, row


def reopen_until(world: World, row: SweepRow, boundaries: Boundaries) -> None:
    site = world.site(None, None, boundaries)
    reopen(site, row, failed=True, code="", now=world.cluster.clock())


def test_reopening_crosses_a_few_boundaries(make: Make) -> None:
    """Else the tests below die at none of them."""
    boundaries = Boundaries()
    reopen_until(*failed_world(make), boundaries)

    assert boundaries.names == ["before hold", "after hold", "before apply", "after apply"]


@pytest.mark.parametrize("die_at", range(1, 5))
def test_dying_while_failed_trials_are_taken_up_again_loses_none(
    make: Make, resume: Callable[..., SweepRow], die_at: int
) -> None:
    world, row = failed_world(make)
    with pytest.raises(Died):
        reopen_until(world, row, Boundaries(die_at))
    left = world.ledger.sweep(row.id)
    assert left.ended_at is None or set(world.ledger.counts(row.id)) == {State.SUCCEEDED, State.FAILED}

    world.cluster.clock.advance(LEASE_S)
    assert resume(world, row.id, failed=True).state is SweepState.SUCCEEDED
    assert world.ledger.counts(row.id) == {State.SUCCEEDED: 3}
    check(world, row.id)


def test_what_was_taken_up_again_before_a_crash_runs_without_being_asked_for_once_more(make: Make) -> None:
    world, row = failed_world(make)
    with pytest.raises(Died):
        reopen_until(world, row, Boundaries(die_if=lambda name: name == "after apply"))
    world.cluster.clock.advance(LEASE_S)

    assert world.drive(Boundaries(), dead_for_sure=True).state is SweepState.SUCCEEDED
    check(world, row.id)


# Cancelled sweeps


def test_a_sweep_that_was_cancelled_before_it_had_a_trial_runs_when_it_is_resumed(
    make: Make, resume: Callable[..., SweepRow]
) -> None:
    world = make()
    sweep = world.begin()
    world.ledger.wish(sweep, Wish.STOP)
    row = world.driving(world.site()).run(sweep)
    assert (row.state, world.ledger.counts(sweep)) == (SweepState.CANCELLED, {})

    assert resume(world, sweep).state is SweepState.CANCELLED
    assert resume(world, sweep, failed=True).state is SweepState.SUCCEEDED
    assert world.ledger.counts(sweep) == {State.SUCCEEDED: 3}


def test_a_sweep_that_was_cancelled_halfway_runs_the_rest_when_it_is_resumed(
    make: Make, resume: Callable[..., SweepRow]
) -> None:
    world = make(space={"parameters.seed": list(range(600))}, limits={"concurrent": 100})
    with pytest.raises(Died):
        world.drive(Boundaries(die_if=lambda name: name == "after submit"), dead_for_sure=True)
    sweep = world.ledger.sweeps()[0].id
    world.ledger.wish(sweep, Wish.STOP)
    assert world.drive(Boundaries(), dead_for_sure=True).state is SweepState.CANCELLED
    assert sum(world.ledger.counts(sweep).values()) == 500

    assert resume(world, sweep, failed=True).state is SweepState.SUCCEEDED
    assert world.ledger.counts(sweep) == {State.SUCCEEDED: 600}
    assert world.submitted_twice == []


def test_whoever_comes_next_cancels_though_mlflow_is_away(
    make: Make, at_work: Callable[[World], None]
) -> None:
    world = make(lambda _job: Script(seconds=100_000))
    world.tracker = FakeTracker()
    with pytest.raises(Died):
        world.drive(Boundaries(die_if=lambda name: name == "after poll"), dead_for_sure=True)
    (row,) = world.ledger.sweeps()
    at_work(world)
    world.tracker.away = True
    with pytest.raises(TrackingUnavailableError):
        operations.carry_on(row.id, home=world.home)
    assert all(run.cancelled_at is None for run in world.cluster.runs.values())

    world.ledger.wish(row.id, Wish.STOP)
    # What is left is to end the runs in MLflow.
    with pytest.raises(TrackingUnavailableError):
        operations.carry_on(row.id, home=world.home)
    assert set(world.ledger.counts(row.id)) == {State.CANCELLED}
    world.tracker.away = False
    assert operations.carry_on(row.id, home=world.home).row.state is SweepState.CANCELLED


def test_trials_of_a_cluster_bind_a_sweep_to_no_machine(make: Make) -> None:
    world = make()
    assert world.ledger.sweep(world.begin()).host == ""


# Another MLflow store


def half_scored(make: Make) -> tuple[World, str]:
    """A sweep whose trials have ended, and whose driver died while it read their metrics."""
    world = make(**TRACKED)
    world.tracker = FakeTracker(values=LOSSES)
    with pytest.raises(Died):
        world.drive(Boundaries(die_if=lambda name: name == "after read"), dead_for_sure=True)
    return world, world.ledger.sweeps()[0].id


@pytest.mark.parametrize("other", ["http://other.example.org", "none"])
def test_another_mlflow_is_refused_and_nothing_is_closed(
    make: Make, resume: Callable[..., SweepRow], other: str
) -> None:
    """It has none of the runs: every trial would be without a metric. Nor has no MLflow at all."""
    world, sweep = half_scored(make)
    right, world.tracker = world.tracker, None if other == "none" else FakeTracker(uri=other)
    before = everything(world, sweep)
    with pytest.raises(ConflictError, match=r"has its runs in MLflow at http://mlflow\.example\.org"):
        world.drive(Boundaries(), dead_for_sure=True)
    with pytest.raises(ConflictError, match="and not at"):
        resume(world, sweep, failed=True)
    assert everything(world, sweep) == before

    world.tracker = right
    row = world.drive(Boundaries(), dead_for_sure=True)
    assert (row.state, row.winner["value"]) == (SweepState.SUCCEEDED, 1.0)


# Attaching


@pytest.mark.parametrize("ended", [False, True])
def test_attaching_with_other_settings_is_a_conflict(make: Make, *, ended: bool) -> None:
    """Also when it has ended: nobody should believe that his new limits held."""
    world = make()
    sweep = world.drive(Boundaries(), dead_for_sure=True).id if ended else world.begin()
    before = everything(world, sweep)
    world.sweep = reload(world.ledger.sweep(sweep), ("limits.concurrent=3",))

    with pytest.raises(ConflictError, match="the file differs"):
        world.begin()
    assert everything(world, sweep) == before
    world.sweep = reload(world.ledger.sweep(sweep))
    assert world.begin() == sweep


@pytest.mark.parametrize("ended", [False, True])
def test_attaching_with_other_code_is_a_conflict(make: Make, *, ended: bool) -> None:
    world = make()
    sweep = world.drive(Boundaries(), dead_for_sure=True).id if ended else world.begin()

    with pytest.raises(ConflictError, match="the code has changed"):
        begin(world.site(), now=world.cluster.clock(), code="c" * 64)
    assert world.begin() == sweep


@pytest.fixture
def in_a_directory(make: Make, tmp_path: Path) -> tuple[Path, Callable[[], str]]:
    """(A directory with train.yaml, sweep.yaml and code, what starts its sweep or attaches to it.)"""
    directory = tmp_path / "project"
    directory.mkdir()
    source = {"type": "snapshot", "snapshot": {"root_path": "."}}
    (directory / "train.yaml").write_text(yaml.safe_dump({**BASE, "code_source": source}))
    (directory / "sweep.yaml").write_text(
        "{name: code, base: train.yaml, space: {parameters.lr: [1, 2]}, tracking: {uri: none}}\n"
    )
    (directory / "train.py").write_text("print(1)\n")
    world = make()

    def start() -> str:
        world.sweep = load_sweep(directory / "sweep.yaml")
        site = world.site()
        return begin(site, now=world.cluster.clock(), code=site.prepare_code()).row.id

    return directory, start


def test_a_touched_sweep_file_is_no_other_code(in_a_directory: tuple[Path, Callable[[], str]]) -> None:
    """What it says is compared as such, and so is the train.yaml."""
    directory, start = in_a_directory
    sweep = start()
    for name in ("sweep.yaml", "train.yaml"):
        (directory / name).write_text(f"# a remark\n{(directory / name).read_text()}")

    assert start() == sweep


def test_a_conflict_names_the_files_that_differ(in_a_directory: tuple[Path, Callable[[], str]]) -> None:
    directory, start = in_a_directory
    (directory / "old.py").touch()
    sweep = start()
    (directory / "old.py").unlink()
    (directory / "train.py").write_text("print(2)\n")
    for number in range(7):
        (directory / f"note{number}.txt").touch()

    with pytest.raises(ConflictError) as caught:
        start()
    assert f"since sweep {sweep} was started: train.py changed; note0.txt, " in caught.value.message
    assert "note4.txt and 2 more added; old.py removed." in caught.value.message
    assert ".gitignore" in str(caught.value.hint)
    assert "airflows resume" in str(caught.value.hint)

    (directory / ".gitignore").write_text("note*\n.gitignore\n")
    (directory / "train.py").write_text("print(1)\n")
    (directory / "old.py").touch()
    assert start() == sweep


# Another backend


@pytest.mark.parametrize("options", [{"sets": ["backend=local"]}, {"backend": "local"}])
def test_a_sweep_with_trials_in_flight_stays_on_its_backend(
    make: Make, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """The other backend knows nothing of them: they would be taken for lost."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    world = make(lambda _job: Script(seconds=1000))
    monkeypatch.setenv("AIRFLOWS_LEDGER_URL", world.database)
    with pytest.raises(Died):
        world.drive(Boundaries(die_if=lambda name: name == "after poll"), dead_for_sure=True)
    sweep = world.ledger.sweeps()[0].id
    before = everything(world, sweep)

    with pytest.raises(ConflictError, match="has trials in flight on backend fake"):
        operations.resume(sweep, home=world.home, drive=False, **options)
    assert everything(world, sweep) == before


@pytest.mark.parametrize("options", [{"sets": ["backend=local"]}, {"backend": "local"}])
def test_a_sweep_without_trials_in_flight_can_be_moved(
    make: Make, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    world = make(lambda _job: Script(exit_code=1))
    monkeypatch.setenv("AIRFLOWS_LEDGER_URL", world.database)
    sweep = world.drive(Boundaries(), dead_for_sure=True).id
    moved = operations.resume(sweep, home=world.home, failed=True, drive=False, **options).row

    assert (moved.backend, moved.root) == ("local", str(world.home))

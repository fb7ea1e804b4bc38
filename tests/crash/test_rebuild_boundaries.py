"""A ledger lost at any boundary and rebuilt, dying on the way: nothing runs twice, nothing is lost."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

import mlflow
import pytest

from airflows.backends.base import Job
from airflows.engine.lost import Lost, in_mlflow
from airflows.engine.rebuild import rebuilt
from airflows.engine.record import records_named
from airflows.engine.results import gather
from airflows.errors import NotFoundError
from airflows.ledger import SweepRow, SweepState
from airflows.testing.crash import Boundaries, Died, World, check, make_world
from airflows.testing.fake import FakeCluster, ManualClock, Script
from airflows.tracking import embedded_uri, open_tracker

LOSSES = {0: 3.0, 1: 1.0, 2: 2.0, 3: 4.0}
TREE = {
    "space": {"parameters.lr": [0.1, 0.2, 0.3, 0.4]},
    "objective": {"metric": "loss", "goal": "minimize"},
    "retry": {"wait": "1s", "max": 1},
}


def scripts(job: Job) -> Script:
    """Trial 0 is preempted once, trial 1 fails once with an error, trial 3 fails for good."""
    if job.attempt == 0 and job.number == 0:
        return Script(seconds=3, exit_code=None, word="PREEMPTED")
    if (job.attempt == 0 and job.number == 1) or job.number == 3:
        return Script(seconds=2, exit_code=1, lines=("Traceback", "ValueError: no luck"))
    return Script(seconds=2 + job.number)


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("store")
    open_tracker(embedded_uri(home), home)
    return home


def world(home: Path, store: Path | None = None, **fields: object) -> World:
    if store is None:
        made = make_world(home, scripts=scripts, tree=TREE, **fields)
    else:
        shutil.copytree(store, home)
        made = make_world(home, scripts=scripts, tree=TREE, tracking_uri=embedded_uri(home), **fields)
    # Launch directories have real times.
    made.cluster = FakeCluster(clock=ManualClock(time.time()), scripts=scripts)
    if store is not None:
        client = mlflow.MlflowClient(embedded_uri(home))

        def log(job: Job) -> None:
            client.log_metric(job.env["MLFLOW_RUN_ID"], "loss", LOSSES[job.number])

        made.cluster.on_end = log
    return made


def lose_ledger(there: World) -> None:
    for path in there.home.glob("ledger.db*"):
        path.unlink()
    there.close()
    there.__dict__.pop("ledger", None)


def lose_record(there: World) -> None:
    for path in there.home.glob("root/runs/*/sweep.json"):
        path.unlink()


def rebuild(there: World, boundaries: Boundaries, *, dead_for_sure: bool) -> SweepRow:
    """Rebuild as a new process would, or start the sweep where nothing is known; drive to the end, or die."""
    there.generation += 1
    ledger = there.open_ledger()
    site = there.site(ledger=ledger, boundaries=boundaries)
    try:
        found = next(records_named(there.home / "root", "crash"), None)
        lost = in_mlflow(site) if found is None else Lost.of(found)
        row = rebuilt(site, lost, now=there.cluster.clock()).row
        return there.driving(site, owner=there.owner(dead_for_sure=dead_for_sure)).run(row.id)
    finally:
        ledger.close()


def rebuild_or_start(there: World, boundaries: Boundaries, *, dead_for_sure: bool) -> SweepRow:
    try:
        return rebuild(there, boundaries, dead_for_sure=dead_for_sure)
    except NotFoundError:
        # It was lost before anything of it was anywhere.
        assert not there.cluster.submissions
        return there.drive(boundaries, dead_for_sure=dead_for_sure)


def count_boundaries(home: Path, store: Path | None = None, **fields: object) -> int:
    boundaries = Boundaries()
    world(home, store, **fields).drive(boundaries, dead_for_sure=True)
    return len(boundaries.names)


def check_end(there: World, row: SweepRow) -> None:
    assert row.state is SweepState.FAILED
    check(there, row.id)
    states = [trial.state.value for trial in there.ledger.trials(row.id)]
    assert states == ["succeeded", "succeeded", "succeeded", "failed"]
    assert sorted(there.cluster.submissions) == sorted(there.cluster.runs)
    there.close()


@pytest.mark.parametrize(("dead_for_sure", "lag_s"), [(True, 0.0), (False, 5.0)])
def test_losing_the_ledger_at_every_boundary_loses_and_repeats_nothing(
    tmp_path: Path, *, dead_for_sure: bool, lag_s: float
) -> None:
    count = count_boundaries(tmp_path / "count", visible_after_s=lag_s)

    assert count > 50
    for die_at in range(1, count + 1):
        there = world(tmp_path / str(die_at), visible_after_s=lag_s)
        with pytest.raises(Died):
            there.drive(Boundaries(die_at), dead_for_sure=dead_for_sure)
        lose_ledger(there)
        check_end(there, rebuild_or_start(there, Boundaries(), dead_for_sure=dead_for_sure))


def test_dying_at_every_boundary_of_a_rebuild_loses_and_repeats_nothing(tmp_path: Path) -> None:
    crossed: list[str] = []
    # What comes after is a sweep like any other.
    while crossed[-1:] != ["after submit"]:
        boundaries = Boundaries(len(crossed) + 1)
        there = world(tmp_path / str(len(crossed)))
        with pytest.raises(Died):
            there.drive(Boundaries(40), dead_for_sure=True)
        lose_ledger(there)
        with pytest.raises(Died):
            rebuild(there, boundaries, dead_for_sure=True)
        crossed = boundaries.names
        check_end(there, rebuild(there, Boundaries(), dead_for_sure=True))
    assert {"before restore_sweep", "after restore_sweep"} <= set(crossed)


@pytest.mark.parametrize("has_record", [True, False])
def test_with_mlflow_the_runs_the_values_and_the_winner_are_the_same(
    tmp_path: Path, empty_store: Path, *, has_record: bool
) -> None:
    count = count_boundaries(tmp_path / "count", empty_store)

    for die_at in range(1, count + 2, 9):
        there = world(tmp_path / str(die_at), empty_store)
        with contextlib.suppress(Died):
            there.drive(Boundaries(die_at), dead_for_sure=True)
        lose_ledger(there)
        if not has_record:
            lose_record(there)
            there.cluster.clock.advance(31)
        row = rebuild_or_start(there, Boundaries(), dead_for_sure=True)
        check_runs(there, row)
        check_end(there, row)


def check_runs(there: World, row: SweepRow) -> None:
    """Each trial has one run, the one that its attempts logged to, and there is one parent."""
    client = mlflow.MlflowClient(embedded_uri(there.home))
    runs = client.search_runs([row.experiment_id], f"tags.`airflows.sweep` = '{row.id}'")
    trials = there.ledger.trials(row.id)
    assert {run.info.run_id for run in runs} == {row.parent_run_id, *(trial.run_id for trial in trials)}
    assert len(runs) == 1 + len(LOSSES)
    for job in (run.job for run in there.cluster.runs.values()):
        assert job.env["MLFLOW_RUN_ID"] == trials[job.number].run_id
    assert [trial.value for trial in trials] == [3.0, 1.0, 2.0, None]
    winner = gather(there.ledger, row).winner
    assert winner is not None
    assert (winner["trial"], winner["value"]) == (f"{row.id}/1", 1.0)


def test_a_sweep_that_ended_is_rebuilt_as_it_was_without_a_submission(
    tmp_path: Path, empty_store: Path
) -> None:
    there = world(tmp_path / "home", empty_store)
    before = there.drive(Boundaries(), dead_for_sure=True)
    story = tell(there, before)
    lose_ledger(there)

    after = rebuild(there, Boundaries(), dead_for_sure=True)

    assert tell(there, after) == story
    check_end(there, after)


def tell(there: World, row: SweepRow) -> list[object]:
    ledger = there.ledger
    trials = [
        (t.state, t.reason, t.message, t.attempt, t.value, t.value_step, t.run_id, t.exit_code, t.host)
        for t in ledger.trials(row.id)
    ]
    attempts = [
        (a.token, a.handle, a.state, a.reason, a.signature, a.message, a.exit_code, a.host, a.accelerators)
        for a in ledger.attempts(row.id)
    ]
    return [row.id, row.state, row.message, row.winner, row.source, row.created_at, trials, attempts]

"""Dying at every boundary with a real MLflow store: one run a trial, the parent ended, the same winner."""

from __future__ import annotations

import shutil
from pathlib import Path

import mlflow
import pytest

from airflows.backends.base import Job
from airflows.engine.results import gather
from airflows.ledger import SweepState
from airflows.testing.crash import Boundaries, Died, World, check, make_world
from airflows.testing.fake import Script
from airflows.tracking import embedded_uri, open_tracker

TREE = {
    "space": {"parameters.lr": [0.1, 0.2, 0.3]},
    "objective": {"metric": "loss", "goal": "minimize", "take": "best"},
}
LOSSES = {0: [3.0, 2.0], 1: [4.0, 1.0, 5.0], 2: [float("nan")]}


def scripts(job: Job) -> Script:
    """Trial 0 fails once; trial 2 diverges."""
    if (job.number, job.attempt) == (0, 0):
        return Script(seconds=2, exit_code=1, lines=("ValueError: no luck",))
    return Script(seconds=2 + job.number)


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, made once: making one takes a second."""
    home = tmp_path_factory.mktemp("store")
    open_tracker(embedded_uri(home), home)
    return home


def world_with_mlflow(home: Path, empty_store: Path) -> World:
    shutil.copytree(empty_store, home)
    uri = embedded_uri(home)
    world = make_world(home, scripts=scripts, tree=TREE, tracking_uri=uri)
    client = mlflow.MlflowClient(uri)

    def log(job: Job) -> None:
        for step, loss in enumerate(LOSSES[job.number]):
            client.log_metric(job.env["MLFLOW_RUN_ID"], "loss", loss, step=step)

    world.cluster.on_end = log
    return world


def check_mlflow(world: World, sweep: str) -> None:
    row = world.ledger.sweep(sweep)
    client = mlflow.MlflowClient(embedded_uri(world.home))
    runs = client.search_runs([row.experiment_id], f"tags.`airflows.sweep` = '{sweep}'")
    by_role: dict[str, dict[str, str]] = {"sweep": {}, "trial": {}}
    for run in runs:
        by_role[run.data.tags["airflows.role"]][run.info.run_id] = run.info.status
    ours = {trial.run_id for trial in world.ledger.trials(sweep)}
    assert by_role == {
        "sweep": {row.parent_run_id: "FINISHED"},
        "trial": dict.fromkeys(ours, "FINISHED"),
    }
    assert len(ours) == len(LOSSES)


def check_winner(world: World, sweep: str) -> None:
    results = gather(world.ledger, world.ledger.sweep(sweep))
    winner = results.winner
    assert winner is not None
    assert (winner["trial"], winner["value"], winner["steps"]) == (f"{sweep}/1", 1.0, [1])
    assert results.ranking is not None
    assert [(u.number, u.reason) for u in results.ranking.unranked] == [(2, "diverged: NaN")]
    assert world.ledger.sweep(sweep).winner == winner


def test_dying_at_every_boundary_leaves_one_run_a_trial_and_the_same_winner(
    tmp_path: Path, empty_store: Path
) -> None:
    counting = Boundaries()
    counted = world_with_mlflow(tmp_path / "count", empty_store)
    counted.drive(counting, dead_for_sure=True)
    counted.close()

    assert {"before create_runs", "after close", "after close_sweep"} < set(counting.names)
    for die_at in range(1, len(counting.names) + 1):
        world = world_with_mlflow(tmp_path / str(die_at), empty_store)
        with pytest.raises(Died):
            world.drive(Boundaries(die_at), dead_for_sure=True)
        row = world.drive(Boundaries(), dead_for_sure=True)

        assert row.state is SweepState.SUCCEEDED
        check(world, row.id)
        check_mlflow(world, row.id)
        check_winner(world, row.id)
        world.close()
        shutil.rmtree(world.home)

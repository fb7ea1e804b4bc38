"""Dying at every boundary of a sweep whose trial ran out of memory: the next attempt has the other values."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from airflows.backends.base import Job
from airflows.engine.results import gather
from airflows.ledger import SweepState
from airflows.relief import relief_in
from airflows.testing.crash import Boundaries, Died, World, check, make_world
from airflows.testing.fake import Script

RELIEF = {"parameters.seed": 7, "compute.num_accelerators": 2}
TREE = {
    "space": {"parameters.lr": [0.1]},
    "retry": {"wait": "1s", "on_out_of_memory": RELIEF},
}


def scripts(job: Job) -> Script:
    """The first attempt runs out of memory, the second one is preempted, the third one fits."""
    if job.attempt == 0:
        return Script(seconds=2, exit_code=1, lines=("torch.OutOfMemoryError: CUDA out of memory.",))
    return Script(seconds=2, exit_code=None, word="PREEMPTED") if job.attempt == 1 else Script(seconds=2)


def values(job: Job) -> tuple[int, int]:
    tree = yaml.safe_load(job.files["training_config.yaml"])
    return tree["parameters"]["seed"], tree["compute"]["num_accelerators"]


def assert_relieved(world: World, sweep: str) -> None:
    jobs = sorted((run.job for run in world.cluster.runs.values()), key=lambda job: job.attempt)
    assert [values(job) for job in jobs] == [(0, 1), (7, 2), (7, 2)]
    details = world.ledger.claim_details(sweep, 0)
    assert {attempt: relief_in(detail) for (_, attempt), detail in details.items()} == {1: RELIEF, 2: RELIEF}
    assert [attempt.accelerators for attempt in world.ledger.attempts(sweep)] == [1, 2, 2]


def test_dying_at_every_boundary_further_attempts_have_the_other_values(tmp_path: Path) -> None:
    count = Boundaries()
    make_world(tmp_path / "count", scripts=scripts, tree=TREE).drive(count, dead_for_sure=True)

    assert len(count.names) > 20
    for die_at in range(1, len(count.names) + 1):
        world = make_world(tmp_path / str(die_at), scripts=scripts, tree=TREE)
        with pytest.raises(Died):
            world.drive(Boundaries(die_at), dead_for_sure=True)
        row = world.drive(Boundaries(), dead_for_sure=True)
        assert row.state is SweepState.SUCCEEDED
        check(world, row.id)
        assert_relieved(world, row.id)
        assert gather(world.ledger, row).counts == {"succeeded": 1}

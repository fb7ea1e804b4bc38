"""Dying at every boundary, one after another: nothing runs twice, nothing is lost, the winner is the same."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from airflows.backends.base import Job, Packing
from airflows.ledger import SweepState
from airflows.testing.crash import Boundaries, Died, World, check, make_world
from airflows.testing.fake import Script


def scripts(job: Job) -> Script:
    """Trial 0 is preempted once; trial 1 fails once with an error; the others succeed."""
    if job.attempt == 0 and job.number == 0:
        return Script(seconds=3, exit_code=None, word="PREEMPTED")
    if job.attempt == 0 and job.number == 1:
        return Script(seconds=2, exit_code=1, lines=("Traceback", "ValueError: no luck"))
    return Script(seconds=2 + job.number)


def count_boundaries(home: Path, **fields: object) -> int:
    boundaries = Boundaries()
    make_world(home, scripts=scripts, **fields).drive(boundaries, dead_for_sure=True)
    return len(boundaries.names)


def drive_until_done(world: World, die_at: int, *, dead_for_sure: bool) -> None:
    """Die at the k-th boundary, then start again, once the lease has run out where nobody can ask."""
    with pytest.raises(Died):
        world.drive(Boundaries(die_at), dead_for_sure=dead_for_sure)
    if not dead_for_sure:
        world.cluster.clock.advance(31)
    row = world.drive(Boundaries(), dead_for_sure=dead_for_sure)

    assert row.state is SweepState.SUCCEEDED
    check(world, row.id)


@pytest.mark.parametrize("dead_for_sure", [True, False])
@pytest.mark.parametrize("lag_s", [0.0, 5.0])
def test_dying_at_every_boundary_loses_and_repeats_nothing(
    tmp_path: Path, *, dead_for_sure: bool, lag_s: float
) -> None:
    count = count_boundaries(tmp_path / "count", visible_after_s=lag_s)

    assert count > 50
    for die_at in range(1, count + 1):
        world = make_world(tmp_path / str(die_at), scripts=scripts, visible_after_s=lag_s)
        drive_until_done(world, die_at, dead_for_sure=dead_for_sure)


def test_dying_with_lost_replies_submits_nothing_twice(tmp_path: Path) -> None:
    fields = {"visible_after_s": 5.0, "lose_replies": 2}
    count = count_boundaries(tmp_path / "count", **fields)
    for die_at in range(1, count + 1):
        world = make_world(tmp_path / str(die_at), scripts=scripts, **fields)
        drive_until_done(world, die_at, dead_for_sure=False)


def test_dying_twice_loses_and_repeats_nothing(tmp_path: Path) -> None:
    count = count_boundaries(tmp_path / "count")
    pairs = itertools.product(range(1, count + 1, 7), range(1, count + 1, 11))
    for first, second in pairs:
        world = make_world(tmp_path / f"{first}-{second}", scripts=scripts)
        with pytest.raises(Died):
            world.drive(Boundaries(first), dead_for_sure=True)
        try:
            row = world.drive(Boundaries(second), dead_for_sure=True)
        except Died:
            row = world.drive(Boundaries(), dead_for_sure=True)
        check(world, row.id)


def test_dying_at_every_boundary_with_packs_loses_and_repeats_nothing(tmp_path: Path) -> None:
    fields = {"tree": {"pack": 3, "limits": {"concurrent": 3}}, "packing": Packing.ALLOCATIONS}
    count = count_boundaries(tmp_path / "count", **fields)

    assert count > 50
    for die_at in range(1, count + 1):
        world = make_world(tmp_path / str(die_at), scripts=scripts, **fields)
        drive_until_done(world, die_at, dead_for_sure=False)
        assert {run.job.pack for run in world.cluster.runs.values()} == {3}

"""What a sweep is likely to cost, by the sweeps that ran before it, and which of its points have run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflows.engine.estimate import Estimate, History, estimate_of, history_of
from airflows.sweepfile import LoadedSweep, sweep_from_mapping
from airflows.testing.crash import BASE, Boundaries, World, make_world
from airflows.testing.fake import Script
from airflows.trial import State

# This world's clock goes on by the second, so an hour of it is short.
HOUR = 36


def file(home: Path, **tree: Any) -> LoadedSweep:
    mapping = {"name": "crash", "base": BASE, "space": {"parameters.lr": [0.1, 0.2, 0.3]}, **tree}
    return sweep_from_mapping(mapping, directory=home)


def ran(home: Path, seconds: Any = HOUR, **tree: Any) -> World:
    """A world in which a sweep has run to its end; of a trial it took so many seconds."""
    took = seconds if callable(seconds) else lambda _job: seconds
    world = make_world(
        home,
        scripts=lambda job: Script(seconds=took(job), exit_code=int(job.number == 2)),
        tree={"retry": {"max": 0}, **tree},
    )
    world.drive(Boundaries(), dead_for_sure=True)
    return world


def asked(world: World, sweep: LoadedSweep) -> tuple[Estimate, History]:
    history = history_of(world.ledger, sweep)
    estimate = estimate_of(world.ledger, sweep, history)
    world.close()
    return estimate, history


def hours(count: float) -> Any:
    """Return so many of these hours, give or take the second that a driver looks late."""
    return pytest.approx(count * HOUR / 3600, rel=0.1)


def sweep_id(world: World) -> str:
    return world.ledger.sweeps()[0].id


def test_the_same_sweep_is_gone_on_with_and_only_the_rest_is_left(tmp_path: Path) -> None:
    world = ran(tmp_path)
    same = sweep_id(world)

    estimate, history = asked(world, file(tmp_path, retry={"max": 0}))

    assert history == History(same, True, succeeded=2, failed=1, unfinished=0, new=0)
    assert (estimate.basis, estimate.sweep, estimate.trials) == ("trials", same, 2)
    assert (estimate.hours, estimate.left) == (hours(3), 0)


def test_an_earlier_sweep_of_the_name_tells_what_has_run_though_a_start_is_another(tmp_path: Path) -> None:
    world = ran(tmp_path)
    estimate, history = asked(world, file(tmp_path, space={"parameters.lr": [0.1, 0.3, 0.4, 0.5]}))

    assert (history.attaches, history.succeeded, history.failed, history.new) == (False, 1, 1, 2)
    assert estimate.hours == estimate.left == hours(4)


def test_a_sweep_of_another_name_with_the_same_base_tells_too_and_of_another_base_not(tmp_path: Path) -> None:
    world = ran(tmp_path)
    estimate, _ = asked(world, file(tmp_path, name="other"))
    assert estimate.basis == "trials"

    base = {**BASE, "command": "false", "timeout_minutes": 30}
    estimate, history = asked(world, file(tmp_path, name="other", base=base))
    assert (estimate.basis, estimate.hours) == ("timeout", 1.5)
    assert history == History("", False, 0, 0, 0, 3)


def test_by_the_median_of_those_with_as_many_accelerators(tmp_path: Path) -> None:
    # With one accelerator an hour, with eight half an hour; one of them was an outlier.
    took = {0: HOUR, 1: HOUR / 2, 3: HOUR / 2, 4: 9 * HOUR}
    space = {
        "compute.accelerator_type, compute.num_accelerators": [
            ["GPU_1xA10", 1],
            *([["GPU_8xH100", 8]]),
        ],
        "parameters.lr": [0.1],
    }
    include = [
        {"compute.accelerator_type": "GPU_8xH100", "compute.num_accelerators": 8, "parameters.lr": lr}
        for lr in (0.2, 0.3, 0.4)
    ]
    world = ran(tmp_path, lambda job: took.get(job.number, 1), space=space, include=include)

    estimate, _ = asked(world, file(tmp_path, space=space, name="crash"))
    assert estimate.hours == hours(1 + 8 * 0.5)

    # Sixteen were never tried: it is taken that they need as many accelerator-hours as others did.
    more = {"compute.accelerator_type": ["GPU_8xH100"], "compute.num_accelerators": [16]}
    estimate, _ = asked(world, file(tmp_path, space=more))
    assert estimate.hours == hours(4)


def test_where_nothing_is_known_and_nothing_limits_it_that_is_said(tmp_path: Path) -> None:
    world = make_world(tmp_path, scripts=lambda _job: Script(seconds=1))

    estimate, history = asked(world, file(tmp_path))

    assert (estimate.hours, estimate.basis, history.sweep) == (None, "", "")


def test_what_still_runs_is_unfinished_and_tells_nothing_of_the_cost(tmp_path: Path) -> None:
    world = make_world(tmp_path, scripts=lambda _job: Script(seconds=HOUR))
    sweep = world.begin()
    world.drive_for(sweep, 3)
    assert {t.state for t in world.ledger.trials(sweep)} & {State.QUEUED, State.RUNNING}

    estimate, history = asked(world, world.sweep)

    assert (history.unfinished, history.new, history.attaches) == (3, 0, True)
    assert estimate.hours is None


def test_the_points_of_a_grid_of_a_million_are_found_without_a_walk(tmp_path: Path) -> None:
    world = ran(tmp_path)
    axis = {"min": 0.1, "max": 100, "step": 0.1}
    space = {"parameters.lr": axis, "parameters.seed": {"min": 0, "max": 999, "step": 1}}
    _, history = asked(world, file(tmp_path, space=space))
    assert (history.new, history.succeeded) == (1_000_000, 0)

    _, history = asked(world, file(tmp_path, space={"parameters.lr": axis}))
    assert (history.new, history.succeeded) == (997, 2)

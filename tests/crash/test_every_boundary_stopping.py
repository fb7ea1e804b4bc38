"""Dying at every boundary of a sweep that stops trials early: the same ones are stopped, for the same reasons."""

import os
from pathlib import Path

import pytest

from airflows.ledger import SweepState
from airflows.testing.crash import Boundaries, Died, World, check, make_world
from airflows.testing.curves import CurveTracker
from airflows.testing.fake import Script
from airflows.trial import State

LOSSES = (0.5, 0.3, 0.6, 0.1, 0.4)
TREE = {
    "space": {"parameters.lr": list(LOSSES)},
    "objective": {"metric": "loss", "goal": "minimize", "take": "best"},
    "limits": {"concurrent": 3},
}
STOPS = {"method": "asha", "min_steps": 3, "reduction": 2}
SECONDS = 10.0
CALLS = ("apply", "add_scores", "submit", "cancel")


def scripts(job):
    """A checkpoint of the last step is there as soon as a trial runs; trial 4 is preempted once."""
    directory = Path(job.checkpoint_dir)
    directory.mkdir(parents=True, exist_ok=True)
    saved = directory / f"step_{SECONDS + job.attempt:.0f}.pt"
    saved.write_text("all there is")
    os.utime(saved, (1, 1))
    if (job.number, job.attempt) == (4, 0):
        return Script(seconds=2, exit_code=None, word="PREEMPTED")
    return Script(seconds=SECONDS)


def world_with_curves(home: Path, **stop) -> World:
    world = make_world(home, scripts=scripts, tree={**TREE, "stop": {**STOPS, **stop}})
    world.tracker = CurveTracker(cluster=world.cluster, value_at=lambda number, _step: LOSSES[number])
    return world


def ends(world: World, sweep: str) -> dict[int, str]:
    """How each trial ended."""
    trials = world.ledger.trials(sweep)
    return {t.number: t.message if t.state is State.STOPPED else t.state.value for t in trials}


def decided(ended: dict[int, str]) -> dict[int, str]:
    """What was decided: with how many others a trial was compared by then may differ."""
    return {number: words.partition(" is ")[0] for number, words in ended.items()}


def undisturbed(home: Path, **stop) -> tuple[list[int], dict[int, str]]:
    """Return the boundaries to die at, and how each trial ends: of those that decide nothing, every twelfth."""
    boundaries = Boundaries()
    world = world_with_curves(home, **stop)
    row = world.drive(boundaries, dead_for_sure=True)
    check(world, row.id)
    named = list(enumerate(boundaries.names, 1))
    deciding = {at for at, name in named if name.endswith(CALLS)}
    others = [at for at, _ in named if at not in deciding]
    return sorted(deciding | {*others[::12]}), ends(world, row.id)


def test_an_undisturbed_sweep_stops_what_is_not_among_the_best(tmp_path):
    _, ended = undisturbed(tmp_path / "once")

    assert ended == {
        0: "succeeded",
        1: "succeeded",
        2: "stopped at step 3: 0.6 is above 0.3, the best of 3 trials at that step",
        3: "succeeded",
        4: "stopped at step 3: 0.4 is above 0.3, the worst of the best 2 of 5 trials at that step",
    }


@pytest.mark.parametrize("stop", [{}, {"resume": True}], ids=["stopped", "waiting at rungs"])
def test_dying_at_every_boundary_stops_the_same_trials(tmp_path, stop):
    boundaries, expected = undisturbed(tmp_path / "count", **stop)

    assert any(words.startswith("stopped at step") for words in expected.values())
    for die_at in boundaries:
        world = world_with_curves(tmp_path / str(die_at), **stop)
        with pytest.raises(Died):
            world.drive(Boundaries(die_at), dead_for_sure=True)
        row = world.drive(Boundaries(), dead_for_sure=True)

        assert row.state is SweepState.SUCCEEDED
        check(world, row.id)
        assert decided(ends(world, row.id)) == decided(expected)
        world.close()

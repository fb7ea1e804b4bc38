"""An adaptive sweep whose driver dies anywhere proposes what it would have proposed without."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflows.backends.base import Job
from airflows.engine.adaptive import setting_of
from airflows.engine.outcomes import aims_of, outcome_of, scored
from airflows.ledger import SweepState
from airflows.search.adaptive import Notes, open_sampler
from airflows.testing.crash import Boundaries, Died, World, check, make_world
from airflows.testing.fake import Script
from airflows.testing.tracker import FakeTracker
from airflows.tracking.records import TrialRun

SPACES: Mapping[str, dict[str, Any]] = {
    "tpe": {
        "parameters.lr": {"min": 1e-3, "max": 1.0, "log": True},
        "parameters.opt": ["sgd", "adam"],
        "parameters.momentum": {"min": 0.0, "max": 1.0, "when": {"parameters.opt": "sgd"}},
    },
    "cmaes": {"parameters.lr": {"min": 0.0, "max": 1.0}, "parameters.seed": {"min": 0, "max": 9}},
    "nsga2": {"parameters.lr": {"min": 0.0, "max": 1.0}, "parameters.seed": [0, 1]},
}


def loss(overrides: Mapping[str, Any]) -> float:
    return (overrides["parameters.lr"] - 0.3) ** 2 + 0.1 * overrides.get("parameters.momentum", 0.5)


@dataclass
class Landscape(FakeTracker):
    """Its values follow from what a trial overrides."""

    values: dict[int, float] = field(default_factory=dict)

    def _make(self, trial: TrialRun) -> str:
        self.values[trial.number] = loss(trial.overrides)
        return super()._make(trial)


def scripts(job: Job) -> Script:
    """Trials overtake each other; one fails for good, and one is preempted once."""
    if (job.number, job.attempt) == (2, 0):
        return Script(seconds=3, exit_code=None, word="PREEMPTED")
    return Script(seconds=2.0 + (job.number * 7) % 5, exit_code=int(job.number == 4), lines=("no luck",))


def make(home: Path, method: str, trials: int, **more: Any) -> World:
    search = {"method": method, "trials": trials, "seed": 3, **more.pop("search", {})}
    tree = {
        "space": SPACES[method],
        "search": search,
        "objective": {"metric": "loss", "goal": "minimize"},
        "limits": {"concurrent": 3, "identical_failures": 0},
        "retry": {"max": 0, "wait": "1s"},
        **more,
    }
    return make_world(home, scripts=scripts, tree=tree, tracker=Landscape())


def proposals(world: World, sweep: str) -> list[dict[str, Any]]:
    return [point.overrides for point in world.ledger.points(sweep)]


def ends(world: World, sweep: str) -> list[int]:
    trials = world.ledger.trials(sweep)
    return [trial.number for trial in sorted(trials, key=lambda t: (t.ended_at or 0.0, t.number))]


def asked_again(world: World, sweep: str) -> list[dict[str, Any]]:
    """Return what a new sampler proposes for each point, given what the ledger says came before it."""
    spec = world.sweep.spec
    points = list(world.ledger.points(sweep))
    trials = {trial.point: trial for trial in world.ledger.trials(sweep)}
    known = len(list(world.sweep.expansion.points()))
    made = [point.overrides for point in points[:known]]
    for point in points[known:]:
        sampler = open_sampler(world.sweep.space, world.sweep.base.tree, setting_of(spec))
        told: list[int] = []
        for earlier in points[: point.number + 1]:
            memo = json.loads(earlier.memo or "{}")
            told += memo.get("told", [])
            if earlier is not point:
                sampler.add(earlier.overrides, Notes(memo.get("trial", {}), memo.get("study", {})))
        for number in told:
            outcome = outcome_of(aims_of(spec), [scored(trials[number], {}, {}, 1)])
            sampler.finish(number, outcome)
        made.append(sampler.ask().overrides)
    return made


@pytest.mark.parametrize(
    ("method", "trials", "stride"), [("cmaes", 8, 23), ("tpe", 13, 29), ("nsga2", 52, 401)]
)
def test_dying_anywhere_changes_no_proposal(tmp_path: Path, method: str, trials: int, stride: int) -> None:
    whole = make(tmp_path / "whole", method, trials)
    boundaries = Boundaries()
    sweep = whole.drive(boundaries, dead_for_sure=True).id
    wanted, order = proposals(whole, sweep), ends(whole, sweep)
    compared = died = 0
    for die_at in range(2, len(boundaries.names) + 1, stride):
        world = make(tmp_path / str(die_at), method, trials)
        with pytest.raises(Died):
            world.drive(Boundaries(die_at), dead_for_sure=True)
        row = world.drive(Boundaries(), dead_for_sure=True)
        died += 1

        assert row.state is SweepState.FAILED  # by the one trial that fails
        check(world, row.id)
        assert len(proposals(world, row.id)) == trials
        if ends(world, row.id) == order:
            compared += 1
            assert proposals(world, row.id) == wanted
        world.close()
    assert compared > died / 2
    assert asked_again(whole, sweep) == wanted

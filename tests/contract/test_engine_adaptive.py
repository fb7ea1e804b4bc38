"""Sweeps whose method learns: what it is told, what is not run twice, and how they are extended."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflows.engine.reopen import reopen
from airflows.engine.results import gather
from airflows.engine.site import reload
from airflows.engine.warmstart import past_of, require_search
from airflows.errors import SpecError
from airflows.ledger import SweepRow, SweepState, schema
from airflows.ledger.opening import connect
from airflows.testing.crash import Boundaries, Ticks, World, make_world
from airflows.testing.curves import CurveTracker
from airflows.testing.fake import Script
from airflows.testing.tracker import FakeTracker
from airflows.tracking.records import Reading, TrialRun
from airflows.trial import State

LR = {"parameters.lr": {"min": 0.0, "max": 1.0}}


@dataclass
class Landscape(FakeTracker):
    """Its metrics follow from what a trial overrides: `loss` is best at 0.3, `size` grows with lr."""

    overrides: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def _make(self, trial: TrialRun) -> str:
        self.overrides[trial.number] = trial.overrides
        return super()._make(trial)

    def _reading(self, run_id: str, metric: str) -> Reading:
        made = self.overrides[self.numbers[run_id]]
        lr = made.get("parameters.lr", 0.1)
        metrics = {"loss": (lr - 0.3) ** 2 + made.get("parameters.seed", 0), "size": lr}
        if made.get("parameters.opt") == "bad":
            metrics["loss"] = float("nan")
        return Reading(metrics[metric], 0, "last", metrics)


def make(home: Path, tree: dict[str, Any], **search: Any) -> World:
    whole = {
        "space": LR,
        "objective": {"metric": "loss", "goal": "minimize"},
        "search": {"method": "tpe", "trials": 14, **search},
        **tree,
    }
    return make_world(home, scripts=lambda _job: Script(), tree=whole, tracker=Landscape())


def drive(world: World) -> SweepRow:
    return world.drive(Boundaries(), dead_for_sure=True)


def points(world: World, sweep: str) -> list[dict[str, Any]]:
    return [point.overrides for point in world.ledger.points(sweep)]


def extend(world: World, row: SweepRow, trials: int) -> None:
    world.sweep = reload(row, (f"search.trials={trials}",))
    reopen(world.site(), row, failed=False, code="", now=world.cluster.clock())


def test_an_extended_sweep_goes_on_as_a_longer_one(tmp_path: Path) -> None:
    longer = make(tmp_path / "longer", {"limits": {"concurrent": 1}}, method="cmaes", trials=12)
    wanted = points(longer, drive(longer).id)
    world = make(tmp_path / "short", {"limits": {"concurrent": 1}}, method="cmaes", trials=5)
    row = drive(world)

    assert (row.state, row.total, len(points(world, row.id))) == (SweepState.SUCCEEDED, 5, 5)
    extend(world, row, 12)
    again = drive(world)
    assert (again.id, again.state, again.total) == (row.id, SweepState.SUCCEEDED, 12)
    assert points(world, row.id) == wanted


def test_a_repeated_proposal_shares_the_value_and_is_not_run(tmp_path: Path) -> None:
    space = {"parameters.lr": [0.1, 0.2, 0.3, 0.4], "parameters.seed": [0, 1, 2, 3]}
    world = make(tmp_path, {"space": space}, trials=30)
    row = drive(world)
    made = list(world.ledger.points(row.id))
    trials = world.ledger.trials(row.id)
    repeats = [point for point in made if point.same_as is not None]

    assert repeats
    assert len(trials) == len(made) - len(repeats) == row.total
    assert f"{len(repeats)} points were earlier ones again" in row.message
    assert all(made[p.same_as].overrides == p.overrides for p in repeats if p.same_as is not None)
    assert len({point.digest for point in made}) == len(made)
    assert gather(world.ledger, row).complete


def test_a_finite_space_ends_when_all_of_it_was_tried(tmp_path: Path) -> None:
    world = make(tmp_path, {"space": {"parameters.lr": [0.1, 0.2, 0.3]}}, trials=30)
    row = drive(world)

    assert len(world.ledger.trials(row.id)) == row.total == 3
    assert row.exhausted


def test_include_rows_come_first_and_excluded_points_never(tmp_path: Path) -> None:
    space = {"parameters.lr": {"min": 0.0, "max": 1.0}, "parameters.opt": ["a", "b"]}
    include = [{"parameters.lr": 0.3}, {"parameters.lr": 5.0}]
    world = make(
        tmp_path, {"space": space, "include": include, "exclude": [{"parameters.opt": "b"}]}, trials=15
    )
    made = points(world, drive(world).id)

    assert made[:2] == include
    assert {point["parameters.opt"] for point in made[2:]} == {"a"}


def test_replicates_are_told_as_one_point(tmp_path: Path) -> None:
    tree = {"replicates": {"key": "parameters.seed", "values": [0, 1]}, "limits": {"concurrent": 2}}
    world = make(tmp_path, tree, trials=12)
    row = drive(world)
    told = [json.loads(point.memo or "{}").get("told", []) for point in world.ledger.points(row.id)]

    assert len(world.ledger.trials(row.id)) == 24
    # Two slots are room for one point, so each is asked for when the one before has ended.
    assert told == [[]] + [[number] for number in range(11)]


def test_with_mlflow_away_no_point_is_chosen_blindly(tmp_path: Path) -> None:
    world = make(tmp_path, {"limits": {"concurrent": 1}})
    tracker = world.tracker
    assert isinstance(tracker, Landscape)
    sweep = world.begin()
    drive = world.driving(world.site())
    drive.observer = Ticks({30: drive.pause})
    world.cluster.on_end = lambda _job: setattr(tracker, "away", True)
    drive.run(sweep)
    trials = world.ledger.trials(sweep)

    # One has ended whose value nobody knows, and nothing runs beside it.
    assert [trial.closed for trial in trials] == [True] * (len(trials) - 1) + [False]
    assert trials[-1].state is State.SUCCEEDED


def test_a_method_that_learns_is_refused_with_trials_that_wait_at_rungs(tmp_path: Path) -> None:
    stop = {"method": "asha", "resume": True}

    with pytest.raises(SpecError, match="tpe learns from trials that end") as refused:
        make(tmp_path, {"stop": stop})
    assert refused.value.hint == "Use asha without resume."
    make(tmp_path, {"stop": stop}, method="random")


@dataclass
class Curves(CurveTracker):
    """The values of a trial follow from what it overrides."""

    overrides: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def _make(self, trial: TrialRun) -> str:
        self.overrides[trial.number] = trial.overrides
        return super()._make(trial)


def test_trials_that_are_stopped_early_are_told_and_hold_nothing_up(tmp_path: Path) -> None:
    stop = {"method": "asha", "min_steps": 2, "reduction": 2}
    world = make(tmp_path, {"stop": stop, "limits": {"concurrent": 2}}, trials=14)
    world.cluster.scripts = lambda _job: Script(seconds=8)
    tracker = world.tracker = Curves(cluster=world.cluster)
    tracker.value_at = lambda number, _step: (tracker.overrides[number]["parameters.lr"] - 0.3) ** 2
    row = drive(world)
    states = Counter(trial.state for trial in world.ledger.trials(row.id))

    assert row.state is SweepState.SUCCEEDED
    assert states[State.STOPPED] >= 3
    assert states[State.STOPPED] + states[State.SUCCEEDED] == 14


def test_several_objectives_and_constraints_are_told(tmp_path: Path) -> None:
    objectives = [
        {"metric": "loss", "goal": "minimize", "constraints": ["size <= 0.5"]},
        {"metric": "size", "goal": "maximize"},
    ]
    for method, trials in {"nsga2": 56, "tpe": 16}.items():
        tree = {"objective": None, "objectives": objectives, "limits": {"concurrent": 4}}
        world = make(tmp_path / method, tree, method=method, trials=trials)
        row = drive(world)

        assert row.state is SweepState.SUCCEEDED
        made = points(world, row.id)
        learned = [point["parameters.lr"] for point in made[len(made) - 6 :]]
        assert sum(lr <= 0.55 for lr in learned) >= 4


def test_a_warm_start_tells_what_earlier_sweeps_have_found(tmp_path: Path) -> None:
    first = make(tmp_path, {"name": "first"}, method="random", trials=20)
    assert drive(first).state is SweepState.SUCCEEDED
    second = make(tmp_path, {"name": "second"}, trials=6, warm_start=["first"])
    second.cluster.clock.advance(100)

    assert len(past_of(second.ledger, second.sweep)) == 20
    assert require_search(second.site()) == ("tpe starts from 20 finished points of first.",)
    row = drive(second)
    made = points(second, row.id)

    assert sum(abs(point["parameters.lr"] - 0.3) < 0.25 for point in made) >= 5
    # What the earlier sweep becomes later makes no difference.
    memo = json.loads(next(iter(second.ledger.points(row.id))).memo or "")
    assert len(memo["past"]) == 20


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"search": {"warm_start": ["nobody"]}}, "no earlier sweep 'nobody'"),
        ({"objective": {"metric": "size", "goal": "minimize"}}, "the objective of first was minimize loss"),
    ],
)
def test_a_warm_start_that_cannot_be_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    drive(make(tmp_path, {"name": "first"}, method="random", trials=2))
    search = {"method": "tpe", "trials": 6, "warm_start": ["first"], **changes.pop("search", {})}
    world = make(tmp_path, {"name": "second", "search": search, **changes})

    with pytest.raises(SpecError, match=words):
        require_search(world.site())


def test_another_sweep_of_the_same_file_needs_the_earlier_one_too(tmp_path: Path) -> None:
    drive(make(tmp_path, {"name": "first"}, method="random", trials=2))
    world = make(tmp_path, {"name": "second"}, trials=3, warm_start=["first"])
    drive(world)
    engine = connect(world.database)
    with engine.begin() as connection:
        connection.execute(
            sa.update(schema.sweeps).where(schema.sweeps.c.name == "first").values(name="gone")
        )
    engine.dispose()

    assert require_search(world.site()) == ()
    with pytest.raises(SpecError, match="no earlier sweep 'first'"):
        require_search(world.site(), new=True)


def test_a_method_that_learns_needs_mlflow(tmp_path: Path) -> None:
    world = make(tmp_path, {})
    world.tracker = None

    with pytest.raises(SpecError, match="learns from metrics"):
        require_search(world.site())


def test_points_that_diverge_are_avoided(tmp_path: Path) -> None:
    space = {**LR, "parameters.opt": ["good", "bad"]}
    world = make(tmp_path, {"space": space, "limits": {"concurrent": 2}}, trials=30, seed=1)
    made = points(world, drive(world).id)

    assert sum(point["parameters.opt"] == "bad" for point in made[15:]) <= 3

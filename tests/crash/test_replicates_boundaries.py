"""Dying at every boundary while replicates are added and run: each is there once, and the result is the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml

from airflows.engine.reopen import reopen
from airflows.engine.replicating import add_replicates
from airflows.engine.results import gather, verdict_of
from airflows.engine.site import reload
from airflows.errors import ConflictError
from airflows.ledger import SweepRow, SweepState, Wish
from airflows.testing.crash import Boundaries, Died, Ticks, World, check, make_world
from airflows.testing.fake import Script
from airflows.testing.tracker import FakeTracker
from airflows.trial import State

# Points 0 and 1 cannot be told apart, point 2 is far behind. The further values are those of added trials.
LOSSES = dict(enumerate([1.0, 1.2, 1.1, 1.35, 9.0, 9.2, 1.05, 1.15, 1.2, 1.3, 1.1, 1.1, 1.2, 1.2]))
TREE = {
    "replicates": {"key": "parameters.seed", "values": [10, 20]},
    "objective": {"metric": "loss", "goal": "minimize"},
}
BEFORE = 6
LEASE_S = 31


def ended_world(home: Path, **tree: object) -> tuple[World, SweepRow]:
    world = make_world(home, scripts=lambda _job: Script(seconds=1), tree={**TREE, **tree})
    world.tracker = FakeTracker(values=LOSSES)
    return world, world.drive(Boundaries(), dead_for_sure=True)


def resume(world: World, sweep: str, boundaries: Boundaries, more: int = 2) -> str:
    """`airflows resume SWEEP --replicates 2`, which dies at one of the boundaries."""
    clock, opened = world.cluster.clock, world.open_ledger()
    site = world.site(world.connect(), opened, boundaries)
    try:
        said = add_replicates(site, sweep, more, now=clock())
        reopen(site, opened.sweep(sweep), failed=False, code="", now=clock())
        world.driving(site, owner=world.owner(dead_for_sure=True)).run(sweep)
    finally:
        opened.close()
    return said


def replicates(world: World, sweep: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for trial in world.ledger.trials(sweep):
        found.setdefault(trial.point, []).append(trial.replicate)
    return found


def test_they_are_added_to_the_points_that_may_have_won_alone(tmp_path: Path) -> None:
    world, row = ended_world(tmp_path)
    before = verdict_of(world.ledger, gather(world.ledger, row))
    assert [group.point for group in before.contenders] == [0, 1]

    said = resume(world, row.id, Boundaries())

    assert said == "4 trials are added: 2 more replicates of each of the 2 points ranked 1 2."
    assert replicates(world, row.id) == {0: [0, 1, 2, 3], 1: [0, 1, 2, 3], 2: [0, 1]}
    after = world.ledger.sweep(row.id)
    assert (after.state, after.total, after.winner["n"]) == (SweepState.SUCCEEDED, 10, 4)
    seeds = {
        run.job.number: yaml.safe_load(run.job.files["training_config.yaml"])["parameters"]["seed"]
        for run in world.cluster.runs.values()
    }
    # The points ran with 10 and 20: the rule of the file goes on.
    assert [seeds[number] for number in range(6, 10)] == [30, 40, 30, 40]
    check(world, row.id)


def test_dying_at_every_boundary_adds_each_once(tmp_path: Path) -> None:
    count = Boundaries()
    world, row = ended_world(tmp_path / "count")
    resume(world, row.id, count)
    winner = world.ledger.sweep(row.id).winner
    world.close()

    assert {"before add_points", "after add_points", "before submit", "after close_sweep"} <= set(count.names)
    for die_at in range(1, len(count.names) + 1):
        world, row = ended_world(tmp_path / str(die_at))
        with pytest.raises(Died):
            resume(world, row.id, Boundaries(die_at))
        world.cluster.clock.advance(LEASE_S)
        left = world.ledger.sweep(row.id)
        # Once it has ended with them, the request has been met, and another one is another one.
        if left.ended_at is None or len(world.ledger.trials(row.id)) == BEFORE:
            resume(world, row.id, Boundaries())

        assert replicates(world, row.id) == {0: [0, 1, 2, 3], 1: [0, 1, 2, 3], 2: [0, 1]}, die_at
        assert world.ledger.sweep(row.id).winner == winner
        check(world, row.id)
        world.close()


def test_asked_for_again_after_a_crash_they_go_on_and_that_is_said(tmp_path: Path) -> None:
    world, row = ended_world(tmp_path)
    with pytest.raises(Died):
        resume(world, row.id, Boundaries(die_if=lambda name: name == "after submit"))
    world.cluster.clock.advance(LEASE_S)

    said = resume(world, row.id, Boundaries(), more=9)

    assert "has not ended" in said
    assert "4 of its trials are replicates that were added before" in said
    assert Counter(trial.point for trial in world.ledger.trials(row.id)) == {0: 4, 1: 4, 2: 2}


def test_a_second_request_adds_to_what_is_there(tmp_path: Path) -> None:
    world, row = ended_world(tmp_path)
    resume(world, row.id, Boundaries(), more=1)
    resume(world, row.id, Boundaries(), more=2)

    assert replicates(world, row.id) == {0: [0, 1, 2, 3, 4], 1: [0, 1, 2, 3, 4], 2: [0, 1]}
    check(world, row.id)


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        ({"replicates": None}, "has no replicates"),
        ({"replicates": {"key": "parameters.lr", "values": [0.5, 0.7]}, "space": None}, "not whole numbers"),
        ({"objective": None}, "has no winner"),
        ({"space": {"parameters.lr": [0.1]}}, "may be as good"),
    ],
)
def test_where_nothing_can_be_added_that_is_said_and_nothing_changes(
    tmp_path: Path, tree: dict[str, object], why: str
) -> None:
    if tree.get("space", 1) is None:
        tree = {**tree, "space": {"parameters.seed": [1, 2]}}
    world, row = ended_world(tmp_path, **tree)
    with pytest.raises(ConflictError, match=why) as caught:
        resume(world, row.id, Boundaries())

    assert caught.value.hint
    assert world.ledger.sweep(row.id) == row
    world.close()


def many(home: Path, limits: dict[str, int]) -> World:
    """30 points with two replicates each, of which points 0 and 1 cannot be told apart."""
    tree = {**TREE, "space": {"parameters.lr": [at / 100 for at in range(1, 31)]}, "limits": limits}
    world = make_world(home, scripts=lambda _job: Script(seconds=1), tree=tree)
    world.tracker = FakeTracker(values={number: LOSSES.get(number, 9.0) for number in range(64)})
    return world


def test_a_sweep_with_trials_that_still_wait_is_not_taken_up_by_it(tmp_path: Path) -> None:
    world = many(tmp_path, {"concurrent": 2, "trials": 14})
    row = world.drive(Boundaries(), dead_for_sure=True)
    before = world.ledger.trials(row.id)
    assert (row.state, row.exhausted) == (SweepState.STOPPED, True)
    assert row.winner is not None
    assert sum(trial.state is State.PENDING for trial in before) == 46

    with pytest.raises(ConflictError, match="ended before all its trials had run") as caught:
        resume(world, row.id, Boundaries())

    assert (caught.value.hint or "").endswith(f"airflows resume {row.id}")
    assert (world.ledger.sweep(row.id), world.ledger.trials(row.id)) == (row, before)
    world.close()


def test_cancelled_trials_are_not_started_by_it(tmp_path: Path) -> None:
    world = many(tmp_path, {"concurrent": 2})
    sweep = world.begin()
    driving = world.driving(world.site())
    driving.observer = Ticks({20: lambda: world.ledger.wish(sweep, Wish.STOP)})
    assert driving.run(sweep).state is SweepState.CANCELLED
    before = world.ledger.trials(sweep)
    assert {trial.state for trial in before} == {State.SUCCEEDED, State.CANCELLED}

    resume(world, sweep, Boundaries(), more=1)

    after = world.ledger.trials(sweep)
    assert after[: len(before)] == before
    assert {trial.replicate for trial in after[len(before) :]} == {2}
    assert {trial.state for trial in after[len(before) :]} == {State.SUCCEEDED}
    world.close()


def test_points_that_were_never_made_are_not_either(tmp_path: Path) -> None:
    world, row = ended_world(tmp_path)
    opened = world.open_ledger()
    lease = opened.hold(
        row.id, world.owner(dead_for_sure=True), now=world.cluster.clock(), ttl_s=1, token="t"
    )
    opened.update_sweep(lease, exhausted=False)
    opened.release(lease)
    opened.close()

    with pytest.raises(ConflictError, match="ended before all its trials had run") as caught:
        resume(world, row.id, Boundaries())

    assert f"airflows resume {row.id} --failed" in (caught.value.hint or "")
    assert len(world.ledger.trials(row.id)) == BEFORE
    world.close()


def test_of_several_objectives_the_front_gets_them(tmp_path: Path) -> None:
    both = [{"metric": "loss", "goal": goal} for goal in ("minimize", "maximize")]
    world, row = ended_world(tmp_path, objective=None, objectives=both)

    said = resume(world, row.id, Boundaries(), more=1)

    assert said.startswith("3 trials are added: 1 more replicate of each of the 3 points ranked 1 2 3")
    assert replicates(world, row.id) == {0: [0, 1, 2], 1: [0, 1, 2], 2: [0, 1, 2]}
    check(world, row.id)


def test_longer_draws_come_after_what_was_added(tmp_path: Path) -> None:
    """Replicates stand at the end of what was there, and further points at the end of both."""
    world, row = ended_world(tmp_path, search={"method": "random", "trials": 2, "seed": 1})
    resume(world, row.id, Boundaries(), more=1)
    row = world.ledger.sweep(row.id)
    added = len(world.ledger.trials(row.id)) - 4
    world.sweep = reload(row, ("search.trials=3",))
    site = world.site()
    reopened = reopen(site, row, failed=False, code="", now=world.cluster.clock())
    assert reopened.total == 6 + added
    world.driving(site).run(row.id)

    trials = world.ledger.trials(row.id)
    assert [trial.number for trial in trials] == list(range(6 + added))
    assert [trial.point for trial in trials[4 + added :]] == [2, 2]
    assert world.ledger.sweep(row.id).total == 6 + added
    check(world, row.id)

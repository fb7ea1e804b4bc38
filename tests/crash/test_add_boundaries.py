"""Dying at every boundary while a file's points are added: the edit is whole or not there, and ends the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflows.edits import Edits
from airflows.engine import record
from airflows.engine.editing import Adding, look
from airflows.engine.results import ORPHANED, gather
from airflows.engine.site import reload
from airflows.errors import ConflictError, LeaseHeldError
from airflows.ledger import SweepRow, SweepState
from airflows.sweepfile import LoadedSweep, sweep_from_mapping
from airflows.testing.crash import BASE, Boundaries, Died, World, check, make_world
from airflows.testing.fake import Script
from airflows.testing.tracker import FakeTracker
from airflows.trial import State

LRS = [0.1, 0.2, 0.3, 0.4]
# By trial number: point 0, which the edited file no longer has, is the best.
LOSSES = {0: 0.1, 1: 0.5, 2: 0.4, 3: 0.9, 4: 0.3, 5: 0.8}
OBJECTIVE = {"metric": "loss", "goal": "minimize"}
LEASE_S = 31


def file(home: Path, lrs: list[float], **tree: Any) -> LoadedSweep:
    mapping = {
        "name": "crash",
        "base": BASE,
        "space": {"parameters.lr": lrs},
        "limits": {"concurrent": 2},
        "retry": {"wait": "1s"},
        "objective": OBJECTIVE,
        **tree,
    }
    return sweep_from_mapping(mapping, directory=home)


def make(home: Path, **tree: Any) -> World:
    world = make_world(
        home,
        scripts=lambda _job: Script(seconds=5),
        tree={"space": {"parameters.lr": LRS}, "objective": OBJECTIVE, **tree},
    )
    world.tracker = FakeTracker(values=LOSSES)
    return world


def half_done(home: Path) -> tuple[World, str]:
    """A sweep of four points of which two run and two wait; nobody drives it."""
    world = make(home)
    sweep = world.begin()
    world.drive_for(sweep, 3, owner=world.owner(dead_for_sure=True))
    states = Counter(trial.state for trial in world.ledger.trials(sweep))
    assert states[State.PENDING] == 2
    return world, sweep


def looked(world: World, sweep: str, new: LoadedSweep, boundaries: Boundaries | None = None) -> Adding:
    opened = world.open_ledger()
    site = world.site(world.connect(), opened, boundaries)
    site.sweep = new
    return look(site, opened.sweep(sweep))


def add(world: World, sweep: str, new: LoadedSweep, boundaries: Boundaries | None = None) -> SweepRow:
    """`airflows resume SWEEP --add FILE --yes`, which dies at one of the boundaries."""
    found = looked(world, sweep, new, boundaries)
    try:
        found.write(now=world.cluster.clock())
        return world.driving(found.site, owner=world.owner(dead_for_sure=True)).run(sweep)
    finally:
        # Of a process that died only the connection is given back.
        getattr(found.site.ledger, "_inner", found.site.ledger).close()


def told(world: World, sweep: str) -> Any:
    """What must be the same whenever the process died."""
    row = world.ledger.sweep(sweep)
    points = {point.number: point.overrides for point in world.ledger.points(sweep)}
    # The orphan that ran may have come to its end while nobody drove.
    trials = [(t.number, t.point, t.replicate, t.number and t.state) for t in world.ledger.trials(sweep)]
    winner = None if row.winner is None else {k: v for k, v in row.winner.items() if k != "mlflow_run_id"}
    return row.state, row.total, row.definition, row.source, row.edits, winner, points, trials


def test_dying_at_every_boundary_leaves_the_edit_whole_or_not_there(tmp_path: Path) -> None:
    # Point 0 runs and point 3 waits: both are orphaned and cancelled; 0.25 and 0.5 are new.
    new = [0.2, 0.25, 0.3, 0.5]
    count = Boundaries()
    world, sweep = half_done(tmp_path / "count")
    before = world.ledger.sweep(sweep)
    add(world, sweep, file(tmp_path / "count", new), count)
    expected = told(world, sweep)
    after = world.ledger.sweep(sweep)
    world.close()

    assert {"before edit", "after edit", "before add_points", "before cancel", "after close_sweep"} <= set(
        count.names
    )
    assert expected[6] == {at: {"parameters.lr": lr} for at, lr in enumerate([0.1, 0.2, 0.3, 0.4, 0.25, 0.5])}
    # What comes behind the second submission is driving as ever, at whose boundaries others die.
    last = [at for at, name in enumerate(count.names, 1) if name == "after submit"][1]
    for die_at in range(1, last + 1):
        home = tmp_path / str(die_at)
        world, sweep = half_done(home)
        with pytest.raises(Died):
            add(world, sweep, file(home, new), Boundaries(die_at))
        row = world.ledger.sweep(sweep)
        is_there = (row.edits, row.definition) == (after.edits, after.definition)
        assert is_there or (row.source, row.edits) == (before.source, ""), die_at
        asked = {trial.point for trial in world.ledger.trials(sweep) if trial.cancel_requested}
        assert asked <= ({0, 3} if is_there else set())
        world.cluster.clock.advance(LEASE_S)

        add(world, sweep, file(home, new))

        assert told(world, sweep) == expected, die_at
        # What runs from now on is found by the record, should the ledger be lost.
        kept = record.read(home / "root", sweep)
        assert kept is not None
        assert (kept.row.edits, kept.row.source) == (after.edits, after.source)
        check_orphans_aside(world, sweep)
        world.close()


def check_orphans_aside(world: World, sweep: str) -> None:
    """Check the world; what was cancelled before it ever ran has no attempt to be checked."""
    never = [t for t in world.ledger.trials(sweep) if t.state is State.CANCELLED and t.claimed_at is None]
    assert {trial.point for trial in never} <= {0, 3}
    if not never:
        check(world, sweep)
    assert not world.submitted_twice
    assert all(trial.state.is_final and trial.closed for trial in world.ledger.trials(sweep))
    assert {a.token for a in world.ledger.attempts(sweep)} == set(world.cluster.runs)


def test_an_orphan_keeps_its_result_and_does_not_win(tmp_path: Path) -> None:
    world = make(tmp_path)
    row = world.drive(Boundaries(), dead_for_sure=True)
    assert row.winner["trials"] == [0]

    row = add(world, row.id, file(tmp_path, [0.2, 0.3, 0.4]))

    results = gather(world.ledger, row)
    assert (row.state, row.winner["trials"], row.total) == (SweepState.SUCCEEDED, [2], 4)
    assert [(u.number, u.reason) for u in results.ranking.unranked] == [(0, ORPHANED)]
    assert world.ledger.trials(row.id)[0].value == LOSSES[0]
    check(world, row.id)
    world.close()


def test_a_point_that_comes_back_competes_again(tmp_path: Path) -> None:
    world = make(tmp_path)
    sweep = world.drive(Boundaries(), dead_for_sure=True).id
    add(world, sweep, file(tmp_path, [0.2, 0.3]))
    row = add(world, sweep, file(tmp_path, [0.3, 0.1]))

    assert row.winner["trials"] == [0]
    assert Edits.from_text(row.edits).orphaned == {1, 3}
    assert len(world.ledger.trials(sweep)) == 4
    check(world, sweep)
    world.close()


def test_what_was_cancelled_as_an_orphan_runs_when_it_comes_back(tmp_path: Path) -> None:
    world, sweep = half_done(tmp_path)
    add(world, sweep, file(tmp_path, [0.1, 0.2]))
    assert [t.state for t in world.ledger.trials(sweep)][2:] == [State.CANCELLED, State.CANCELLED]

    row = add(world, sweep, file(tmp_path, LRS))

    assert {trial.state for trial in world.ledger.trials(sweep)} == {State.SUCCEEDED}
    assert (row.state, Edits.from_text(row.edits).orphaned) == (SweepState.SUCCEEDED, frozenset())
    world.close()


def test_what_comes_back_before_it_was_cancelled_just_goes_on(tmp_path: Path) -> None:
    world, sweep = half_done(tmp_path)
    with pytest.raises(Died):
        add(world, sweep, file(tmp_path, [0.1]), Boundaries(die_if=lambda name: name == "after edit"))
    assert sum(trial.cancel_requested for trial in world.ledger.trials(sweep)) == 3
    world.cluster.clock.advance(LEASE_S)

    add(world, sweep, file(tmp_path, LRS))

    assert {trial.state for trial in world.ledger.trials(sweep)} == {State.SUCCEEDED}
    check(world, sweep)
    world.close()


def test_a_failed_orphan_is_nobodys_concern_any_more(tmp_path: Path) -> None:
    world = make_world(
        tmp_path,
        scripts=lambda job: Script(seconds=1, exit_code=int(job.number == 0)),
        tree={"space": {"parameters.lr": LRS}, "objective": OBJECTIVE, "retry": {"max": 0}},
    )
    world.tracker = FakeTracker(values=LOSSES)
    row = world.drive(Boundaries(), dead_for_sure=True)
    assert row.state is SweepState.FAILED

    row = add(world, row.id, file(tmp_path, [0.2, 0.3, 0.4], retry={"max": 0}))

    assert row.state is SweepState.SUCCEEDED
    assert world.ledger.trials(row.id)[0].state is State.FAILED
    world.close()


def test_a_longer_random_search_keeps_its_points_and_needs_no_edit(tmp_path: Path) -> None:
    def drawn(trials: int) -> dict[str, Any]:
        return {
            "space": {"parameters.lr": {"min": 0.1, "max": 0.9}},
            "search": {"method": "random", "trials": trials, "seed": 7},
        }

    world = make(tmp_path, **drawn(2))
    sweep = world.drive(Boundaries(), dead_for_sure=True).id
    first = [point.overrides for point in world.ledger.points(sweep)]

    row = add(world, sweep, file(tmp_path, [], **drawn(5)))

    points = [point.overrides for point in world.ledger.points(sweep)]
    assert points[:2] == first
    assert points == [point.overrides for point in file(tmp_path, [], **drawn(5)).expansion.points()]
    assert (row.edits, row.total) == ("", 5)
    check(world, sweep)
    world.close()


def test_a_longer_search_of_an_edited_sweep_goes_on_behind_what_is_there(tmp_path: Path) -> None:
    world = make(tmp_path)
    sweep = world.drive(Boundaries(), dead_for_sure=True).id
    drawn = {"space": {"parameters.lr": {"min": 0.1, "max": 0.9}}}
    add(world, sweep, file(tmp_path, [], **drawn, search={"method": "random", "trials": 1}))
    row = add(world, sweep, file(tmp_path, [], **drawn, search={"method": "random", "trials": 2}))

    drawn_points = [point.overrides for point in reload(row).expansion.points(4)]
    points = [point.overrides for point in world.ledger.points(sweep)]
    assert [point["parameters.lr"] for point in points[:4]] == LRS
    assert points[4:] == drawn_points
    assert len(points) == 6
    check(world, sweep)
    world.close()


def test_a_plain_start_of_the_new_file_attaches_to_the_edited_sweep(tmp_path: Path) -> None:
    world = make(tmp_path)
    sweep = world.drive(Boundaries(), dead_for_sure=True).id
    new = file(tmp_path, [0.4, 0.05])
    with pytest.raises(Died):
        add(world, sweep, new, Boundaries(die_if=lambda name: name == "after edit"))
    world.cluster.clock.advance(LEASE_S)
    world.sweep = new

    row = world.drive(Boundaries(), dead_for_sure=True)

    assert row.id == sweep
    assert [p.overrides["parameters.lr"] for p in world.ledger.points(sweep)] == [*LRS, 0.05]
    check(world, sweep)
    world.close()


def test_nothing_is_added_while_somebody_drives(tmp_path: Path) -> None:
    world, sweep = half_done(tmp_path)
    before = world.ledger.sweep(sweep)
    lease = world.ledger.hold(
        sweep, world.owner(dead_for_sure=False), now=world.cluster.clock(), ttl_s=LEASE_S, token="other"
    )

    with pytest.raises(LeaseHeldError):
        add(world, sweep, file(tmp_path, [0.9]))

    world.ledger.release(lease)
    assert world.ledger.sweep(sweep).source == before.source
    world.close()


def test_what_was_looked_at_must_still_be_so(tmp_path: Path) -> None:
    world, sweep = half_done(tmp_path)
    seen = looked(world, sweep, file(tmp_path, [0.9]))
    add(world, sweep, file(tmp_path, [0.1, 0.2, 0.7]))
    row = world.ledger.sweep(sweep)

    with pytest.raises(ConflictError, match="was changed while this was decided"):
        seen.write(now=world.cluster.clock())

    seen.site.ledger.close()
    assert world.ledger.sweep(sweep) == row
    world.close()


def test_added_points_have_all_their_replicates_behind_those_there_are(tmp_path: Path) -> None:
    tree = {"replicates": {"key": "parameters.seed", "values": [0, 1]}}
    world = make(tmp_path, **tree)
    world.tracker = FakeTracker(values={number: float(number) for number in range(20)})
    sweep = world.drive(Boundaries(), dead_for_sure=True).id

    row = add(world, sweep, file(tmp_path, [*LRS, 0.5], **tree))

    trials = world.ledger.trials(sweep)
    assert [(t.number, t.point, t.replicate) for t in trials[8:]] == [(8, 4, 0), (9, 4, 1)]
    assert row.total == 10
    check(world, sweep)
    world.close()

"""Rebuilding a lost sweep: what is restored as it was, what is in doubt, and what is refused."""

import time
from dataclasses import replace

import pytest

from airflows.drivers import current_owner
from airflows.engine.lost import Lost, in_mlflow
from airflows.engine.rebuild import rebuilt
from airflows.engine.record import keep, read, records_named
from airflows.engine.start import begin
from airflows.errors import BackendUnavailableError, ConflictError, LeaseHeldError, NotFoundError, SpecError
from airflows.ledger import SweepState, Wish
from airflows.sweepfile import sweep_from_mapping
from airflows.testing.crash import BASE, Boundaries, Died, check, make_world
from airflows.testing.fake import FakeCluster, ManualClock, Script
from airflows.tracking import embedded_uri
from airflows.trial import EventKind, State


@pytest.fixture
def make(tmp_path):
    """Make a world whose clock agrees with that of the disk."""
    made = []

    def one(scripts=lambda _job: Script(), *, name="home", mlflow=False, **tree):
        home = tmp_path / name
        fields = {"tracking_uri": embedded_uri(home)} if mlflow else {}
        world = make_world(home, scripts=scripts, tree=tree, **fields)
        world.cluster = FakeCluster(clock=ManualClock(time.time()), scripts=scripts)
        made.append(world)
        return world

    yield one
    for world in made:
        world.close()


def lose(world, *, record=False):
    world.close()
    world.__dict__.pop("ledger", None)
    paths = [*world.home.glob("ledger.db*"), *(world.home.glob("root/runs/*/sweep.json") if record else ())]
    for path in paths:
        path.unlink()


def lost_in(world):
    found = next(records_named(world.home / "root", "crash"), None)
    return in_mlflow(world.site()) if found is None else Lost.of(found)


def rebuild(world, lost=None):
    return rebuilt(world.site(), lost or lost_in(world), now=world.cluster.clock()).row


def rebuild_and_drive(world):
    row = rebuild(world)
    return world.driving(world.site()).run(row.id)


def told(world, row):
    trials = [
        (t.number, t.state, t.reason, t.message, t.attempt, t.value, t.run_id)
        for t in world.ledger.trials(row.id)
    ]
    return row.id, row.state, row.message, row.halted, row.winner, trials


def end(world):
    return world.drive(Boundaries(), dead_for_sure=True)


def fails(job):
    return Script(seconds=1, exit_code=1, lines=(f"ValueError: {'abc'[job.number % 3]}",))


def test_a_halted_sweep_stays_halted(make):
    world = make(fails, mlflow=True, limits={"concurrent": 1, "failed_trials": 1}, retry={"max": 0})
    before = end(world)
    assert before.halted
    story = told(world, before)
    lose(world)

    after = rebuild_and_drive(world)

    assert told(world, after) == story
    assert len(world.cluster.submissions) == 1


def test_a_cancelled_sweep_stays_cancelled(make):
    world = make(lambda _job: Script(seconds=9), mlflow=True, limits={"concurrent": 2})
    sweep = world.begin()
    world.drive_for(sweep, 3)
    world.ledger.wish(sweep, Wish.STOP)
    before = world.driving(world.site()).run(sweep)
    story = told(world, before)
    assert before.state is SweepState.CANCELLED
    lose(world)

    after = rebuild_and_drive(world)

    assert told(world, after) == story


def test_relieved_attempts_keep_their_marks(make):
    def scripts(job):
        return (
            Script(exit_code=1, lines=("MemoryError",)) if (job.number, job.attempt) == (1, 0) else Script()
        )

    relief = {"on_out_of_memory": {"compute.num_accelerators": 2}, "wait": "1s"}
    world = make(scripts, mlflow=True, retry=relief, objective={"metric": "loss", "goal": "minimize"})
    before = end(world)
    assert [a.accelerators for a in world.ledger.attempts(before.id)] == [1, 1, 2, 1]
    lose(world)

    after = rebuild_and_drive(world)

    assert [a.accelerators for a in world.ledger.attempts(after.id)] == [1, 1, 2, 1]
    (claim,) = world.ledger.claim_details(after.id, 1).keys() & {(1, 1)}
    assert "compute.num_accelerators" in world.ledger.claim_details(after.id, 1)[claim]
    check(world, after.id)


def test_a_submission_that_nobody_knows_of_is_in_doubt_until_it_has_settled(make):
    world = make()
    with pytest.raises(Died):
        world.drive(Boundaries(die_if=lambda name: name == "before submit"), dead_for_sure=False)
    lose(world)

    row = rebuild(world)

    # The dead driver is on a machine that nobody can ask.
    assert row.doubt_until == pytest.approx(world.cluster.clock() + 30)
    states = [trial.state for trial in world.ledger.trials(row.id)]
    assert states == [State.SUBMITTING, State.SUBMITTING, State.PENDING]
    began = world.cluster.clock()
    world.driving(world.site()).run(row.id)
    check(world, row.id)
    first = min(run.submitted_at for run in world.cluster.runs.values())
    assert first >= began + 30


def test_a_silent_backend_leaves_the_ledger_as_it_is(make):
    world = make()
    end(world)
    lose(world)
    away = world.connect()
    away.away = True

    with pytest.raises(BackendUnavailableError):
        rebuilt(world.site(away), lost_in(world), now=world.cluster.clock())

    assert not world.ledger.sweeps()


def test_a_sweep_with_a_living_driver_is_refused(make):
    world = make()
    row = end(world)
    keep(world.home / "root", row, current_owner())
    lose(world)

    with pytest.raises(LeaseHeldError, match="still driven by process"):
        rebuild(world)


def test_a_sweep_of_another_machine_is_refused_there(make):
    world = make()
    row = end(world)
    lose(world)

    with pytest.raises(BackendUnavailableError, match="runs on elsewhere"):
        rebuild(
            world,
            Lost.of(
                replace(read(world.home / "root", row.id), row=replace(row, ended_at=None, host="elsewhere"))
            ),
        )


def test_two_ledgers_sweeps_of_one_id_are_told_apart_or_refused(make):
    world = make(mlflow=True)
    end(world)
    mine = read(world.home / "root", lost_in(world).row.id)
    lose(world, record=True)
    other = end(world)
    assert (other.id, other.nonce == mine.row.nonce) == (mine.row.id, False)
    lose(world, record=True)

    with pytest.raises(ConflictError, match="several sweeps"):
        rebuild(world)
    assert rebuild(world, Lost.of(mine)).parent_run_id == mine.row.parent_run_id


def test_runs_that_may_go_on_out_of_sight_are_not_started_again(make):
    world = make(lambda _job: Script(seconds=99), mlflow=True)
    world.drive_for(world.begin(), 3)
    lose(world)
    (world.home / "root").rename(world.home / "elsewhere")
    world.cluster = FakeCluster(clock=world.cluster.clock)

    with pytest.raises(ConflictError, match="may still run"):
        rebuild(world)


def test_a_file_with_fewer_trials_than_were_started_is_refused(make):
    world = make()
    found = read(world.home / "root", end(world).id)
    lose(world)
    fewer = {"name": "crash", "base": BASE, "space": {"parameters.lr": [0.1]}}
    world.sweep = sweep_from_mapping(fewer, directory=world.home)

    with pytest.raises(
        ConflictError, match=r"trial 1 of sweep .* was started, and the file has only 1 trials"
    ):
        rebuild(world, Lost.of(found))


def test_another_instance_of_the_definition_is_found_by_its_tags(make):
    world = make(mlflow=True)
    end(world)
    site = world.site()
    row = begin(site, now=world.cluster.clock() + 1, new=True).row
    row = world.driving(site).run(row.id)
    lose(world, record=True)

    assert rebuild(world).id == row.id


def test_nothing_is_made_where_nobody_knows_the_sweep(make):
    world = make(mlflow=True)

    with pytest.raises(NotFoundError, match="knows anything of sweep"):
        rebuild(world)
    assert world.site().known_sweeps() == ("", ())


def test_what_was_rebuilt_is_taken_up_again_and_what_was_not_is_refused(make):
    world = make()
    row = end(world)
    with pytest.raises(ConflictError, match="is in the ledger"):
        rebuild(world)
    lose(world)

    assert rebuild(world).id == row.id
    events = world.ledger.events(row.id)
    assert rebuild(world).id == row.id
    assert world.ledger.events(row.id) == events
    assert {event.kind for event in events} == {EventKind.CLAIMED, EventKind.ACCEPTED}


def test_a_sweep_that_was_lost_is_not_started_anew(make):
    world = make()
    end(world)
    lose(world)

    with pytest.raises(ConflictError, match="the ledger has lost it"):
        world.begin()
    assert not world.ledger.sweeps()


def test_points_that_were_chosen_by_what_was_learnt_cannot_be_chosen_again_yet(make):
    objective = {"metric": "loss", "goal": "minimize"}
    world = make(mlflow=True, search={"method": "tpe", "trials": 3}, objective=objective)

    with pytest.raises(SpecError, match="chosen by tpe is not supported yet"):
        rebuild(world)


def test_nobody_is_told_to_rebuild_what_cannot_be(make):
    world = make(
        mlflow=True, search={"method": "tpe", "trials": 3}, objective={"metric": "loss", "goal": "minimize"}
    )
    end(world)
    lose(world)

    with pytest.raises(ConflictError, match="the ledger has lost it") as caught:
        world.begin()
    assert caught.value.hint == "Start another sweep with --new."

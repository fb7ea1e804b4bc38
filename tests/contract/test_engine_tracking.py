"""MLflow that is away delays metrics and submissions and nothing else; at the end no run of a sweep stays open."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlflow
import pytest

from airflows.backends.base import Job
from airflows.errors import TrackingUnavailableError
from airflows.ledger import SweepState
from airflows.testing.crash import Boundaries, Ticks, World
from airflows.testing.fake import Script
from airflows.testing.tracker import FakeTracker
from airflows.tracking import Reading, embedded_uri, open_tracker
from airflows.trial import Reason, State

# What the database is makes no difference here.
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

TRACKED = {"objective": {"metric": "loss", "goal": "minimize"}}
MANY = {"space": {"parameters.seed": list(range(200))}, "limits": {"concurrent": 25}}
HOUR_S = 3600
LONG_S = 300

Make = Callable[..., World]


def one_short(job: Job) -> Script:
    return Script(seconds=1 if job.number == 0 else LONG_S)


# A hiccup


def test_a_hiccup_of_mlflow_neither_stops_scoring_nor_spins(make: Make) -> None:
    """One read fails while other trials run on: it is read again soon, not when all else is done."""

    class Hiccup(FakeTracker):
        def read(self, *args: Any) -> Mapping[str, Reading]:
            self.away = not self.asked["read"]
            try:
                return super().read(*args)
            finally:
                self.away = False

    world = make(one_short, **TRACKED)
    tracker = world.tracker = Hiccup(values={0: 0.5, 1: 1.0, 2: 2.0})
    sweep = world.begin()
    fake = world.connect()
    began = world.cluster.clock()
    closed_at: list[float] = []

    def look() -> None:
        if not closed_at and any(trial.closed for trial in world.ledger.trials(sweep)):
            closed_at.append(world.cluster.clock() - began)

    row = world.driving(world.site(fake), Ticks(dict.fromkeys(range(1, 3000), look))).run(sweep)

    assert row.winner["value"] == 0.5
    assert tracker.asked["read"] == 4
    assert closed_at[0] < 10
    assert fake.waited.count(0) < 5
    assert len(fake.waited) < 2.5 * LONG_S


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_results_wait_for_an_mlflow_that_is_away_for_minutes(make: Make, moment: int) -> None:
    """Whether it goes before the trials end, before their metrics are read, or before the last words."""
    world = make(**TRACKED)
    tracker = world.tracker = FakeTracker(values={0: 0.5, 1: 1.0, 2: 2.0})
    sweep = world.begin()
    fake = world.connect()

    def goes() -> None:
        tracker.away = True

    def comes_back() -> None:
        tracker.away = False

    ticks = Ticks({moment: goes, 40: comes_back})
    row = world.driving(world.site(fake), ticks).run(sweep)

    assert row.state is SweepState.SUCCEEDED
    assert [trial.value for trial in world.ledger.trials(sweep)] == [0.5, 1.0, 2.0]
    assert ticks.notes[-1].startswith("MLflow does not answer.")
    assert fake.waited.count(0) < 5


@pytest.mark.parametrize("moment", [2, 3])
def test_a_driver_whose_trials_have_all_ended_gives_up_on_mlflow_and_loses_nothing(
    make: Make, moment: int
) -> None:
    world = make(**TRACKED)
    tracker = world.tracker = FakeTracker(values={0: 0.5, 1: 1.0, 2: 2.0})
    sweep = world.begin()

    def goes() -> None:
        tracker.away = True

    began = world.cluster.clock()
    with pytest.raises(TrackingUnavailableError):
        world.driving(world.site(), Ticks({moment: goes})).run(sweep)
    assert 300 <= world.cluster.clock() - began < 350
    assert world.ledger.sweep(sweep).ended_at is None

    tracker.away = False
    row = world.drive(Boundaries(), dead_for_sure=True)
    assert (row.state, row.winner["value"]) == (SweepState.SUCCEEDED, 0.5)


# Away for long


def away_for(world: World, seconds: float) -> tuple[str, Ticks]:
    """Drive until MLflow has been away for so long, at its own pace of one answer in twenty seconds."""
    tracker = world.tracker = FakeTracker()
    sweep = world.begin()
    comes_back_at = world.cluster.clock() + seconds

    def time_out() -> None:
        tracker.away = world.cluster.clock() < comes_back_at
        world.cluster.clock.advance(20 if tracker.away else 0)

    tracker.on_create = time_out
    ticks = Ticks(most=20_000)
    world.driving(world.site(), ticks).run(sweep)
    return sweep, ticks


def test_an_hour_without_mlflow_makes_few_events(make: Make) -> None:
    """Two hundred trials wait; the ledger must not tell of each of them every few seconds."""
    world = make(**MANY)
    sweep, ticks = away_for(world, HOUR_S)
    kinds = Counter(event.kind for event in world.ledger.events(sweep))

    assert world.ledger.counts(sweep) == {State.SUCCEEDED: 200}
    assert kinds["unsent"] < 100
    assert set(ticks.notes) == {"MLflow does not answer. Submitting waits for it."}


def test_what_was_waited_for_is_no_longer_said_when_it_has_come(make: Make) -> None:
    world = make(**MANY)
    _, ticks = away_for(world, 60)

    assert 0 < len(ticks.notes) < ticks.count - 5


def test_while_mlflow_is_away_it_is_asked_once_and_not_for_every_batch(make: Make) -> None:
    """Each question costs its time-out, during which nobody looks after what runs."""
    world = make(**MANY)
    tracker = world.tracker = FakeTracker()
    sweep = world.begin()

    def goes() -> None:
        tracker.away = True

    tracker.on_create = goes
    world.drive_for(sweep, 1)

    assert tracker.asked["create_runs"] == 1
    assert world.ledger.counts(sweep) == {State.PENDING: 200}


# With a real store


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, made once: making one takes a second."""
    home = tmp_path_factory.mktemp("store")
    open_tracker(embedded_uri(home), home)
    return home / "mlflow.db"


FAILS = Script(exit_code=1, lines=["ImportError: x"])


def statuses(world: World, sweep: str) -> Counter[str]:
    row = world.ledger.sweep(sweep)
    client = mlflow.MlflowClient(world.tracking_uri)
    runs = client.search_runs([row.experiment_id], f"tags.`airflows.sweep` = '{sweep}'")
    return Counter(f"{run.data.tags['airflows.role']} {run.info.status}" for run in runs)


def test_after_a_halt_no_run_of_a_trial_stays_running(make: Make, empty_store: Path, tmp_path: Path) -> None:
    """Some failed for good, and one that was preempted waits for an attempt that will not come."""

    def scripts(job: Job) -> Script:
        return Script(exit_code=None, word="PREEMPTED") if job.number == 1 else FAILS

    shutil.copy(empty_store, tmp_path / "mlflow.db")
    world = make(scripts, **MANY, **TRACKED)
    world.tracking_uri = embedded_uri(tmp_path)
    row = world.drive(Boundaries(), dead_for_sure=True)

    assert row.state is SweepState.FAILED
    (waiting,) = [t for t in world.ledger.trials(row.id, states=[State.PENDING]) if t.run_id]
    assert waiting.reason is Reason.PREEMPTED
    found = statuses(world, row.id)
    assert found["trial RUNNING"] == 0
    assert found["trial KILLED"] == 1
    assert found["trial FAILED"] == world.ledger.counts(row.id)[State.FAILED] >= 3
    assert found["sweep FAILED"] == 1

"""A person's wish to stop is kept, whatever the driver, the backend and MLflow are doing meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest

from airflows.backends.base import Job
from airflows.engine import drive as drive_module
from airflows.engine import operations
from airflows.engine.drive import Drive
from airflows.engine.driver import Driver
from airflows.ledger import SweepState, Wish
from airflows.testing.crash import Boundaries, Died, Ticks, World
from airflows.testing.fake import FakeBackend, Script
from airflows.testing.tracker import FakeTracker
from airflows.trial import EventKind, State

HUNDRED = {"space": {"parameters.seed": list(range(100))}, "limits": {"concurrent": 4}}
# More than one chunk of the expansion.
MANY = {"space": {"parameters.seed": list(range(900))}, "limits": {"concurrent": 4}}

Make = Callable[..., World]


def for_ever(_job: Job) -> Script:
    return Script(seconds=100_000)


def leave_running(world: World) -> str:
    """Let a driver die while trials run; return the sweep's id."""
    with pytest.raises(Died):
        world.drive(Boundaries(die_if=lambda name: name == "after poll"), dead_for_sure=True)
    return world.ledger.sweeps()[0].id


def leave_unanswered(world: World) -> str:
    """Let a driver die when its jobs are accepted, before it has written that down."""
    with pytest.raises(Died):
        world.drive(Boundaries(die_if=lambda name: name == "after submit"), dead_for_sure=True)
    return world.ledger.sweeps()[0].id


def gone(world: World) -> list[int]:
    """Return the trials whose runs the cluster was told to end."""
    return [run.job.number for run in world.cluster.runs.values() if run.cancelled_at is not None]


class Timer:
    """As `threading.Timer`, at the time of a cluster, which moves while a driver waits."""

    def __init__(self, backend: FakeBackend, seconds: float, call: Callable[[], None]) -> None:
        self._due = backend.clock() + seconds
        self._call = call
        self._backend = backend
        self._wait = backend.wait

    def start(self) -> None:
        self._backend.wait = self.wait

    def cancel(self) -> None:
        self._backend.wait = self._wait

    def wait(self, timeout_s: float) -> None:
        self._wait(timeout_s)
        if self._backend.clock() >= self._due:
            self._call()


@pytest.fixture
def cancel(monkeypatch: pytest.MonkeyPatch) -> Callable[..., operations.CancelOutcome]:
    """`cancel` as a process of its own would do it, on a world's cluster and at its time."""

    def call(world: World, *wanted: str, backend: FakeBackend | None = None) -> operations.CancelOutcome:
        clock = world.cluster.clock
        fake = backend or world.connect()

        def monotonic() -> float:
            # So that whoever asks again and again without waiting comes to an end too.
            clock.advance(1)
            return clock()

        time = SimpleNamespace(time=clock, monotonic=monotonic, sleep=clock.advance)
        monkeypatch.setenv("AIRFLOWS_LEDGER_URL", world.database)
        monkeypatch.setattr(operations, "time", time)
        monkeypatch.setattr(operations, "threading", SimpleNamespace(Timer=partial(Timer, fake)))
        monkeypatch.setattr(operations, "Drive", partial(Drive, clock=clock))
        monkeypatch.setattr(operations, "open_site", lambda *_, **__: world.site(fake, world.open_ledger()))
        return operations.cancel(wanted, home=world.home)

    return call


# The wish is kept


def test_a_pause_while_runs_are_ending_does_not_replace_a_stop(make: Make) -> None:
    """Somebody cancels the sweep, and Ctrl-C of its driver comes before the runs are gone."""

    class Slow(FakeBackend):
        def cancel(self, handles: object) -> None:
            """The runs go on for their grace time."""

    world = make(lambda _job: Script(seconds=5), **MANY)
    sweep = world.begin()
    drive = world.driving(world.site(Slow(world.cluster, world.home / "root")))
    drive.observer = Ticks({2: lambda: world.ledger.wish(sweep, Wish.STOP), 4: drive.pause})
    paused = drive.run(sweep)
    started = len(world.cluster.submissions)
    ended = world.driving(world.site()).run(sweep)

    assert (paused.wish, paused.ended_at) == (Wish.STOP, None)
    assert ended.state is SweepState.CANCELLED
    assert len(world.cluster.submissions) == started == 4
    assert set(world.ledger.counts(sweep)) <= {State.CANCELLED, State.SUCCEEDED}


def test_a_halt_does_not_replace_a_stop(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The person's request comes after the driver has looked for one and before it halts the sweep."""

    def one_fails(job: Job) -> Script:
        return Script(seconds=500) if job.number else Script(exit_code=1)

    world = make(
        one_fails, **HUNDRED | {"limits": {"concurrent": 4, "failed_trials": 1}, "retry": {"max": 0}}
    )
    sweep = world.begin()
    site = world.site()
    apply = site.ledger.apply

    def apply_and_be_overtaken(lease: object, changes: list, *args: object) -> None:
        apply(lease, changes, *args)
        if any(change.event.kind is EventKind.FAILED for change in changes):
            world.ledger.wish(sweep, Wish.STOP)

    monkeypatch.setattr(site.ledger, "apply", apply_and_be_overtaken)
    row = world.driving(site).run(sweep)

    assert (row.wish, row.state) == (Wish.STOP, SweepState.CANCELLED)
    assert world.ledger.counts(sweep) == {State.FAILED: 1, State.CANCELLED: 99}
    assert world.cluster.clock() < 1_700_000_100


@pytest.mark.parametrize(
    ("place", "name", "state", "left"),
    [
        (Driver, "tick", SweepState.CANCELLED, State.CANCELLED),
        (drive_module, "finish", SweepState.FAILED, State.PENDING),
    ],
)
def test_a_stop_that_comes_when_a_sweep_halts_cancels_what_waits_or_is_too_late(
    make: Make, monkeypatch: pytest.MonkeyPatch, place: object, name: str, state: SweepState, left: State
) -> None:
    """After the last look at what is wanted, or when the driver has ended: nothing waits in a cancelled sweep."""
    tree = {"limits": {"concurrent": 1, "failed_trials": 1}, "retry": {"max": 0}}
    world = make(lambda _job: Script(exit_code=1), **HUNDRED | tree)
    sweep = world.begin()
    real = getattr(place, name)

    def overtaken(*args: object, **options: object) -> object:
        made = real(*args, **options) if place is Driver else None
        if made is not False and world.ledger.sweep(sweep).wish is not Wish.STOP:
            world.ledger.wish(sweep, Wish.STOP)
        return made if place is Driver else real(*args, **options)

    monkeypatch.setattr(place, name, overtaken)
    row = world.driving(world.site()).run(sweep)

    assert row.state is state
    assert world.ledger.counts(sweep) == {State.FAILED: 1, left: 99}


def test_taking_over_a_paused_sweep_does_not_replace_a_stop(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person's request comes while the next driver writes that the sweep runs again."""
    world = make(for_ever, **HUNDRED)
    sweep = world.begin()
    assert world.drive_for(sweep, 2).wish is Wish.PAUSED
    site = world.site()
    update = site.ledger.update_sweep

    def update_late(lease: object, **values: object) -> None:
        if values.get("wish") is Wish.RUN:
            world.ledger.wish(sweep, Wish.STOP)
        update(lease, **values)

    monkeypatch.setattr(site.ledger, "update_sweep", update_late)
    row = world.driving(site).run(sweep)

    assert row.state is SweepState.CANCELLED
    assert len(world.cluster.submissions) == 4


# `cancel` does only that


def test_cancelling_a_sweep_ends_its_runs_and_starts_nothing(make: Make, cancel: Callable) -> None:
    world = make(for_ever, **MANY)
    sweep = leave_running(world)
    started = len(world.cluster.submissions)

    assert cancel(world, sweep) == operations.CancelOutcome([sweep], [])
    assert len(world.cluster.submissions) == started
    assert all(run.cancelled_at is not None for run in world.cluster.runs.values())
    assert set(world.ledger.counts(sweep)) == {State.CANCELLED}
    assert world.ledger.sweep(sweep).state is SweepState.CANCELLED


def test_cancelling_a_sweep_that_somebody_resumes_meanwhile_starts_nothing(
    make: Make, cancel: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its wish, what `cancel` would drive is an ordinary sweep."""
    world = make(**HUNDRED)
    sweep = leave_running(world)
    started = len(world.cluster.submissions)
    write = operations.Ledger.wish

    def wish_and_be_overtaken(ledger: operations.Ledger, sweep: str, wish: Wish) -> None:
        write(ledger, sweep, wish)
        write(ledger, sweep, Wish.RUN)

    monkeypatch.setattr(operations.Ledger, "wish", wish_and_be_overtaken)
    outcome = cancel(world, sweep)

    assert len(world.cluster.submissions) == started
    assert [(wanted, str(why)) for wanted, why in outcome.failed] == [
        (sweep, f"{sweep} was resumed before it was cancelled.")
    ]


def test_cancelling_one_trial_leaves_the_others_and_the_sweep_alone(make: Make, cancel: Callable) -> None:
    world = make(for_ever, **HUNDRED)
    sweep = leave_running(world)
    before = world.ledger.sweep(sweep)

    assert cancel(world, f"{sweep}/1", f"{sweep}/50").cancelled == [f"{sweep}/1", f"{sweep}/50"]
    assert gone(world) == [1]
    cancelled = world.ledger.trials(sweep, states=[State.CANCELLED])
    assert [trial.number for trial in cancelled] == [1, 50]
    row = world.ledger.sweep(sweep)
    assert (row.wish, row.ended_at, row.expanded) == (before.wish, None, before.expanded)
    assert len(world.cluster.submissions) == 4


def test_cancelling_a_waiting_trial_of_an_ended_sweep_is_done_at_once(make: Make, cancel: Callable) -> None:
    """Nothing drives such a sweep; should it be resumed, the trial is not started."""
    world = make(lambda _job: Script(exit_code=1, lines=["ValueError: no"]), **HUNDRED)
    sweep = world.drive(Boundaries(), dead_for_sure=True).id
    assert world.ledger.trials(sweep, numbers=[99])[0].state is State.PENDING

    assert cancel(world, f"{sweep}/99") == operations.CancelOutcome([f"{sweep}/99"], [])
    assert world.ledger.cancel_requests(sweep) == {99}


@pytest.mark.parametrize("leave", [leave_running, leave_unanswered])
def test_a_trial_is_cancelled_whether_or_not_its_submission_was_answered(
    make: Make, cancel: Callable, leave: Callable[[World], str]
) -> None:
    world = make(for_ever, **HUNDRED)
    sweep = leave(world)

    assert cancel(world, f"{sweep}/0").failed == []
    assert world.ledger.trials(sweep, numbers=[0])[0].state is State.CANCELLED
    assert gone(world) == [0]


# MLflow or the backend is away


@pytest.mark.parametrize("leave", [leave_running, leave_unanswered])
def test_runs_of_a_sweep_end_though_mlflow_is_away(
    make: Make, cancel: Callable, leave: Callable[[World], str]
) -> None:
    world = make(for_ever, **HUNDRED)
    world.tracker = FakeTracker()
    sweep = leave(world)
    world.tracker.away = True
    outcome = cancel(world, sweep)

    assert all(run.cancelled_at is not None for run in world.cluster.runs.values())
    assert set(world.ledger.counts(sweep)) == {State.CANCELLED}
    # What is left is to end the runs in MLflow, which is said, and done by whoever comes next.
    assert "MLflow does not answer" in str(outcome.failed[0][1])
    world.tracker.away = False
    assert world.driving(world.site()).run(sweep).state is SweepState.CANCELLED
    assert "running" not in world.tracker.runs.values()


@pytest.mark.parametrize("leave", [leave_running, leave_unanswered])
def test_one_trials_run_ends_though_mlflow_is_away(
    make: Make, cancel: Callable, leave: Callable[[World], str]
) -> None:
    world = make(for_ever, **HUNDRED)
    world.tracker = FakeTracker()
    sweep = leave(world)
    world.tracker.away = True

    assert cancel(world, f"{sweep}/0") == operations.CancelOutcome([f"{sweep}/0"], [])
    assert gone(world) == [0]


@pytest.mark.parametrize("part", ["", "/0"])
def test_a_backend_that_does_not_answer_ends_the_patience_and_not_the_wish(
    make: Make, cancel: Callable, part: str
) -> None:
    world = make(for_ever, **HUNDRED)
    sweep = leave_running(world)
    away = world.connect()
    away.away = True
    began = world.cluster.clock()
    outcome = cancel(world, sweep + part, backend=away)

    assert 120 <= world.cluster.clock() - began < 130
    assert outcome.cancelled == []
    assert [wanted for wanted, _ in outcome.failed] == [sweep + part]
    assert "the fake cluster does not answer" in str(outcome.failed[0][1])
    assert "The request stands" in str(outcome.failed[0][1])
    assert outcome.failed[0][1].exit_code == 3
    world.drive_for(sweep, 5)
    assert gone(world) == ([0] if part else [0, 1, 2, 3])

"""Pausing, resuming and cancelling real processes on this machine, as the Python API and the commands do it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from airflows.backends.local.processes import marked
from airflows.backends.local.runs import here
from airflows.drivers import current_owner
from airflows.engine import operations
from airflows.engine.drive import Drive
from airflows.engine.observers import Silent, Snapshot
from airflows.engine.site import open_site
from airflows.engine.start import Begun
from airflows.errors import BackendUnavailableError, LeaseHeldError
from airflows.ledger import SweepRow, SweepState, Wish
from airflows.sweepfile import LoadedSweep, sweep_from_mapping
from airflows.testing.crash import Ticks
from airflows.testing.gated import Gated
from airflows.trial import State

PATIENCE_S = 60


class Workshop(Gated):
    """A gated sweep, and what is seen of it."""

    def close(self) -> None:
        self.open_gate()
        super().close()

    @property
    def sweep(self) -> LoadedSweep:
        return sweep_from_mapping(self.tree(), directory=self.home)

    def alive(self, sweep: str) -> Sequence[int]:
        """The trials of which some process lives."""
        return [n for n in range(3) if marked(f"{self.home}/runs/{sweep}/{n}/a0")]

    def states(self, sweep: str) -> Sequence[State]:
        return [trial.state for trial in self.ledger.trials(sweep)]


class Watch(Silent):
    """Calls somebody once when two trials run, and says so."""

    def __init__(self, workshop: Workshop, then: Callable[[], None] = lambda: None) -> None:
        self._workshop, self._then = workshop, then
        self.drive: Drive | None = None
        self.is_there = threading.Event()

    def begun(self, _begun: Begun, drive: Drive) -> None:
        self.drive = drive

    def pause(self) -> None:
        assert self.drive is not None
        self.drive.pause()

    def on_tick(self, snapshot: Snapshot) -> None:
        two_run = snapshot.counts.get(State.RUNNING) == 2 and len(self._workshop.ran()) == 2
        if two_run and not self.is_there.is_set():
            self._then()
            self.is_there.set()


@pytest.fixture
def workshop(home: Path) -> Iterator[Workshop]:
    made = Workshop(home)
    yield made
    for row in made.ledger.sweeps():
        if row.ended_at is None:
            operations.cancel([row.id], home=home)
    made.close()


@pytest.fixture
def paused(workshop: Workshop) -> SweepRow:
    """A sweep that nobody drives any more, and whose first two trials run."""
    watch = Watch(workshop)
    watch._then = watch.pause
    return operations.start(workshop.sweep, home=workshop.home, observer=watch, on_begun=watch.begun).row


def test_pausing_leaves_the_runs_and_resuming_takes_them_over(workshop: Workshop, paused: SweepRow) -> None:
    assert (paused.wish, paused.ended_at, paused.lease_owner) == (Wish.PAUSED, None, "")
    assert workshop.alive(paused.id) == [0, 1]

    workshop.open_gate()
    ended = operations.resume(paused.id, home=workshop.home).row
    assert ended.state is SweepState.SUCCEEDED
    assert workshop.ran() == ["0.0", "1.0", "2.0"]


def test_starting_a_paused_sweep_again_takes_it_over(workshop: Workshop, paused: SweepRow) -> None:
    workshop.open_gate()
    driven = operations.start(workshop.sweep, home=workshop.home)

    assert (driven.row.id, driven.is_new) == (paused.id, False)
    assert (driven.row.wish, driven.row.state) == (Wish.RUN, SweepState.SUCCEEDED)
    assert workshop.ran() == ["0.0", "1.0", "2.0"]


def test_a_drive_that_was_paused_before_it_began_starts_nothing(workshop: Workshop) -> None:
    """Ctrl-C while MLflow is opened."""
    row = operations.start(workshop.sweep, home=workshop.home, on_begun=lambda _, drive: drive.pause()).row

    assert (row.wish, row.ended_at) == (Wish.PAUSED, None)
    assert workshop.ran() == []


def test_cancelling_one_trial_of_a_paused_sweep_leaves_it_paused(
    workshop: Workshop, paused: SweepRow
) -> None:
    outcome = operations.cancel([f"{paused.id}/0"], home=workshop.home)

    assert outcome == operations.CancelOutcome([f"{paused.id}/0"], [])
    assert workshop.alive(paused.id) == [1]
    assert workshop.states(paused.id) == [State.CANCELLED, State.RUNNING, State.PENDING]
    row = workshop.ledger.sweep(paused.id)
    assert (row.wish, row.ended_at, row.lease_owner) == (Wish.PAUSED, None, "")

    workshop.open_gate()
    operations.resume(paused.id, home=workshop.home)
    assert workshop.states(paused.id) == [State.CANCELLED, State.SUCCEEDED, State.SUCCEEDED]
    assert workshop.ran() == ["0.0", "1.0", "2.0"]


@pytest.mark.parametrize(("lr", "gone"), [(0.2, 1), (0.3, 2)])
def test_cancelling_by_override_ends_what_has_it(
    workshop: Workshop, paused: SweepRow, lr: float, gone: int
) -> None:
    outcome = operations.cancel([paused.id], home=workshop.home, where={"parameters.lr": lr})

    assert outcome.cancelled == [f"{paused.id}/{gone}"]
    assert workshop.alive(paused.id) == [n for n in (0, 1) if n != gone]
    cancelled = [n for n, state in enumerate(workshop.states(paused.id)) if state is State.CANCELLED]
    assert cancelled == [gone]


def test_cancelling_a_sweep_that_nobody_drives_ends_its_processes(
    workshop: Workshop, paused: SweepRow
) -> None:
    assert operations.cancel([paused.id], home=workshop.home).cancelled == [paused.id]
    assert workshop.alive(paused.id) == []
    row = workshop.ledger.sweep(paused.id)
    assert (row.state, workshop.states(paused.id)) == (SweepState.CANCELLED, [State.CANCELLED] * 3)
    assert workshop.ran() == ["0.0", "1.0"]


@pytest.mark.parametrize("part", ["", "/1"])
def test_a_living_driver_carries_out_what_somebody_else_cancels(workshop: Workshop, part: str) -> None:
    watch = Watch(workshop)
    driven: list[SweepRow] = []

    def drive() -> None:
        driven.append(operations.start(workshop.sweep, home=workshop.home, observer=watch).row)

    thread = threading.Thread(target=drive)
    thread.start()
    assert watch.is_there.wait(PATIENCE_S)
    (row,) = workshop.ledger.sweeps()
    outcome = operations.cancel([row.id + part], home=workshop.home)

    assert outcome == operations.CancelOutcome([row.id + part], [])
    assert 1 not in workshop.alive(row.id)
    workshop.open_gate()
    thread.join(PATIENCE_S)
    assert driven[0].lease_owner == ""
    states = [State.CANCELLED] * 3 if not part else [State.SUCCEEDED, State.CANCELLED, State.SUCCEEDED]
    assert workshop.states(row.id) == states


# Another machine with the same ledger

ELSEWHERE = "elsewhere.example.org"


@contextlib.contextmanager
def elsewhere() -> Iterator[None]:
    """As if this process were on another machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: ELSEWHERE)
        here.cache_clear()
        yield
    here.cache_clear()


def carried_on(workshop: Workshop, sweep: str) -> object:
    return operations.carry_on(sweep, home=workshop.home, observer=Ticks(most=5))


def resumed(workshop: Workshop, sweep: str) -> object:
    return operations.resume(sweep, home=workshop.home, sets=["limits.concurrent=3"], observer=Ticks(most=5))


def resumed_in_the_background(workshop: Workshop, sweep: str) -> object:
    return operations.resume(sweep, home=workshop.home, backend="local", drive=False)


def started_again(workshop: Workshop, _sweep: str) -> object:
    return operations.start(workshop.sweep, home=workshop.home, observer=Ticks(most=5))


def driven(workshop: Workshop, sweep: str) -> object:
    """When the other machine's lease ran out after all else had been looked at."""
    site = open_site(workshop.sweep, workshop.home)
    with contextlib.closing(site.ledger):
        return Drive(site, Ticks(most=5)).run(sweep)


WAYS = [carried_on, resumed, resumed_in_the_background, started_again, driven]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("begun", [True, False])
def test_only_the_machine_of_its_trials_drives_a_sweep_on(
    workshop: Workshop, way: Callable[[Workshop, str], object], begun: bool, request: pytest.FixtureRequest
) -> None:
    if begun:
        row = request.getfixturevalue("paused")
    else:
        row = operations.start(workshop.sweep, home=workshop.home, drive=False).row
    before = workshop.ledger.trials(row.id)
    host = current_owner().host
    # So that whoever drives it all the same comes to an end.
    workshop.open_gate()
    with elsewhere(), pytest.raises(BackendUnavailableError) as raised:
        way(workshop, row.id)

    assert f"only {host} can drive it. Run the same command on {host}." in str(raised.value)
    assert raised.value.exit_code == 3
    assert workshop.ledger.sweep(row.id) == row
    assert workshop.ledger.trials(row.id) == before


def test_a_sweep_is_left_behind_only_for_its_own_machine(workshop: Workshop, paused: SweepRow) -> None:
    workshop.ledger.wish(paused.id, Wish.RUN)
    later = time.time() + 3600
    with elsewhere():
        assert operations.unattended(home=workshop.home, now=later) == []
    assert [row.id for row in operations.unattended(home=workshop.home, now=later)] == [paused.id]


def test_while_its_own_machine_drives_another_is_told_who_does(workshop: Workshop, paused: SweepRow) -> None:
    now, host = time.time(), current_owner().host
    lease = workshop.ledger.hold(paused.id, current_owner(), now=now, ttl_s=30, token="own")
    with elsewhere():
        for way in WAYS:
            with pytest.raises(LeaseHeldError, match=host):
                way(workshop, paused.id)
    workshop.ledger.release(lease)


@pytest.mark.parametrize("part", ["", "/1"])
def test_cancelling_from_another_machine_leaves_the_request_for_the_right_one(
    workshop: Workshop, paused: SweepRow, part: str
) -> None:
    wanted = paused.id + part
    with elsewhere():
        outcome = operations.cancel([wanted], home=workshop.home)
    assert [(text, error.exit_code) for text, error in outcome.failed] == [(wanted, 3)]
    assert current_owner().host in str(outcome.failed[0][1])
    assert workshop.alive(paused.id) == [0, 1]

    assert operations.cancel([wanted], home=workshop.home) == operations.CancelOutcome([wanted], [])
    assert workshop.alive(paused.id) == ([0] if part else [])


def test_what_runs_nowhere_is_cancelled_anywhere_and_then_taken_up_there(workshop: Workshop) -> None:
    """Else the sweeps of a machine that is gone for good would stay open for ever."""
    row = operations.start(workshop.sweep, home=workshop.home, drive=False).row
    with elsewhere():
        assert operations.cancel([row.id], home=workshop.home).cancelled == [row.id]
        workshop.open_gate()
        again = operations.resume(row.id, home=workshop.home, failed=True).row
    assert (again.state, again.host) == (SweepState.SUCCEEDED, ELSEWHERE)
    assert workshop.ran() == ["0.0", "1.0", "2.0"]

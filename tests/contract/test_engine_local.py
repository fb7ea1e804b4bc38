"""Pausing, resuming and cancelling real processes on this machine, as the Python API and the commands do it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from airflows.backends.local.processes import marked
from airflows.engine import operations
from airflows.engine.drive import Drive
from airflows.engine.observers import Silent, Snapshot
from airflows.engine.start import Begun
from airflows.ledger import Ledger, SweepRow, SweepState, Wish, open_ledger
from airflows.sweepfile import LoadedSweep, sweep_from_mapping
from airflows.trial import State

PATIENCE_S = 60


class Workshop:
    """A home, and a sweep of three trials that each wait for a line from a pipe, two at a time."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self.home = home
        os.mkfifo(home / "gate")
        # Open for both, so that neither side waits for the other to open it.
        self._gate = os.open(home / "gate", os.O_RDWR)
        self.ledger: Ledger = open_ledger(home)

    def close(self) -> None:
        self.open_gate()
        os.close(self._gate)
        self.ledger.close()

    @property
    def sweep(self) -> LoadedSweep:
        command = f'echo "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" >>{self.home}/ran; read -r _ <{self.home}/gate'
        tree = {
            "name": "local",
            "base": {
                "experiment_name": "local",
                "command": command,
                "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
                "parameters": {"lr": 0.0},
            },
            "space": {"parameters.lr": [0.1, 0.2, 0.3]},
            "limits": {"concurrent": 2},
            "tracking": {"uri": "none"},
            "backend": {"type": "local", "grace": 1},
        }
        return sweep_from_mapping(tree, directory=self.home)

    def open_gate(self) -> None:
        """Let all trials end that run now or later."""
        os.write(self._gate, b"\n" * 100)

    def ran(self) -> Sequence[str]:
        """The attempts that were started, each as often as it was."""
        path = self.home / "ran"
        return sorted(path.read_text().split()) if path.exists() else []

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

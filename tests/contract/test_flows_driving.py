"""Driving a sweep on behalf of a flow run: let go, looked at, taken over, stopped. Real processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import airflows
from airflows.engine import operations
from airflows.engine.observers import Silent
from airflows.errors import LeaseHeldError, NotFoundError
from airflows.flowruns import driving as driving_module
from airflows.flowruns.driving import Driving
from airflows.flowruns.request import SweepRequest, Wanted, read_request
from airflows.ledger import SweepState, Wish
from airflows.testing.gated import Gated
from airflows.testing.waiting import until
from airflows.trial import State

PATIENCE_S = 60


class Place(Gated):
    """A gated sweep that flow runs drive."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.said: list[str] = []
        self.threads: list[threading.Thread] = []

    def wanted(self, instance: str = "a", **fields) -> Wanted:
        return read_request(SweepRequest(self.tree(**fields)), home=self.home, instance=instance)

    def driving(self, wanted: Wanted) -> Driving:
        return Driving(wanted, self.home, Silent(), self.said.append)

    def start(self, driving: Driving) -> threading.Thread:
        thread = threading.Thread(target=driving.run)
        thread.start()
        self.threads.append(thread)
        return thread

    def wait_for(self, is_so: Callable[[], object]) -> None:
        until(is_so, "what the test waits for", patience_s=PATIENCE_S, pause_s=0.02)

    def close(self) -> None:
        for row in self.ledger.sweeps():
            if row.ended_at is None:
                operations.cancel([row.id], home=self.home)
        for thread in self.threads:
            thread.join(PATIENCE_S)
        super().close()


@pytest.fixture
def place(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(driving_module, "_LOOK_AGAIN_S", 0.05)
    made = Place(home)
    yield made
    made.close()


@pytest.fixture
def running(place: Place) -> Driving:
    """A sweep that is being driven, two of its trials at work."""
    driving = place.driving(place.wanted())
    place.start(driving)
    place.wait_for(lambda: len(place.ran()) == 2)
    return driving


def left(place: Place, running: Driving) -> str:
    """Let the first driver let go; return the sweep."""
    running.let_go()
    # Its end, not the lease: somebody who looks on may have taken that already.
    place.threads[0].join(PATIENCE_S)
    assert not place.threads[0].is_alive()
    return running.sweep


def test_let_go_leaves_trials_and_wish_as_they_are(place: Place, running: Driving) -> None:
    sweep = left(place, running)
    row = place.ledger.sweep(sweep)
    assert row.wish is Wish.RUN
    assert row.ended_at is None
    place.open_gate()
    place.start(place.driving(Wanted(sweep))).join(PATIENCE_S)
    assert place.ledger.sweep(sweep).state is SweepState.SUCCEEDED
    assert place.ran() == ["0.0", "1.0", "2.0"]


def test_what_was_let_go_is_unattended_after_the_lease_time_only(place: Place, running: Driving) -> None:
    sweep = left(place, running)
    created = place.ledger.sweep(sweep).created_at
    assert operations.unattended(home=place.home, now=created + 1) == []
    assert [row.id for row in operations.unattended(home=place.home, now=created + 31)] == [sweep]


def test_what_is_driven_is_not_unattended(place: Place, running: Driving) -> None:
    assert operations.unattended(home=place.home, now=time.time()) == []
    row = place.ledger.sweep(running.sweep)
    assert row.lease_until is not None
    # A driver on another machine that no longer renews its lease.
    assert [each.id for each in operations.unattended(home=place.home, now=row.lease_until + 1)] == [row.id]


def test_what_a_person_let_go_of_is_left_alone(place: Place, running: Driving) -> None:
    sweep = left(place, running)
    place.ledger.wish(sweep, Wish.PAUSED)
    assert operations.unattended(home=place.home, now=time.time() + 3600) == []


def test_a_second_driver_looks_on_and_takes_over(place: Place, running: Driving) -> None:
    second = place.driving(Wanted(running.sweep))
    thread = place.start(second)
    place.wait_for(lambda: any("looks on" in line for line in place.said))
    left(place, running)
    place.open_gate()
    thread.join(PATIENCE_S)
    assert place.ledger.sweep(second.sweep).state is SweepState.SUCCEEDED
    assert len(place.ran()) == 3
    assert sum("looks on" in line for line in place.said) == 1


def test_who_looks_on_waits_while_a_person_lets_the_sweep_rest(place: Place, running: Driving) -> None:
    second = place.driving(Wanted(running.sweep))
    thread = place.start(second)
    place.wait_for(lambda: any("looks on" in line for line in place.said))
    place.ledger.wish(running.sweep, Wish.PAUSED)
    left(place, running)
    place.wait_for(lambda: any("let go of by a person" in line for line in place.said))
    row = place.ledger.sweep(running.sweep)
    assert (row.wish, row.lease_owner) == (Wish.PAUSED, "")
    place.ledger.wish(running.sweep, Wish.RUN)
    place.open_gate()
    thread.join(PATIENCE_S)
    assert place.ledger.sweep(running.sweep).state is SweepState.SUCCEEDED
    assert len(place.ran()) == 3


def test_who_is_not_to_look_on_is_told_who_drives(place: Place, running: Driving) -> None:
    other = Driving(Wanted(running.sweep), place.home, Silent(), place.said.append, looks_on=False)
    with pytest.raises(LeaseHeldError):
        other.run()
    assert place.ledger.sweep(running.sweep).ended_at is None


def test_trials_that_were_stopped_before_the_sweep_was_written_down_never_run(place: Place) -> None:
    early = place.driving(place.wanted())
    with pytest.raises(NotFoundError):
        early.stop_trials()
    place.open_gate()
    early.run()
    assert place.ledger.sweep(early.sweep).state is SweepState.CANCELLED
    assert place.ran() == []


def test_stopping_the_trials_cancels_the_sweep(place: Place, running: Driving) -> None:
    running.stop_trials()
    place.wait_for(lambda: place.ledger.sweep(running.sweep).ended_at)
    assert place.ledger.sweep(running.sweep).state is SweepState.CANCELLED
    assert {trial.state for trial in place.ledger.trials(running.sweep)} == {State.CANCELLED}
    running.stop_trials()
    assert place.ledger.sweep(running.sweep).state is SweepState.CANCELLED


def test_the_same_instance_attaches_and_another_is_a_new_sweep(place: Place) -> None:
    place.open_gate()
    first = place.driving(place.wanted("monday"))
    first.run()
    again = place.driving(place.wanted("monday"))
    again.run()
    assert again.sweep == first.sweep
    assert len(place.ran()) == 3
    assert any("has ended already" in line for line in place.said)
    other = place.driving(place.wanted("tuesday"))
    other.run()
    assert other.sweep != first.sweep
    assert len(place.ran()) == 6


def test_a_driver_that_carries_on_tries_nothing_again_that_failed(place: Place) -> None:
    wanted = place.wanted(base={**TRAIN, "command": f"echo x >>{place.home}/ran; false"}, retry={"max": 0})
    place.driving(wanted).run()
    ended = place.ledger.sweep(wanted.id)
    assert ended.state is SweepState.FAILED
    assert airflows.carry_on(wanted.id).state == "failed"
    assert place.ledger.sweep(wanted.id) == ended
    assert len(place.ran()) == 3


def test_a_halt_and_a_cancellation_are_finished_as_they_were_wanted(place: Place, running: Driving) -> None:
    sweep = left(place, running)
    place.ledger.wish(sweep, Wish.STOP)
    assert airflows.carry_on(sweep).state == "cancelled"
    assert len(place.ran()) == 2


def test_the_python_api_cancels_from_another_thread(running: Driving) -> None:
    assert airflows.cancel(running.sweep) == [running.sweep]
    assert airflows.attach(running.sweep).state == "cancelled"
    assert airflows.unattended() == []
    with pytest.raises(airflows.AirflowsError, match="there is no sweep 'nothing'"):
        airflows.cancel("nothing")


def test_a_sweep_in_the_ledger_is_wanted_by_its_id_or_name(
    place: Place, running: Driving, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A directory of the same name is no sweep.yaml.
    (place.home / "gated").mkdir()
    monkeypatch.chdir(place.home)
    for name in (running.sweep, "gated"):
        assert read_request(SweepRequest(name), home=place.home, instance="") == Wanted(running.sweep)
    with pytest.raises(airflows.SpecError, match="come too late"):
        read_request(SweepRequest("gated", overrides=("parameters.lr=1",)), home=place.home, instance="")


TRAIN = {
    "experiment_name": "flow",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"lr": 0.0},
}

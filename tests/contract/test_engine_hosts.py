"""A host on which different trials keep failing: avoided, named, and not forgotten with the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from airflows.backends.base import Job
from airflows.engine.observers import Snapshot
from airflows.engine.reopen import reopen
from airflows.errors import BackendUnavailableError
from airflows.hosts import avoided_hosts
from airflows.ledger import SweepState
from airflows.testing.crash import Boundaries, Died, Ticks, World, check
from airflows.testing.fake import FakeBackend, Script
from airflows.trial import Handle, State

Make = Callable[..., World]
HOSTS = ("n1", "n2", "n3", "n4")
FORTY = {
    "space": {"parameters.seed": list(range(40))},
    "limits": {"concurrent": 8},
    "retry": {"wait": "1s"},
}
WORDS = "not on n4, where trials keep failing"


class Hosts:
    """Gives each job the next host that it does not avoid; on a bad one it ends badly."""

    def __init__(self, bad: Mapping[str, Script]) -> None:
        self.bad = bad
        self.placed: list[tuple[Job, str]] = []

    def __call__(self, job: Job) -> Script:
        free = [host for host in HOSTS if host not in job.avoid]
        host = free[len(self.placed) % len(free)]
        self.placed.append((job, host))
        return self.bad.get(host) or Script(seconds=2.0, host=host)

    def on(self, host: str) -> list[Job]:
        return [job for job, where in self.placed if where == host]


BROKEN = {
    "n4": Script(seconds=0.5, exit_code=1, host="n4", lines=("RuntimeError: the driver does not answer",))
}


class Saying(Ticks):
    """Keeps the hosts that people were told of."""

    def __init__(self) -> None:
        super().__init__()
        self.told: set[str] = set()

    def on_tick(self, snapshot: Snapshot) -> None:
        super().on_tick(snapshot)
        self.told |= {each.host for each in snapshot.avoided}


def claims(world: World, sweep: str) -> Sequence[str]:
    return [event.detail for event in world.ledger.events(sweep) if event.kind == "claimed"]


def run(world: World, ticks: Ticks | None = None) -> str:
    return world.driving(world.site(), ticks).run(world.begin()).id


@pytest.mark.parametrize(
    "end", [BROKEN["n4"], Script(seconds=0.5, exit_code=None, word="NODE_FAIL", host="n4")]
)
def test_a_bad_host_is_avoided_and_every_trial_succeeds_elsewhere(make: Make, end: Script) -> None:
    hosts, saying = Hosts({"n4": end}), Saying()
    world = make(hosts, **FORTY)
    sweep = run(world, saying)

    assert world.ledger.counts(sweep) == {State.SUCCEEDED: 40}
    assert 3 <= len(hosts.on("n4")) <= 8
    assert saying.told == {"n4"}
    (found,) = avoided_hosts(world.ledger.ended_attempts(sweep))
    assert (found.host, found.well, found.failed) == ("n4", 0, len({job.number for job in hosts.on("n4")}))
    details = claims(world, sweep)
    assert set(details) == {"", WORDS}
    # From the first word on, nothing was sent there.
    assert set(details[details.index(WORDS) :]) == {WORDS}
    check(world, sweep)


def test_the_next_driver_knows_it_from_the_ledger(make: Make) -> None:
    hosts = Hosts(BROKEN)
    world = make(hosts, **FORTY)

    def has_learnt(name: str) -> bool:
        return name == "after submit" and any(job.avoid for job, _ in hosts.placed)

    with pytest.raises(Died):
        world.drive(Boundaries(die_if=has_learnt), dead_for_sure=True)
    before = len(hosts.placed)
    sweep = world.drive(Boundaries(), dead_for_sure=True).id

    later = hosts.placed[before:]
    assert len(later) > 10
    assert {job.avoid for job, _ in later} == {("n4",)}
    check(world, sweep)


def test_an_error_of_the_program_makes_no_host_suspect(make: Make) -> None:
    bad = Script(seconds=0.5, exit_code=1, lines=("ValueError: no such fold",))

    def scripts(job: Job) -> Script:
        host = HOSTS[(job.number * 7 + job.attempt) % 4]
        return Script(**{**fields(bad), "host": host}) if job.number % 2 else Script(host=host)

    def fields(script: Script) -> dict[str, object]:
        return {name: getattr(script, name) for name in ("seconds", "exit_code", "lines")}

    world, saying = make(scripts, **FORTY), Saying()
    sweep = run(world, saying)

    assert world.ledger.counts(sweep) == {State.SUCCEEDED: 20, State.FAILED: 20}
    assert saying.told == set()
    assert {run.job.avoid for run in world.cluster.runs.values()} == {()}


def test_taking_failed_trials_up_again_gives_every_host_another_chance(make: Make) -> None:
    mended: list[bool] = []
    hosts = Hosts(dict(BROKEN))
    world = make(hosts, **(FORTY | {"retry": {"max": 0}}))
    sweep = run(world)
    row = world.ledger.sweep(sweep)
    assert row.state is SweepState.FAILED
    assert world.ledger.counts(sweep)[State.FAILED] >= 3

    mended.append(True)
    hosts.bad = {}
    before = len(hosts.placed)
    world.cluster.clock.advance(5)
    reopen(world.site(), row, failed=True, code="", now=world.cluster.clock())
    ended = world.driving(world.site()).run(sweep)

    assert ended.state is SweepState.SUCCEEDED
    assert {job.avoid for job, _ in hosts.placed[before:]} == {()}
    assert avoided_hosts(world.ledger.ended_attempts(sweep)) == ()


def test_relief_and_a_bad_host_are_both_told(make: Make) -> None:
    oom = Script(seconds=4.0, exit_code=1, host="n1", lines=("MemoryError",))
    hosts = Hosts(BROKEN)

    def scripts(job: Job) -> Script:
        return oom if (job.number, job.attempt) == (0, 0) else hosts(job)

    relief = {"wait": "10s", "on_out_of_memory": {"parameters.batch": 8}}
    world = make(scripts, **(FORTY | {"retry": relief}))
    sweep = run(world)

    details = world.ledger.claim_details(sweep, 0)
    assert details[(0, 1)].endswith(f'{{"parameters.batch":8}}; {WORDS}')
    assert world.ledger.counts(sweep) == {State.SUCCEEDED: 40}


class Queueing(FakeBackend):
    """Keeps what it is asked of those that wait; does not answer the first time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kept: list[tuple[int, Sequence[str]]] = []
        self.silences = 1

    def avoid(self, handles: Sequence[Handle], hosts: Sequence[str]) -> None:
        if self.silences:
            self.silences -= 1
            message = "the fake cluster does not answer."
            raise BackendUnavailableError(message)
        self.kept.append((len(handles), tuple(hosts)))


def test_what_waits_in_a_backends_queue_already_is_kept_from_the_host(make: Make) -> None:
    hosts = Hosts(BROKEN)

    def scripts(job: Job) -> Script:
        # Some have waited since before anything was known of the host.
        return Script(queued=60.0, host="n1") if job.number in {1, 2} and not job.attempt else hosts(job)

    world = make(scripts, **FORTY)
    backend = Queueing(world.cluster, world.home / "root")
    sweep = world.driving(world.site(backend)).run(world.begin()).id

    assert world.ledger.counts(sweep) == {State.SUCCEEDED: 40}
    ((count, told),) = backend.kept
    assert (count >= 2, told) == (True, ("n4",))

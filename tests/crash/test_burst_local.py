"""Bursting between a fake cluster and this machine, whose runs are real: a driver dies at any boundary."""

from collections import Counter, defaultdict
from dataclasses import dataclass

import pytest

from airflows.backends.local import LocalBackend, LocalSettings
from airflows.ledger import SweepState
from airflows.testing.bursting import QUEUE, BurstWorld, WatchedQueue
from airflows.testing.crash import BASE, CALLS, Boundaries, Died, Watched, check, make_world
from airflows.testing.fake import FakeCluster, QueueingBackend, Script
from airflows.trial import Reason

LOCAL = "local"
# The first attempt of trial 0 fails, wherever it runs.
COMMAND = """\
echo "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" >>"$RUNS"
[ "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" != 0.0 ] || exit 1
"""
PLACES = {
    QUEUE: {"type": QUEUE, "name": QUEUE, "concurrent": 2},
    LOCAL: {"type": LOCAL, "concurrent": 1},
}
GLANCE_S = 0.02


def scripts(job):
    """The queue is stuck for all but trial 0, whose first attempt fails."""
    if job.number == 0:
        return Script(seconds=2, exit_code=int(job.attempt == 0))
    return Script(seconds=2, queued=1.0 if job.number == 3 else 40.0)


class LocalOnAClock(LocalBackend):
    """This machine, on which the cluster's time goes by while somebody waits for a run."""

    def __init__(self, settings, home, cluster_clock):
        super().__init__(settings, home)
        self.cluster_clock = cluster_clock

    def wait(self, timeout_s):
        if self._runs:
            super().wait(min(timeout_s, GLANCE_S))
        self.cluster_clock.advance(max(timeout_s, 0.05))


@dataclass
class Both:
    """The fake cluster and this machine, as the crash suite looks at them."""

    fake: FakeCluster
    home: object

    @property
    def clock(self):
        return self.fake.clock

    @property
    def started_here(self):
        return [path.name for path in (self.home / "claims").glob("*")]

    @property
    def ran_here(self):
        path = self.home / "runs.txt"
        return Counter(path.read_text().split()) if path.exists() else Counter()

    @property
    def runs(self):
        return {**self.fake.runs, **dict.fromkeys(self.started_here)}

    @property
    def submissions(self):
        return [*self.fake.submissions, *self.started_here]


class At:
    """The boundaries as one place crosses them: their names tell which."""

    def __init__(self, boundaries, place):
        self._boundaries, self._place = boundaries, place
        self.live = boundaries.live

    def cross(self, name):
        self._boundaries.cross(f"{name} on {self._place}")


class LocalWorld(BurstWorld):
    def _place(self, name, boundaries):
        if name == LOCAL:
            made = LocalOnAClock(LocalSettings(grace=1), self.home, self.cluster.clock)
            return Watched(made, CALLS, At(boundaries, name))
        return WatchedQueue(QueueingBackend(self.cluster.fake, self.home / name), CALLS, At(boundaries, name))


def world_of(home, first):
    then = LOCAL if first == QUEUE else QUEUE
    base = {**BASE, "command": COMMAND, "env_variables": {"RUNS": str(home / "runs.txt")}}
    tree = {"base": base, "space": {"parameters.lr": [0.1, 0.2, 0.3, 0.4]}, "limits": {}}
    made = make_world(home, scripts=scripts, tree=tree)
    return LocalWorld(
        cluster=Both(made.cluster, home),
        settings={"first": PLACES[first], "then": PLACES[then], "after": 5},
        **{name: getattr(made, name) for name in ("home", "sweep", "database")},
    )


def require_one_place(world, sweep):
    """Each attempt ran where the ledger says, once, and nowhere else."""
    both = world.cluster
    assert not set(both.fake.runs) & set(both.started_here)
    by_place = defaultdict(set)
    for attempt in world.ledger.attempts(sweep):
        by_place[attempt.backend].add(attempt.token)
        assert attempt.handle.startswith(f"{attempt.backend}:")
        if attempt.reason == Reason.MOVED:
            seen = both.fake.runs[attempt.token].observe(both.clock())
            assert (attempt.backend, seen.started_at) == (QUEUE, None)
    assert by_place == {QUEUE: set(both.fake.runs), LOCAL: set(both.started_here)}
    here = [a for a in world.ledger.attempts(sweep) if a.backend == LOCAL]
    assert both.ran_here == Counter(f"{a.number}.{a.attempt}" for a in here)


class DieAt:
    """Dies at the n-th crossing of a boundary of one name."""

    def __init__(self, name, nth):
        self._name, self._left = name, nth

    def __call__(self, name):
        self._left -= name == self._name
        return self._left == 0


@pytest.mark.parametrize(("first", "step"), [(QUEUE, 1), (LOCAL, 3)])
def test_dying_at_any_boundary_leaves_each_trial_in_one_place(tmp_path, first, step):
    counted = Boundaries()
    world = world_of(tmp_path / "count", first)
    row = world.drive(counted, dead_for_sure=True)
    crossed = Counter(counted.names)
    moved = [a for a in world.ledger.attempts(row.id) if a.reason == Reason.MOVED]
    require_one_place(world, row.id)
    world.close()

    assert {f"after submit on {place}" for place in PLACES} <= set(crossed)
    assert ("before withdraw on queue" in crossed) == bool(moved) == (first == QUEUE)
    deaths = [die_and_go_on(tmp_path / str(k), first, *at) for k, at in enumerate(moments(crossed)[::step])]
    assert sum(deaths) > 0.8 * len(deaths)


def moments(crossed):
    """Return each boundary as (name, which time); of looks the first: how many there are is chance."""
    return [
        (name, nth)
        for name, times in crossed.items()
        for nth in range(1, 2 if " poll " in name else times + 1)
    ]


def die_and_go_on(home, first, *at):
    """Die at a boundary, then start again; return whether it came to that boundary."""
    world = world_of(home, first)
    died = False
    try:
        world.drive(Boundaries(die_if=DieAt(*at)), dead_for_sure=True)
    except Died:
        died = True
    row = world.drive(Boundaries(), dead_for_sure=True)

    assert row.state is SweepState.SUCCEEDED
    check(world, row.id)
    require_one_place(world, row.id)
    world.close()
    return died

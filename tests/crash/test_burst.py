"""Bursting under deaths, delays, refusals and silences: nothing is lost, and no trial is in two places."""

import random
from collections import defaultdict

import pytest

from airflows.engine.start import begin
from airflows.errors import SubmitAmbiguousError, SubmitUnsentError
from airflows.ledger import SweepState
from airflows.testing.bursting import CLOUD, QUEUE, burst_world
from airflows.testing.crash import Boundaries, Died, Ticks, check
from airflows.testing.fake import Script
from airflows.trial import Reason, State

POINTS = {"space": {"parameters.lr": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]}}
FEW = {"space": {"parameters.lr": [0.1, 0.2, 0.3, 0.4]}}
SEEDS = range(20)


def scripts(job):
    """The queue is stuck for some; trial 0 fails once; the others succeed."""
    if job.place == CLOUD:
        return Script(seconds=3, host="cloud-1")
    if (job.number, job.attempt) == (0, 0):
        return Script(seconds=2, exit_code=1, lines=("Traceback", "ValueError: no luck"), host="node-1")
    return Script(seconds=3, queued=1.0 if job.number % 2 else 60.0, host="node-1")


def require_one_place(world, sweep):
    """No token was handed to both places, each attempt was where the ledger says, and none ran beside another."""
    by_name = world.cluster.by_name
    assert not set(by_name[QUEUE].runs) & set(by_name[CLOUD].runs)
    spans = defaultdict(list)
    for attempt in world.ledger.attempts(sweep):
        run = by_name[attempt.backend].runs[attempt.token]
        assert attempt.handle == f"{attempt.backend}:fake:{attempt.token}"
        seen = run.observe(world.cluster.clock())
        if attempt.reason == Reason.MOVED and world.withdraws:
            assert seen.started_at is None
        if seen.started_at is not None:
            spans[attempt.number].append((seen.started_at, seen.ended_at))
    for own in spans.values():
        for (_, ended), (began, _) in zip(sorted(own), sorted(own)[1:], strict=False):
            assert ended <= began


def moved(world, sweep):
    return [a for a in world.ledger.attempts(sweep) if a.reason == Reason.MOVED]


def drive_on(world, boundaries):
    """Drive to the end, with a new driver whenever one dies; return (the row, how many died)."""
    deaths = 0
    for each in (*boundaries, Boundaries()):
        try:
            return world.drive(each, dead_for_sure=True), deaths
        except Died:
            deaths += 1
    raise AssertionError


def test_an_undisturbed_sweep_moves_what_waits_too_long(tmp_path):
    world = burst_world(tmp_path, scripts, POINTS)

    row = world.drive(Boundaries(), dead_for_sure=True)

    assert row.state is SweepState.SUCCEEDED
    check(world, row.id)
    require_one_place(world, row.id)
    story = moved(world, row.id)
    assert story
    assert {(a.backend, a.state, a.started_at) for a in story} == {(QUEUE, State.STOPPED, None)}
    assert {trial.errors for trial in world.ledger.trials(row.id) if trial.number} == {0}
    assert [a.backend for a in world.ledger.attempts(row.id, story[0].number)] == [QUEUE, CLOUD]


@pytest.mark.parametrize("withdraws", [True, False])
def test_dying_at_every_boundary_leaves_each_trial_in_one_place(tmp_path, *, withdraws):
    counted = Boundaries()
    burst_world(tmp_path / "count", scripts, FEW, withdraws=withdraws).drive(counted, dead_for_sure=True)
    step = 1 if withdraws else 3

    assert len(counted.names) > 60
    # A look changes nothing: dying there is dying at the boundary before it.
    boundaries = [k for k, name in enumerate(counted.names, start=1) if not name.endswith(" poll")]
    for die_at in boundaries[::step]:
        world = burst_world(tmp_path / str(die_at), scripts, FEW, withdraws=withdraws)
        with pytest.raises(Died):
            world.drive(Boundaries(die_at), dead_for_sure=True)
        row = world.drive(Boundaries(), dead_for_sure=True)

        assert row.state is SweepState.SUCCEEDED
        check(world, row.id)
        require_one_place(world, row.id)
        world.close()


class Chance:
    """What goes wrong at random in one world."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.away_until = {QUEUE: 0.0, CLOUD: 0.0}

    def script(self, job):
        rng = random.Random(f"{self.rng.random()}")
        code, word = rng.choice([(0, "")] * 6 + [(1, ""), (None, "PREEMPTED")])
        wait = rng.choice([0.0, 0.0, 2.0, 5.0, 6.0, 30.0])
        lines = (f"ValueError: {job.token} has no luck",)
        return Script(rng.uniform(0.1, 8), code, word, lines, wait, host=f"{job.place}-{rng.randrange(3)}")

    def prepare(self, name, fake):
        fake.refuse = lambda _job: self.refusal()
        fake.on_submit = lambda: self.stay_away(name, fake)
        wait, answer = fake.wait, fake._answer

        def waited(timeout_s):
            wait(timeout_s)
            if self.rng.random() < 0.02:
                self.away_until[name] = fake.clock() + self.rng.choice([1, 4, 12])

        def answered():
            fake.away = fake.clock() < self.away_until[name]
            answer()

        fake.wait, fake._answer = waited, answered

    def stay_away(self, name, fake):
        if self.rng.random() < 0.05:
            self.away_until[name] = fake.clock() + self.rng.choice([2, 7])
        fake.lose_replies = int(self.rng.random() < 0.1)

    def refusal(self):
        draw = self.rng.random()
        if draw < 0.15:
            return SubmitUnsentError("the queue is full.")
        return SubmitAmbiguousError("nobody answered.") if draw < 0.25 else None


@pytest.mark.parametrize("seed", SEEDS)
def test_by_chance_no_trial_is_lost_or_in_two_places(tmp_path, seed):
    chance = Chance(seed)
    lag_s = chance.rng.choice([0.0, 3.0])
    fields = {"withdraws": seed % 3 > 0, "visible_after_s": lag_s, "prepare": chance.prepare}
    tree = {**POINTS, "retry": {"max": 9, "max_without_progress": 50, "wait": "1s"}}
    tree["limits"] = {"identical_failures": 0}
    world = burst_world(tmp_path, chance.script, tree, **fields)

    dying = [Boundaries(chance.rng.randrange(2, 60)) for _ in range(chance.rng.randrange(4))]
    row, _ = drive_on(world, dying)

    trials = world.ledger.trials(row.id)
    assert {trial.state for trial in trials} <= {State.SUCCEEDED, State.FAILED}
    assert len(trials) == 7
    check(world, row.id)
    require_one_place(world, row.id)


def test_the_chances_include_what_they_are_for(tmp_path):
    met = set()
    for seed in SEEDS[:4]:
        chance = Chance(seed)
        tree = {**POINTS, "retry": {"max": 9, "max_without_progress": 50, "wait": "1s"}}
        world = burst_world(tmp_path / str(seed), chance.script, tree, prepare=chance.prepare)
        row, _ = drive_on(world, [])
        met |= {event.reason for event in world.ledger.events(row.id)}

    assert {Reason.MOVED, Reason.NO_ROOM} <= met


def test_nothing_is_moved_on_ignorance(tmp_path):
    world = burst_world(tmp_path, scripts, POINTS)
    fakes = {}
    world.prepare = fakes.setdefault
    drive = world.driving(world.site())

    row = begin(drive.site, now=world.cluster.clock()).row

    def go_away():
        fakes[QUEUE].away = True

    def look():
        assert not moved(world, row.id)
        queued = [t for t in world.ledger.trials(row.id) if t.state is State.QUEUED and t.backend == QUEUE]
        assert queued
        fakes[QUEUE].away = False

    drive.observer = Ticks({2: go_away, 25: look})
    row = drive.run(row.id)

    assert row.state is SweepState.SUCCEEDED
    assert moved(world, row.id)
    require_one_place(world, row.id)

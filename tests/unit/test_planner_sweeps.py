"""Whole sweeps on a cluster that is a function, driven by the planner and a roster."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from airflows.backends.base import Observation, Phase
from airflows.engine.roster import Roster
from airflows.failures import classify
from airflows.ledger.records import Wish
from airflows.planner import Limits, Rules, Sighting, Tally, View, plan
from airflows.retry import RetryPolicy
from airflows.trial import Event, EventKind, Handle, State, Trial, advance

NOW = 1_700_000_000.0
RETRY = RetryPolicy(max=3, max_without_progress=3, wait_s=10)
IMPORT_ERROR = ("Traceback (most recent call last):", '  File "train.py", line 1', "ImportError: no module")


def rules(**limits):
    return Rules(Limits(**{"concurrent": 4, **limits}), RETRY, since=NOW - 1000, settle_s=30, idempotent=False, backend="fake")  # fmt: skip


def ended(exit_code, word):
    return Observation(Phase.ENDED, exit_code, word)


@dataclass
class Simulation:
    """A sweep on a cluster that does what `outcome(number, attempt)` says, driven by `plan` and a roster.

    Attributes:
        outcome: returns (exit code, word, log lines) of an attempt that ended, or None while it runs on.
        silent: returns whether the backend does not answer at a tick.
    """

    trials: int
    rules: Rules
    outcome: object
    silent: object = lambda _tick: False
    wish: Wish = Wish.RUN
    halted: str = ""
    spent: bool = False
    now: float = NOW
    cancels: frozenset = frozenset()
    claims: list = field(default_factory=list)
    story: dict = field(default_factory=dict)

    def __post_init__(self):
        fresh = [Trial("digits-3fa9c1", number, number, 0) for number in range(self.trials)]
        self.roster = Roster({}, Tally())
        self.roster.add(fresh, {t.number: {} for t in fresh})
        self.story = {t.number: [t] for t in fresh}

    def tick(self, tick):
        made = plan(self.view(tick))
        self.check(made)
        for before, event in made.events:
            self.move(before, event)
        for before in made.claims:
            self.claims.append((self.now, before.number))
            claimed = self.move(before, Event(EventKind.CLAIMED, self.now))
            self.move(
                claimed, Event(EventKind.ACCEPTED, self.now, facts={"handle": Handle(f"h{before.number}")})
            )
        if made.halt:
            self.halted, self.spent, self.wish = made.halt, made.spent, Wish.HALT
        return made.done

    def check(self, made):
        numbers = [t.number for t, _ in made.events] + [t.number for t in made.claims]
        assert len(numbers) == len(set(numbers))
        running = self.wish is Wish.RUN and not self.halted and not made.halt
        assert running or not made.claims

    def move(self, before, event):
        after = advance(before, event)
        self.story[after.number].append(after)
        self.roster.move(before, after, event)
        assert len(self.roster.in_flight) <= self.rules.limits.concurrent
        return after

    def view(self, tick):
        room = self.rules.limits.concurrent
        ready = self.roster.all_pending(3) if self.wish is Wish.STOP else self.roster.ready(self.now, room)
        known = {t.number for t in ready}
        in_flight = list(self.roster.in_flight.values())
        return View(
            now=self.now,
            began_at=NOW,
            wish=self.wish,
            halted=self.halted,
            in_flight=in_flight,
            sightings={} if self.silent(tick) else dict(self.look(in_flight)),
            ready=[*ready, *self.roster.pending(self.cancels - known)],
            waiting=self.roster.waiting,
            exhausted=True,
            cancels=self.cancels,
            tally=self.roster.tally,
            running_accelerator_s=0.0,
            rules=self.rules,
        )

    def look(self, in_flight):
        for each in in_flight:
            if each.state is State.STOPPING:
                yield each.number, Sighting(ended(143, "killed"))
                continue
            answer = self.outcome(each.number, each.attempt)
            if answer is None:
                yield each.number, Sighting(Observation(Phase.RUNNING, started_at=self.now))
                continue
            observation = ended(*answer[:2])
            bad = answer[0] != 0 or answer[1]
            yield (
                each.number,
                Sighting(observation, verdict=classify(observation, answer[2]) if bad else None),
            )

    def run(self, most=3000):
        for tick in range(most):
            if self.tick(tick):
                return self
            self.now += 30.0
        message = f"not done after {most} ticks: {self.roster.counts}"
        raise AssertionError(message)

    @property
    def states(self):
        return Counter(states[-1].state for states in self.story.values())


def test_a_missing_module_starts_no_more_than_the_limit_and_what_was_in_flight():
    """100 trials, four at once, all with the same ImportError."""
    done = Simulation(100, rules(), lambda _n, _a: (1, "", IMPORT_ERROR)).run()

    assert len(done.claims) <= 3 + 4
    assert done.halted.endswith("and none succeeded: error: ImportError: no module")
    assert not done.spent


def test_one_success_first_and_the_same_error_is_retried_and_fails_each_trial():
    def outcome(number, _attempt):
        return (0, "", ()) if number == 0 else (1, "", IMPORT_ERROR)

    done = Simulation(20, rules(concurrent=1), outcome).run()

    assert done.states == {State.SUCCEEDED: 1, State.FAILED: 19}
    assert len(done.claims) == 1 + 19 * 2


def test_the_limit_of_trials_lets_started_ones_have_their_retries():
    done = Simulation(10, rules(trials=4), lambda n, a: (0, "", ()) if a or n % 2 else (1, "", [f"E: {'abcdefghij'[n]}"])).run()  # fmt: skip

    assert done.states == {State.SUCCEEDED: 4, State.PENDING: 6}
    assert done.spent


def test_a_reboot_that_loses_every_run_does_not_end_the_sweep():
    done = Simulation(12, rules(), lambda _n, attempt: (None, "", ()) if attempt == 0 else (0, "", ())).run()

    assert done.states == {State.SUCCEEDED: 12}
    assert done.halted == ""


outcomes = st.sampled_from(
    [
        None,
        (0, "", ()),
        (1, "", ("ValueError: one",)),
        (2, "", ("KeyError: 'two'",)),
        (137, "OUT_OF_MEMORY", ()),
        (143, "PREEMPTED", ()),
        (None, "", ()),
        (1, "TIMEOUT", ()),
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    trials=st.integers(0, 12),
    concurrent=st.integers(1, 5),
    seed=st.randoms(use_true_random=False),
    limits=st.fixed_dictionaries(
        {},
        optional={
            "trials": st.integers(1, 8),
            "failed_trials": st.integers(1, 5),
            "identical_failures": st.integers(0, 4),
            "wall_time_s": st.sampled_from([60.0, 600.0]),
            "cancels": st.booleans(),
        },
    ),
    choices=st.lists(outcomes, min_size=1, max_size=6).filter(lambda made: made != [None]),
    stop_at=st.none() | st.integers(0, 30),
    cancels=st.frozensets(st.integers(0, 12), max_size=3),
)
def test_any_sweep_comes_to_a_sound_end(trials, concurrent, seed, limits, choices, stop_at, cancels):
    def outcome(_number, _attempt):
        return seed.choice(choices)

    def silent(_tick):
        return seed.random() < 0.2

    world = Simulation(trials, rules(concurrent=concurrent, **limits), outcome, silent)
    for tick in range(5000):
        if tick == stop_at:
            world.wish = Wish.STOP
        if tick == 2:
            world.cancels = cancels
        if world.tick(tick):
            break
        world.now += 30.0

    assert not world.roster.in_flight
    left = world.states
    if world.wish is Wish.STOP:
        assert set(left) <= {State.SUCCEEDED, State.FAILED, State.STOPPED, State.CANCELLED}
    elif not world.halted:
        assert set(left) <= {State.SUCCEEDED, State.FAILED, State.CANCELLED}
    assert +world.roster.counts == left
    started = {number for _, number in world.claims}
    assert world.roster.tally.started == len(started) <= limits.get("trials", trials)
    assert all(len(states) == states[-1].version + 1 for states in world.story.values())

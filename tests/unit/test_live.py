"""What is kept of a sweep while it is followed: costs, causes, the best so far and its curve."""

import random

import pytest

from airflows.engine.following import goal_of
from airflows.ledger.following import FollowedAttempt, FollowedEnd
from airflows.report.live import Account, Finishes, Goal, sparkline, thinned
from airflows.spec import SweepSpec

LOSS = Goal("loss", is_minimized=True)


def attempt(number: int, *, tried: int = 0, ended: float | None = 10.0, signature: str = "", **fields):
    given = {"state": "failed" if signature else "succeeded", "reason": "error" if signature else ""}
    given |= {"message": signature, "started_at": 0.0, "accelerators": 2} | fields
    return FollowedAttempt(number=number, attempt=tried, ended_at=ended, signature=signature, **given)


def ended(
    number: int, value: float | None, *, at: float = 1.0, state: str = "succeeded", closed: bool = True
):
    return FollowedEnd(number, state, at, value, closed)


def test_what_is_seen_twice_is_counted_once():
    account = Account()
    for _ in range(3):
        account.put([attempt(0), attempt(1, signature="boom")])
    assert account.ended_s == 40.0
    assert [(cause.attempts, cause.example) for cause in account.causes()] == [(1, "1.0")]


def test_what_runs_costs_until_now_and_then_what_it_took():
    account = Account()
    account.put([attempt(0, ended=None, state="running")])
    assert (account.ended_s, account.accelerator_s(30.0)) == (0.0, 60.0)
    account.put([attempt(0, ended=40.0)])
    assert (account.ended_s, account.accelerator_s(99.0)) == (80.0, 80.0)


def test_what_never_ran_costs_nothing():
    account = Account()
    account.put([attempt(0, started_at=None), attempt(1, started_at=None, ended=None)])
    assert account.accelerator_s(99.0) == 0.0


def test_the_most_frequent_cause_comes_first_and_attempts_of_one_trial_count_each():
    account = Account()
    account.put([attempt(0, signature="rare"), *(attempt(1, tried=n, signature="often") for n in range(3))])
    assert [(cause.message, cause.attempts) for cause in account.causes()] == [("often", 3), ("rare", 1)]


def test_a_failure_without_an_error_counts_too():
    account = Account()
    account.put([attempt(0, state="failed", reason="preempted", message="taken")])
    assert [(cause.reason, cause.attempts) for cause in account.causes()] == [("preempted", 1)]


@pytest.mark.parametrize("is_minimized", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_the_curve_is_the_best_so_far_in_whatever_order_values_come(seed, is_minimized):
    chance = random.Random(seed)
    ends = [ended(n, chance.choice([None, chance.random()]), at=chance.random()) for n in range(40)]
    finishes = Finishes(Goal("loss", is_minimized))
    for start in range(0, 40, 7):
        finishes.put(ends[start : start + 7])
        finishes.curve()
    finishes.put(chance.sample(ends, 20))

    best = min if is_minimized else max
    values = [end.value for end in sorted(ends, key=lambda end: end.ended_at) if end.value is not None]
    assert finishes.curve() == [best(values[: at + 1]) for at in range(len(values))]
    assert finishes.best[0] == best(values)
    assert finishes.since(0.5) == sum(end.ended_at >= 0.5 for end in ends)


def test_of_equals_the_first_is_the_best():
    finishes = Finishes(LOSS)
    finishes.put([ended(2, 0.5, at=2.0), ended(3, 0.5)])
    assert finishes.best == (0.5, 3)


def test_when_the_best_value_changes_another_trial_may_be_the_best():
    finishes = Finishes(LOSS)
    finishes.put([ended(1, 0.5), ended(2, 0.7, at=2.0)])
    finishes.put([ended(1, 0.9)])
    assert (finishes.best, finishes.curve()) == ((0.7, 2), [0.9, 0.7])
    finishes.put([ended(2, None, at=2.0)])
    assert (finishes.best, finishes.curve()) == ((0.9, 1), [0.9])


@pytest.mark.parametrize(
    ("take", "best"), [("last", (0.5, 1)), ("best", (0.1, 2)), ({"mean_of_last": 3}, (0.5, 1))]
)
def test_a_trial_that_was_stopped_early_is_the_best_only_where_the_best_value_counts(take, best):
    tree = {"name": "s", "base": "train.yaml", "space": {"parameters.lr": [1]}}
    spec = SweepSpec.model_validate(
        tree | {"objective": {"metric": "loss", "goal": "minimize", "take": take}}
    )
    finishes = Finishes(goal_of(spec))
    finishes.put([ended(1, 0.5), ended(2, 0.1, state="stopped"), ended(3, 0.01, state="failed")])
    assert finishes.best == best


def test_a_trial_is_open_until_its_metric_was_read():
    finishes = Finishes(LOSS)
    finishes.put([ended(0, None, closed=False)])
    assert (finishes.open, finishes.best) == ({0}, None)
    finishes.put([ended(0, 0.5)])
    assert (finishes.open, finishes.best) == (set(), (0.5, 0))


def test_without_a_goal_there_is_no_best():
    finishes = Finishes(None)
    finishes.put([ended(0, 0.5)])
    assert (finishes.best, finishes.curve(), finishes.since(0.0)) == (None, [], 1)


def test_thinning_keeps_the_ends():
    assert thinned(range(10_000), 3) == [0, 5000, 9999]
    assert thinned([1.0], 3) == [1.0]


@pytest.mark.parametrize(
    ("values", "width", "drawn"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([7, 0], 8, "█▁"),
        ([1, 1, 1], 8, "▁▁▁"),
        ([1], 8, ""),
        ([], 8, ""),
        ([0, 1], 1, ""),
        ([0, 1], -3, ""),
        ([-1.7e308, 1.7e308], 8, "▁█"),
        ([0.0, 5e-324], 8, "▁▁"),
    ],
)
def test_a_sparkline_is_drawn_from_lowest_to_highest(values, width, drawn):
    assert sparkline(values, width) == drawn

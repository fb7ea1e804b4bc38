"""Which override values tell failed trials from the others: never by chance, never half true."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflows.report.separation import separating


def trials(key, values):
    return [{key: value} for value in values]


def told(these, others):
    found = separating(these, others)
    return None if found is None else str(found)


@pytest.mark.parametrize(
    ("these", "others", "expected"),
    [
        ([64, 128, 64, 96], [8, 16, 32, 8, 16], "batch >= 64"),
        ([1, 2, 2, 1], [3, 4, 5, 4, 5], "batch <= 2"),
        ([4, 4, 4, 4], [1, 2, 8, 16, 1, 8], "batch = 4"),
        (["adam"] * 4, ["sgd", "lion"] * 4, "batch = adam"),
        ([True] * 5, [False] * 5, "batch = true"),
        (["a", "b", "a", "b"], ["c", "d"] * 4, "batch = a or b"),
    ],
)
def test_a_clean_cut_is_told(these, others, expected):
    assert told(trials("batch", these), trials("batch", others)) == expected


def test_two_keys_together_are_told_when_neither_alone_will_do():
    grid = [
        {"batch": b, "width": w, "lr": lr} for b in (8, 64) for w in (1, 2) for lr in (0.1, 0.2, 0.3, 0.4)
    ]
    failed = [t for t in grid if t["batch"] == 64 and t["width"] == 2]
    others = [t for t in grid if t not in failed]
    assert told(failed, others) in {"batch = 64 and width = 2", "batch >= 64 and width >= 2"}


@pytest.mark.parametrize(
    ("these", "others"),
    [
        ([64], [8, 16, 32]),
        ([64, 65], [8, 16]),
        ([1, 5, 9, 3], [2, 6, 8, 4]),
        ([], [1, 2]),
        ([1, 2], []),
        ([2, 2, 2, 2], [2, 1, 1, 1]),
    ],
)
def test_what_chance_may_do_or_is_not_clean_is_not_told(these, others):
    assert told(trials("batch", these), trials("batch", others)) is None


def test_a_key_that_some_trials_do_not_have_can_still_tell_them_apart():
    assert told([{"opt": "sgd", "momentum": 0.9}] * 4, [{"opt": "adam"}] * 6) in {
        "momentum = 0.9",
        "opt = sgd",
    }


def test_true_is_not_one():
    assert told(trials("x", [True] * 5), trials("x", [1] * 5)) == "x = true"


def test_values_of_any_kind_are_compared():
    assert told(trials("x", [[1, {"a": 2}]] * 5), trials("x", [[1, {"a": 3}]] * 5)) == 'x = [1, {"a": 2}]'


@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(2, 12))
def test_what_is_told_holds_for_these_and_for_no_other(seed, failed, passed):
    chance = random.Random(seed)
    both = [
        {"a": chance.choice([1, 2, 3.5, "x"]), "b": chance.random(), "c": chance.choice([True, False])}
        for _ in range(failed + passed)
    ]
    these, others = both[:failed], both[failed:]
    found = separating(these, others)
    if found is not None:
        assert all(map(found.holds, these))
        assert not any(map(found.holds, others))


def test_random_failures_are_seldom_given_a_cause():
    chance = random.Random(1)
    told_of = 0
    for _ in range(300):
        both = [{f"p{k}": chance.random() for k in range(4)} for _ in range(12)]
        told_of += separating(both[:4], both[4:]) is not None
    assert told_of <= 15

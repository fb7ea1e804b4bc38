"""Points that are drawn: from seed and number alone, and none twice."""

import itertools
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflows.errors import MissingExtraError
from airflows.search.draws import Shuffle
from airflows.sweepfile import sweep_from_mapping

BASE = {
    "experiment_name": "demo",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"lr": 0.01, "batch": 32, "opt": "adam", "wd": 0},
}
MIXED = {
    "parameters.opt": ["adam", "sgd"],
    "parameters.lr": {"min": 1e-5, "max": 1e-1, "log": True},
    "parameters.wd": {"min": 0.0, "max": 0.5, "when": {"parameters.opt": "adam"}},
    "parameters.batch": {"min": 16, "max": 256},
}
METHODS = ["random", "sobol"]


def sweep(space, method="random", trials=20, seed=7, **fields):
    search = {"method": method, "trials": trials, "seed": seed}
    return sweep_from_mapping(
        {"name": "demo", "base": BASE, "space": space, "search": search, **fields}, directory=Path()
    )


def points(*args, **fields):
    return [point.overrides for point in sweep(*args, **fields).expansion.points()]


@given(st.integers(1, 300), st.integers(0, 2**64))
def test_a_shuffle_holds_every_number_once(count, seed):
    shuffle = Shuffle(count, seed)

    assert sorted(shuffle[number] for number in range(count)) == list(range(count))


def test_a_shuffle_is_not_the_order_it_came_from_and_differs_with_the_seed():
    orders = [[Shuffle(50, seed)[number] for number in range(50)] for seed in range(20)]

    assert len({tuple(order) for order in orders}) == 20
    assert list(range(50)) not in orders
    firsts = [Shuffle(4, seed)[0] for seed in range(400)]
    assert all(60 < firsts.count(number) < 140 for number in range(4))


def test_a_shuffle_of_astronomic_length_is_no_effort():
    assert 0 <= Shuffle(10**300, 1)[10**299] < 10**300
    with pytest.raises(IndexError):
        Shuffle(10, 1)[10]


@pytest.mark.parametrize("method", METHODS)
def test_draws_depend_on_the_seed_alone(method):
    assert points(MIXED, method) == points(MIXED, method)
    assert points(MIXED, method) != points(MIXED, method, seed=8)
    assert points(MIXED, method, trials=5) == points(MIXED, method)[:5]


@pytest.mark.parametrize("method", METHODS)
def test_draws_go_on_from_anywhere(method):
    expansion = sweep(MIXED, method, trials=150).expansion
    whole = list(expansion.points())

    assert all(list(expansion.points(start)) == whole[start:] for start in (0, 1, 63, 64, 65, 149, 150, 151))
    assert expansion.count() == 150


def test_the_first_draws_are_these():
    """A change here changes the points of every sweep that people have."""
    finite = {"parameters.opt": ["a", "b", "c"], "parameters.batch": {"min": 1, "max": 4}}

    assert [tuple(row.values()) for row in points(MIXED, trials=3)] == [
        ("sgd", 3.37774551765e-05, 74),
        ("sgd", 5.17991139254e-05, 64),
        ("adam", 0.000232465769016, 0.0102266824748, 248),
    ]
    assert [tuple(row.values()) for row in points(finite, trials=5)] == [
        ("c", 2),
        ("c", 3),
        ("b", 3),
        ("a", 2),
        ("a", 4),
    ]


@pytest.mark.parametrize("method", METHODS)
def test_draws_keep_to_their_domains(method):
    rows = points(MIXED, method, trials=300)

    assert all(1e-5 <= row["parameters.lr"] <= 1e-1 for row in rows)
    assert all(type(row["parameters.batch"]) is int and 16 <= row["parameters.batch"] <= 256 for row in rows)
    assert all(("parameters.wd" in row) == (row["parameters.opt"] == "adam") for row in rows)
    assert 120 < sum(row["parameters.opt"] == "adam" for row in rows) < 180
    assert 60 < sum(row["parameters.lr"] < 1e-4 for row in rows) < 90


def test_sobol_spreads_evenly():
    space = {"parameters.lr": {"min": 0.0, "max": 1.0}, "parameters.wd": {"min": 0.0, "max": 1.0}}
    cells = [tuple(int(value * 8) for value in row.values()) for row in points(space, "sobol", trials=64)]

    assert len(set(cells)) == 64


def test_random_draws_of_a_key_do_not_depend_on_the_other_keys():
    alone = points({"parameters.lr": MIXED["parameters.lr"]})
    together = points(MIXED)

    assert [row["parameters.lr"] for row in alone] == [row["parameters.lr"] for row in together]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "space",
    [
        {"parameters.opt": ["a", "b", "c"], "parameters.batch": [1, 2, 3, 4]},
        {"parameters.opt": ["a", "b", "c"], "parameters.batch": {"min": 1, "max": 4}},
        {"parameters.opt": ["a", "b", "c"], "parameters.batch": {"min": 1, "max": 4, "log": True}},
    ],
)
def test_a_space_that_can_be_counted_is_drawn_to_its_last_point_without_repeats(method, space):
    made = sweep(space, method, trials=50)
    rows = [tuple(point.overrides.values()) for point in made.expansion.points()]

    assert sorted(rows) == list(itertools.product("abc", (1, 2, 3, 4)))
    assert made.expansion.count() == 12
    assert [n.message for n in made.notices] == ["There are only 12 points, not 50."]


@pytest.mark.parametrize("method", METHODS)
def test_a_point_without_its_continuous_key_is_drawn_once(method):
    space = {"parameters.opt": ["adam", "sgd"], "parameters.wd": MIXED["parameters.wd"]}
    rows = points(space, method, trials=60)

    assert sum(row == {"parameters.opt": "sgd"} for row in rows) == 1
    assert len({tuple(row.items()) for row in rows}) == 60


@pytest.mark.parametrize("method", METHODS)
def test_included_rows_are_tried_first_and_not_drawn_again(method):
    space = {"parameters.opt": ["a", "b"], "parameters.batch": [1, 2]}
    include = [{"parameters.batch": 2, "parameters.opt": "b"}, {"parameters.lr": 5}]
    made = sweep(space, method, trials=10, include=include)
    rows = [point.overrides for point in made.expansion.points()]

    assert rows[:2] == include
    assert len(rows) == made.expansion.count() == 5
    assert points(space, method, trials=10, include=include)[2:4] == rows[2:4]


@pytest.mark.parametrize("method", METHODS)
def test_rules_hold_for_draws(method):
    rows = points(MIXED, method, trials=50, exclude=[{"parameters.opt": "sgd"}])

    assert {row["parameters.opt"] for row in rows} == {"adam"}


@pytest.mark.parametrize("method", METHODS)
def test_draws_end_when_a_rule_leaves_one_point(method):
    space = {"parameters.opt": ["adam", "sgd"], "parameters.wd": MIXED["parameters.wd"]}

    assert points(space, method, trials=5, exclude=[{"parameters.opt": "adam"}]) == [
        {"parameters.opt": "sgd"}
    ]


def test_sobol_without_scipy_names_the_extra(monkeypatch):
    monkeypatch.setattr("airflows.search.draws.find_spec", lambda _name: None)

    with pytest.raises(MissingExtraError, match="scipy") as caught:
        sweep(MIXED, "sobol")
    assert caught.value.hint == "Run: pip install 'airflows[stats]'"


def test_loading_a_sobol_sweep_does_not_import_scipy(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "scipy"]:
        monkeypatch.delitem(sys.modules, name)
    sweep(MIXED, "sobol", exclude=[{"parameters.opt": "sgd"}])

    assert "scipy" not in sys.modules

"""The points of a sweep: which, in which order, how many."""

import itertools
import time
from pathlib import Path

import pytest

from airflows.errors import SpecError
from airflows.space import expand
from airflows.sweepfile import sweep_from_mapping

BASE = {
    "experiment_name": "demo",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"lr": 0.01, "batch": 32, "opt": "adam", "wd": 0, "model.name": "small"},
}


def sweep(**fields):
    return sweep_from_mapping({"name": "demo", "base": BASE, **fields}, directory=Path())


def points(**fields):
    return [point.overrides for point in expand(sweep(**fields)).points()]


def short(rows):
    """Overrides without what they all begin with."""
    return [{key.removeprefix("parameters."): value for key, value in row.items()} for row in rows]


def test_the_first_key_varies_slowest():
    rows = points(space={"parameters.opt": ["a", "b"], "parameters.lr": [1, 2], "parameters.batch": [3, 4]})

    assert [tuple(row.values()) for row in rows] == list(itertools.product("ab", (1, 2), (3, 4)))
    assert list(rows[0]) == ["parameters.opt", "parameters.lr", "parameters.batch"]


def test_coupled_keys_go_together():
    rows = points(
        space={"parameters.opt, compute.num_accelerators": [["a", 1], ["b", 8]], "parameters.lr": [1, 2]}
    )

    assert [tuple(row.values()) for row in rows] == [("a", 1, 1), ("a", 1, 2), ("b", 8, 1), ("b", 8, 2)]


def test_coupled_keys_may_have_a_condition():
    both = {"values": [[1, 2], [3, 4]], "when": {"parameters.opt": "sgd"}}
    rows = points(space={"parameters.opt": ["adam", "sgd"], "parameters.lr, parameters.batch": both})

    assert short(rows) == [
        {"opt": "adam"},
        {"opt": "sgd", "lr": 1, "batch": 2},
        {"opt": "sgd", "lr": 3, "batch": 4},
    ]


def test_a_key_with_dots_is_written_in_quotes():
    assert points(space={"parameters.'model.name'": ["large"]}) == [{"parameters.'model.name'": "large"}]
    assert points(space={'parameters."model.name"': ["large"]}) == [{"parameters.'model.name'": "large"}]
    assert sweep(space={"parameters.'model.name'": ["large"]}).notices == ()


def test_a_key_with_a_comma_is_not_coupled_when_it_is_quoted():
    assert points(space={"parameters.'a,b'": [1]}) == [{"parameters.'a,b'": 1}]


def test_a_comma_takes_spaces_on_either_side():
    assert short(points(space={" parameters.lr ,parameters.batch": [[1, 2]]})) == [{"lr": 1, "batch": 2}]


def test_an_inactive_key_keeps_the_value_of_the_base_also_for_other_conditions():
    space = {
        "parameters.opt": ["adam", "sgd"],
        "parameters.wd": {"values": [1, 2], "when": {"parameters.opt": "sgd"}},
        "parameters.lr": {"values": [5], "when": {"parameters.wd": [0, 1]}},
    }

    assert short(points(space=space)) == [
        {"opt": "adam", "lr": 5},
        {"opt": "sgd", "wd": 1, "lr": 5},
        {"opt": "sgd", "wd": 2},
    ]


def test_a_condition_may_look_at_a_key_further_down():
    space = {
        "parameters.wd": {"values": [0, 1, 2], "when": {"parameters.opt": "adamw"}},
        "parameters.opt": ["adam", "adamw"],
    }
    expected = [
        {"opt": "adam"},
        {"wd": 0, "opt": "adamw"},
        {"wd": 1, "opt": "adamw"},
        {"wd": 2, "opt": "adamw"},
    ]

    assert short(points(space=space)) == expected
    assert sweep(space=space).expansion.count() == 4


def test_conditions_below_their_users_cost_no_walk_over_what_cannot_be():
    names = [f"k{number}" for number in range(30)]
    space = {f"parameters.{n}": {"values": list(range(10)), "when": {"parameters.arch": n}} for n in names}
    rows = points(space=space | {"parameters.arch": names})

    assert len(rows) == 300
    assert all(len(row) == 2 for row in rows)


def test_a_condition_on_the_base_alone_holds_everywhere_or_nowhere():
    always = {"values": [1, 2], "when": {"parameters.batch": [32.0]}}
    never = {"values": [1, 2], "when": {"parameters.batch": 16}}

    assert short(points(space={"parameters.opt": ["a"], "parameters.lr": always})) == [
        {"opt": "a", "lr": 1},
        {"opt": "a", "lr": 2},
    ]
    assert short(points(space={"parameters.opt": ["a"], "parameters.lr": never})) == [{"opt": "a"}]


def test_included_rows_come_after_a_grid_and_repeats_are_dropped():
    made = sweep(
        space={"parameters.lr": [0.1, 1], "parameters.opt": ["a", "b"]},
        include=[
            {"parameters.opt": "a", "parameters.lr": 1},
            {"parameters.lr": 5, "parameters.batch": 128},
            {"parameters.batch": 128, "parameters.lr": 5.0},
            {"parameters.lr": 0.1},
        ],
    )
    rows = short(point.overrides for point in made.expansion.points())

    assert rows[4:] == [{"lr": 5.0, "batch": 128}, {"lr": 0.1}]
    assert made.expansion.duplicates_dropped == 2
    assert [n.message for n in made.notices] == ["2 duplicate points dropped."]


def test_an_empty_row_is_the_base_itself():
    assert points(include=[{}, {"parameters.lr": 1}]) == [{}, {"parameters.lr": 1}]


def test_rows_alone_share_the_type_of_a_key():
    rows = points(include=[{"parameters.lr": 1}, {"parameters.lr": 1.0}, {"parameters.lr": 0.5}])

    assert [(type(row["parameters.lr"]), row["parameters.lr"]) for row in rows] == [
        (float, 1.0),
        (float, 0.5),
    ]


def test_a_list_ignores_the_space():
    made = {
        "space": {"parameters.lr": [1, 2]},
        "include": [{"parameters.lr": 1}],
        "search": {"method": "list"},
    }

    assert points(**made) == [{"parameters.lr": 1}]


def test_rules_drop_points_that_have_all_their_values():
    space = {"parameters.lr": [0.1, 1], "parameters.opt": ["a", "b"]}
    rules = [{"parameters.lr": 1, "parameters.opt": "a"}, {"parameters.lr": 9, "parameters.batch": 32}]
    rows = points(
        space=space,
        exclude=rules,
        include=[{"parameters.lr": 9}, {"parameters.lr": 9, "parameters.batch": 1}],
    )

    assert short(rows) == [
        {"lr": 0.1, "opt": "a"},
        {"lr": 0.1, "opt": "b"},
        {"lr": 1.0, "opt": "b"},
        {"lr": 9.0, "batch": 1},
    ]


def test_a_rule_sees_the_value_of_the_base_where_a_key_is_not_active():
    space = {
        "parameters.opt": ["adam", "sgd"],
        "parameters.wd": {"values": [0, 1], "when": {"parameters.opt": "sgd"}},
    }

    assert short(points(space=space, exclude=[{"parameters.wd": 0}])) == [{"opt": "sgd", "wd": 1}]


@pytest.mark.parametrize("trials", [1, 3, 4, 5, 6, 99])
def test_trials_is_the_most_points_there_are(trials):
    made = sweep(
        space={"parameters.lr": [1, 2], "parameters.opt": ["a", "b"]},
        include=[{"parameters.lr": 7}],
        search={"trials": trials},
    )

    assert len(list(made.expansion.points())) == made.expansion.count() == min(trials, 5)
    assert len([n for n in made.notices if n.field == "search.trials"]) == (trials > 5)


def test_an_expansion_begins_anywhere_and_again():
    expansion = sweep(
        space={"parameters.lr": {"min": 1, "max": 50, "step": 1}}, include=[{"parameters.batch": 1}]
    ).expansion
    whole = list(expansion.points())

    assert all(list(expansion.points(start)) == whole[start:] for start in range(53))
    assert next(expansion.points()) == whole[0]


def test_points_are_told_apart_by_their_digests():
    made = list(sweep(space={"parameters.lr": [0.1, 1], "parameters.opt": ["a", "b"]}).expansion.points())
    other_order = list(
        sweep(space={"parameters.opt": ["b", "a"], "parameters.lr": [1.0, 0.1]}).expansion.points()
    )

    assert len({point.digest for point in made}) == 4
    assert {point.digest for point in made} == {point.digest for point in other_order}


def test_a_huge_grid_is_counted_and_entered_at_once():
    values = {"min": 0, "max": 999, "step": 1}
    space = {f"parameters.k{number}": values for number in range(20)}
    began = time.process_time()
    expansion = sweep(space=space, exclude=[{"parameters.k1": 0, "parameters.k2": 5}]).expansion
    last = next(expansion.points(expansion.count() - 1))

    assert expansion.count() == 1000**20 - 1000**18
    assert set(last.overrides.values()) == {999}
    assert time.process_time() - began < 1


def test_a_grid_over_hundreds_of_fixed_keys_is_walked():
    space = {f"parameters.k{number:04}": number for number in range(1500)}
    rows = points(space=space | {"parameters.lr": [1, 2]})

    assert [len(row) for row in rows] == [1501, 1501]
    assert [row["parameters.lr"] for row in rows] == [1, 2]


def test_a_grid_that_could_never_be_run_is_refused():
    space = {f"parameters.k{number}": [0, 1] for number in range(500)}

    with pytest.raises(SpecError, match="more points than can ever be run"):
        next(sweep(space=space).expansion.points())


def test_rules_without_number_are_refused_rather_than_counted_for_ever(monkeypatch):
    monkeypatch.setattr("airflows.search.enumerate._MOST_STATES", 1000)
    space = {f"parameters.k{number}": [0, 1] for number in range(24)}
    pairs = [{f"parameters.k{number}": 0, f"parameters.k{number + 12}": 0} for number in range(12)]

    with pytest.raises(SpecError, match="too many ways") as caught:
        sweep(space=space, exclude=pairs)
    assert caught.value.field == "exclude"

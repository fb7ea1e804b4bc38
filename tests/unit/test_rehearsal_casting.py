"""Which trials a rehearsal has."""

from pathlib import Path

import pytest

from airflows.errors import SpecError
from airflows.rehearsal.casting import MARK, cast_of
from airflows.rehearsal.script import Script
from airflows.rehearsal.sweep import rehearsal_name, rehearsal_of
from airflows.sweepfile import sweep_from_mapping
from airflows.vetting import validate_points

BASE = {
    "experiment_name": "demo",
    "command": "true",
    "compute": {"accelerator_type": "GPU_8xH100", "num_accelerators": 8},
    "timeout_minutes": 600,
    "parameters": {"lr": 0.1, "opt": "sgd", "wd": 0.0, "momentum": 0.9, "seed": 0, "model": "s"},
}


def sweep(**fields):
    base = BASE | fields.pop("base", {})
    return sweep_from_mapping({"name": "demo", "base": base, **fields}, directory=Path("/work"))


def changes(cast):
    return {probe.key: (probe.before, probe.after) for probe in cast.probes}


def test_a_plain_grid_has_its_first_point_the_same_again_and_one_trial_for_each_key():
    cast = cast_of(sweep(space={"parameters.lr": [0.1, 0.2, 0.9], "parameters.wd": [0, 0.5]}))

    first = {"parameters.lr": 0.1, "parameters.wd": 0.0}
    assert cast.rows == [
        first,
        {**first, MARK: "again"},
        first | {"parameters.lr": 0.9},
        first | {"parameters.wd": 0.5},
    ]
    assert cast.controls == {0: 1}
    assert changes(cast) == {"parameters.lr": (0.1, 0.9), "parameters.wd": (0.0, 0.5)}
    assert cast.branches == [""]


def test_each_value_that_a_condition_looks_at_is_a_branch_with_its_own_keys():
    space = {
        "parameters.momentum": {"values": [0.8, 0.9], "when": {"parameters.opt": "sgd"}},
        "parameters.opt": ["adam", "sgd", "lion"],
        "parameters.lr": [0.1, 0.2],
    }

    cast = cast_of(sweep(space=space))

    assert cast.branches == ["parameters.opt: adam", "parameters.opt: sgd", "parameters.opt: lion"]
    assert cast.rows[1] == {"parameters.momentum": 0.8, "parameters.opt": "sgd", "parameters.lr": 0.1}
    momentum, opt, _ = cast.probes
    # It is compared with the branch that has it; a changed optimizer is a branch already.
    assert (momentum.key, momentum.beside) == ("parameters.momentum", 1)
    assert (opt.key, opt.beside, opt.trial) == ("parameters.opt", 0, 2)


def test_a_branch_within_a_branch_is_reached():
    space = {
        "parameters.opt": ["sgd", "adam"],
        "parameters.model": {"values": ["s", "l"], "when": {"parameters.opt": "adam"}},
        "parameters.wd": {"values": [0.1, 0.2], "when": {"parameters.model": "l"}},
    }

    cast = cast_of(sweep(space=space))

    deepest = {"parameters.opt": "adam", "parameters.model": "l", "parameters.wd": 0.1}
    assert deepest in cast.rows[: len(cast.branches)]
    assert set(changes(cast)) == {"parameters.opt", "parameters.model", "parameters.wd"}


def test_rows_with_other_keys_are_branches_and_differing_values_are_swept_keys():
    include = [
        {"parameters.lr": 0.1},
        {"parameters.lr": 0.3},
        {"parameters.wd": 0.1, "parameters.opt": "adam"},
    ]

    cast = cast_of(sweep(include=include))

    assert cast.branches == ["with parameters.lr", "with parameters.wd, parameters.opt"]
    # What only one row has is compared with the base's value.
    assert changes(cast) == {
        "parameters.lr": (0.1, 0.3),
        "parameters.wd": (0.1, 0.0),
        "parameters.opt": ("adam", "sgd"),
    }


def test_a_key_that_one_row_adds_and_one_that_a_row_changes_are_tried():
    added = cast_of(sweep(include=[{"parameters.lr": 0.1}, {"parameters.lr": 0.1, "parameters.new": 64}]))
    changed = cast_of(sweep(space={"parameters.lr": [0.1]}, include=[{"parameters.lr": 0.5}]))

    assert changes(added) == {"parameters.new": (64, None)}
    assert changes(changed) == {"parameters.lr": (0.1, 0.5)}


def test_a_change_that_leaves_the_dependent_keys_as_they_are_is_preferred():
    space = {
        "parameters.opt": ["adam", "lion", "sgd"],
        "parameters.momentum": {"values": [0.8, 0.9], "when": {"parameters.opt": "sgd"}},
    }

    assert changes(cast_of(sweep(space=space)))["parameters.opt"] == ("adam", "lion")


def test_keys_may_be_named_by_their_last_part_or_by_one_of_a_pair_and_others_are_an_error():
    coupled = {"parameters.model, parameters.wd": [["s", 0.1], ["l", 0.2]], "parameters.lr": [0.1, 0.2]}

    cast = cast_of(sweep(space=coupled))

    assert cast.key_named("lr") == "parameters.lr"
    assert cast.key_named("parameters.wd") == cast.key_named("wd") == "parameters.model, parameters.wd"
    with pytest.raises(SpecError, match="no key that is swept"):
        cast.key_named("parameters.opt")


def test_more_branches_and_keys_than_are_rehearsed_are_told():
    opts = [f"opt{n}" for n in range(12)]
    space = {
        "parameters.opt": opts,
        "parameters.lr": [0.1, 0.2],
        "parameters.wd": {"values": [1, 2], "when": {"parameters.opt": "opt11"}},
    }

    cast = cast_of(sweep(space=space), most_branches=2, most_keys=1)

    assert (len(cast.branches), cast.branches_left) == (2, 10)
    assert set(changes(cast)) == {"parameters.opt"}
    assert cast.out_of_sight == set()
    assert cast.keys_left["parameters.wd"] == "no branch that is rehearsed has it"
    assert "one too many" in cast.keys_left["parameters.lr"]


def test_a_change_that_the_sweep_excludes_or_that_cannot_run_is_not_tried():
    space = {"parameters.lr": [0.1, 0.2, 0.9], "parameters.wd": [0.0, 0.5]}
    exclude = [{"parameters.lr": 0.9}, {"parameters.wd": 0.5}]

    cast = cast_of(sweep(space=space, exclude=exclude))

    assert changes(cast) == {"parameters.lr": (0.1, 0.2)}
    assert "no other value" in cast.keys_left["parameters.wd"]


def test_what_only_the_backend_sees_is_not_tried_unless_it_comes_with_a_parameter():
    space = {
        "compute.num_accelerators": [8, 16],
        "timeout_minutes": [10, 20],
        "parameters.lr": [0.1, 0.2],
    }
    coupled = {"parameters.model, compute.num_accelerators": [["s", 8], ["l", 16]]}

    cast = cast_of(sweep(space=space))
    together = cast_of(sweep(space=coupled))

    assert set(cast.keys_left) == cast.out_of_sight == {"compute.num_accelerators", "timeout_minutes"}
    assert all("timeout_minutes" not in row for row in cast.rows)
    assert changes(together) == {"parameters.model, compute.num_accelerators": (["s", 8], ["l", 16])}


def test_the_key_of_replicates_is_swept_too_and_every_trial_has_it():
    cast = cast_of(
        sweep(space={"parameters.lr": [0.1]}, replicates={"key": "parameters.seed", "values": [3, 4]})
    )

    assert cast.rows[0] == {"parameters.lr": 0.1, "parameters.seed": 3}
    assert changes(cast) == {"parameters.seed": (3, 4)}


@pytest.mark.parametrize("method", ["random", "tpe"])
def test_points_of_an_endless_space_are_drawn_and_changed_to_its_bounds(method):
    space = {"parameters.lr": {"min": 1e-5, "max": 1e-1, "log": True}, "parameters.opt": ["sgd", "adam"]}
    objective = {"metric": "loss", "goal": "minimize"}

    cast = cast_of(sweep(space=space, objective=objective, search={"method": method, "trials": 9}))

    before, after = changes(cast)["parameters.lr"]
    assert 1e-5 <= before <= 1e-1
    assert after in {1e-5, 1e-1}


def test_a_search_that_knows_earlier_sweeps_has_a_first_point_all_the_same():
    space = {"parameters.lr": {"min": 0.1, "max": 0.3}, "parameters.opt": ["sgd", "adam"]}
    search = {"method": "tpe", "trials": 9, "warm_start": ["earlier"]}

    cast = cast_of(sweep(space=space, objective={"metric": "loss", "goal": "minimize"}, search=search))

    assert cast.rows[0] == {"parameters.lr": 0.2, "parameters.opt": "sgd"}


def test_a_large_grid_costs_nothing():
    space = {f"parameters.k{n}": list(range(10)) for n in range(12)}

    assert len(cast_of(sweep(space=space)).rows) == 2 + 12


def test_the_rehearsal_ranks_nothing_retries_nothing_and_ends_without_a_driver():
    real = sweep(
        space={"parameters.lr": [0.1, 0.2]},
        objective={"metric": "loss", "goal": "minimize"},
        checkpoint={"pattern": "*.bin"},
        tracking={"tags": {"team": "a"}},
        backend={"type": "local", "slots": 3},
        base={"env_variables": {"A": "1"}},
    )
    cast = cast_of(real)
    script = Script("demo", 1, 3, 90.0, ("loss",))

    made = rehearsal_of(real, cast, script)
    validate_points(made)

    assert [dict(point.overrides) for point in made.expansion.points()] == cast.rows
    assert (made.spec.all_objectives, made.spec.retry.max) == ([], 0)
    assert made.spec.checkpoint.pattern == "*.bin"
    assert made.spec.backend == {"type": "local", "slots": 3}
    assert made.base.tree["env_variables"] == {"A": "1", "AIRFLOWS_REHEARSAL": "1"}
    assert made.base.tree["timeout_minutes"] == 4
    assert Script.of_tags(made.spec.tracking.tags) == script
    assert made.spec.tracking.tags["team"] == "a"


def test_other_sweeps_are_no_rehearsals():
    assert Script.of_tags({}) is None
    assert Script.of_tags({"airflows.rehearsal": "mine"}) is None


def test_a_long_name_is_cut():
    assert rehearsal_name("x" * 64) == "x" * 54 + "-rehearsal"

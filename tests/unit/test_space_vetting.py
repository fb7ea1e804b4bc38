"""Each point is checked as the train.yaml it makes; and what a dry run shows of points."""

from pathlib import Path

import pytest

from airflows import vetting
from airflows.errors import SpecError
from airflows.preview import Change, accelerator_hours, diff_from_base
from airflows.sweepfile import sweep_from_mapping
from airflows.train import decode
from airflows.vetting import validate_points

BASE = {
    "experiment_name": "demo",
    "command": "true",
    "compute": {"accelerator_type": "GPU_8xH100", "num_accelerators": 8},
    "timeout_minutes": 30,
    "env_variables": {"LEVEL": "info"},
    "parameters": {"lr": 0.01, "opt": "adam", "seed": 0},
}
MILLION = {f"parameters.{name}": {"min": 1, "max": 100, "step": 1} for name in "abc"}


def sweep(**fields):
    return sweep_from_mapping({"name": "demo", "base": BASE, **fields}, directory=Path())


def refused(**fields) -> SpecError:
    with pytest.raises(SpecError) as caught:
        validate_points(sweep(**fields))
    return caught.value


@pytest.fixture
def decoded(monkeypatch):
    """The trees that were looked at."""
    seen = []

    def counting(tree, **options):
        seen.append(tree)
        return decode(tree, **options)

    monkeypatch.setattr(vetting, "decode", counting)
    return seen


def test_an_invalid_trial_is_reported_with_number_and_overrides():
    error = refused(space={"parameters.lr": [0.1, 0.2], "compute.num_accelerators": [8, 16, 3]})

    assert error.message.startswith("Trial 2 cannot run. 3 is not a multiple of 8")
    assert error.message.endswith("Its overrides: parameters.lr: 0.1, compute.num_accelerators: 3.")
    assert error.field == "compute.num_accelerators"


def test_the_number_counts_replicates():
    error = refused(
        space={"compute.num_accelerators": [8, 16, 3]},
        replicates={"key": "parameters.seed", "values": [0, 1, 2, 3]},
    )

    assert error.message.startswith("Trial 8 cannot run.")


def test_keys_that_rules_look_at_together_are_checked_together():
    space = {
        "compute.accelerator_type, compute.num_accelerators": [["GPU_1xA10", 3], ["GPU_8xH100", 8]],
        "parameters.lr": [0.1, 0.2],
    }
    validate_points(sweep(space=space))

    apart = {"compute.num_accelerators": [8, 3], "compute.accelerator_type": ["GPU_1xA10", "GPU_8xH100"]}
    error = refused(space=apart)
    assert "Trial 3 cannot run" in error.message
    validate_points(
        sweep(
            space=apart, exclude=[{"compute.num_accelerators": 3, "compute.accelerator_type": "GPU_8xH100"}]
        )
    )


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("env_variables.LEVEL", [1], "takes text, not a list"),
        ("secrets.TOKEN", "nowhere", "scope/key"),
        ("secrets.LEVEL", "a/b", "LEVEL is in both"),
        ("command", "", "command is empty"),
        ("timeout_minutes", 0, "less than 1 minute"),
        ("parameters", 5, "takes a mapping"),
        ("environment.version", "5", "needs dependencies"),
        ("code_source.type", "tar", "is no code source type"),
    ],
)
def test_every_area_of_the_schema_is_checked(key, value, words):
    error = refused(include=[{"parameters.lr": 1}, {key: value}])

    assert error.message.startswith("Trial 1 cannot run.")
    assert words in error.message


def test_values_of_replicates_are_checked():
    error = refused(include=[{}], replicates={"key": "timeout_minutes", "values": [10, 0]})

    assert error.message.startswith("Replicate 1 cannot run: timeout_minutes is 0.")


def test_points_that_differ_in_parameters_alone_are_not_checked_again(decoded):
    validate_points(sweep(space=MILLION | {"compute.num_accelerators": [8, 16]}))

    assert [tree["compute"]["num_accelerators"] for tree in decoded] == [8, 16]


def test_a_sweep_of_parameters_alone_has_nothing_to_check(decoded):
    validate_points(sweep(space=MILLION))

    assert decoded == []


def test_beyond_the_first_points_values_and_combinations_are_checked():
    space = {
        "compute.accelerator_type": ["GPU_8xH100", "GPU_1xA10"],
        "compute.num_accelerators": {"values": [8, 3], "when": {"parameters.opt": ["adam", "sgd"]}},
        "parameters.opt": ["adam", "sgd"],
    }
    late = {"compute.accelerator_type": "GPU_8xH100", "compute.num_accelerators": 3}

    validate_points(sweep(space=space | MILLION, exclude=[late]))
    error = refused(space={"parameters.lr": [1, 2]} | MILLION | {"compute.num_accelerators": [8, 3]})
    assert "Trial 1 cannot run" in error.message
    # The first 10,000 points are all of one accelerator type.
    first = sweep(
        space={
            "compute.accelerator_type": ["GPU_1xA10", "GPU_8xH100"],
            **MILLION,
            "compute.num_accelerators": [8, 3],
        }
    )
    with pytest.raises(SpecError, match="Trial 2000001 cannot run"):
        validate_points(first)


def test_what_no_trial_has_does_no_harm():
    space = {
        "compute.accelerator_type": ["GPU_1xA10", "GPU_8xH100"],
        **MILLION,
        "compute.num_accelerators": [8, 3],
    }

    validate_points(sweep(space=space, search={"trials": 1_500_000}))
    validate_points(sweep(space=space, exclude=[{"compute.num_accelerators": 3, "parameters.opt": "adam"}]))


def test_a_late_value_of_a_single_key_is_found():
    space = {"env_variables.LEVEL": ["a", ["b"]], **MILLION}

    assert "Trial 1000000 cannot run" in refused(space=space).message


def test_drawn_points_are_all_looked_at():
    space = {"timeout_minutes": {"min": 0, "max": 400}, "parameters.lr": {"min": 0.0, "max": 1.0}}
    made = sweep(space=space, search={"method": "random", "trials": 3000})
    number = next(p.index for p in made.expansion.points() if p.overrides["timeout_minutes"] == 0)
    with pytest.raises(SpecError, match=f"Trial {number} cannot run"):
        validate_points(made, most=10)


def test_a_point_is_found_by_some_of_its_overrides():
    expansion = sweep(
        space={"parameters.opt": ["a", "b"], **MILLION}, include=[{"parameters.lr": 5}]
    ).expansion

    assert expansion.find({"parameters.opt": "b", "parameters.c": 2}).index == 1_000_001
    assert expansion.find({"parameters.lr": 5}).index == 2_000_000
    assert expansion.find({"parameters.lr": 6}) is None
    assert expansion.find({"parameters.opt": "c"}) is None
    few = sweep(space={"parameters.opt": ["a", "b"], **MILLION}, search={"trials": 1_000_001}).expansion
    assert few.find({"parameters.opt": "b"}).index == 1_000_000
    assert few.find({"parameters.opt": "b", "parameters.c": 2}) is None


def test_a_difference_names_old_and_new():
    changes = diff_from_base(BASE, {"parameters.lr": 0.5, "parameters.new": None, "timeout_minutes": 30})

    assert changes == [
        Change("parameters.lr", 0.01, 0.5, is_new=False),
        Change("parameters.new", None, None, is_new=True),
        Change("timeout_minutes", 30, 30, is_new=False),
    ]


def test_accelerator_hours_are_those_of_one_attempt_of_each_trial():
    assert accelerator_hours(sweep(space={"parameters.lr": [1, 2, 3]})) == 3 * 8 * 0.5
    assert accelerator_hours(sweep(space={"parameters.lr": [1, 2, 3]}), 2) == 2 * 8 * 0.5
    replicates = {"key": "parameters.seed", "values": [0, 1]}
    assert accelerator_hours(sweep(include=[{}], replicates=replicates)) == 2 * 8 * 0.5


def test_accelerator_hours_follow_what_is_swept():
    space = {"compute.num_accelerators": [8, 16], "timeout_minutes": [30, 60], "parameters.lr": [1, 2]}

    assert accelerator_hours(sweep(space=space)) == 2 * (8 + 16) * (0.5 + 1)
    assert accelerator_hours(sweep(space=space | MILLION)) == pytest.approx(2e6 * (8 + 16) * 1.5, rel=1)


def test_without_a_time_limit_there_is_no_most():
    endless = {key: value for key, value in BASE.items() if key != "timeout_minutes"}

    assert accelerator_hours(sweep(base=endless, include=[{}])) is None
    assert accelerator_hours(sweep(base=endless, include=[{"timeout_minutes": 60}])) == 8
    assert accelerator_hours(sweep(base=endless, include=[{"timeout_minutes": 60}, {}])) is None


def test_a_trial_of_several_nodes_cannot_be_packed():
    error = refused(space={"compute.num_accelerators": [8, 16]}, pack=4)

    assert "It takes 2 nodes, and pack puts several trials into one." in error.message
    assert error.field == "pack"


def test_a_base_of_several_nodes_cannot_be_packed():
    base = {**BASE, "compute": {"accelerator_type": "GPU_8xH100", "num_accelerators": 16}}

    error = refused(space={"parameters.lr": [0.1, 0.2]}, base=base, pack=4)

    assert error.message == "pack puts several trials into one node, and a trial of the base takes 2."
    assert (error.field, error.exit_code) == ("pack", 2)


def test_a_packed_trial_costs_its_share():
    alone, packed = (sweep(space={"parameters.lr": [0.1, 0.2]}, **fields) for fields in ({}, {"pack": 4}))

    assert (accelerator_hours(alone), accelerator_hours(packed)) == (8.0, 2.0)

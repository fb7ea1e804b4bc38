"""Values at keys that take text are the text `--override` makes of them, wherever a sweep.yaml has them."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflows.cli.lookup import conditions
from airflows.engine.source import Replicates
from airflows.launch import Launcher
from airflows.space import expand
from airflows.sweepfile import sweep_from_mapping
from airflows.train import effective, from_mapping, get_key, parse_override, read_train, split_key
from airflows.trial import Trial
from airflows.vetting import validate_points

BASE = {
    "experiment_name": "demo",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "env_variables": {"N": "base"},
    "parameters": {"lr": 0.01, "seed": 0},
}
KEY = "env_variables.N"
# VALUE of `--override env_variables.N=VALUE`, as YAML, and what the job sees.
OVERRIDES = [
    ("007", "7"),
    ("2.50", "2.5"),
    ("1e3", "1000"),
    ("0x1F", "31"),
    ("'007'", "007"),
    ("true", "true"),
    ("yes", "yes"),
    ("", ""),
    ("1.5e-7", "1.5e-07"),
    ("no", "no"),
    ("1_000", "1000"),
    ("~", ""),
]
FORMS = {
    "space": lambda value: {"space": {KEY: [value]}},
    "values": lambda value: {"space": {KEY: {"values": [value, "other"]}}},
    "coupled": lambda value: {"space": {f"parameters.lr, {KEY}": [[1, value], [2, "other"]]}},
    "include": lambda value: {"include": [{KEY: value}]},
    "replicates": lambda value: {"include": [{}], "replicates": {"key": KEY, "values": [value]}},
    "overrides": lambda value: {"overrides": {KEY: value}, "include": [{}]},
}


def sweep(**fields):
    return sweep_from_mapping({"name": "demo", "base": BASE, **fields}, directory=Path())


def launcher(loaded, directory):
    return Launcher.open(
        sweep="demo-7f3a9c",
        base=loaded.base,
        backend=SimpleNamespace(root=directory),
        tracker_env={},
        experiment_id="",
        checkpoint=None,
    )


def values(key, **fields):
    return [point.overrides.get(key) for point in expand(sweep(**fields)).points()]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("written", "seen"), OVERRIDES)
def test_a_value_is_the_same_text_wherever_it_stands(tmp_path, form, written, seen):
    override = f"{KEY}={written}"
    assert from_mapping(BASE, file="train.yaml", overrides=[override]).config.env_variables["N"] == seen

    loaded = sweep(**FORMS[form](parse_override(override)[1]))
    validate_points(loaded)
    point = next(expand(loaded).points())
    tree = effective(loaded.base.tree, Replicates(loaded.spec).overrides(point.overrides, 0))
    job = launcher(loaded, tmp_path).job(Trial("demo-7f3a9c", 0, 0, 0), tree, "")
    assert tree["env_variables"] == {"N": seen}
    assert job.env["N"] == seen
    assert json.loads(job.files["env_vars.json"]) == [{"name": "N", "value": seen}]
    assert read_train(job.files["training_config.yaml"].decode(), file="").config.env_variables == {"N": seen}


@pytest.mark.parametrize(
    ("key", "written", "made"),
    [
        ("command", True, "true"),
        ("environment.version", 4, "4"),
        ("environment.version", 4.0, "4"),
        ("environment.dependencies", ["numpy", 1e3], ["numpy", "1000"]),
        ("environment", {"version": 5, "dependencies": [True]}, {"version": "5", "dependencies": ["true"]}),
        ("env_variables", {"N": 1e3, "FLAG": True, "NONE": None}, {"N": "1000", "FLAG": "true", "NONE": ""}),
        ("secrets.TOKEN", "a/b", "a/b"),
        ("compute.num_accelerators", 8.0, 8),
        ("parameters.lr", True, True),
        ("parameters.lr", [1e3], [1e3]),
    ],
)
@pytest.mark.parametrize("part", ["space", "include"])
def test_each_key_gets_what_it_takes(key, written, made, part):
    fields = {"space": {key: [written]}} if part == "space" else {"include": [{key: written}]}
    (value,) = values(key, **fields)
    assert (value, type(value)) == (made, type(made))
    assert get_key(effective(sweep(**fields).base.tree, {key: value}), split_key(key)) == made


def test_a_value_of_the_wrong_type_is_left_for_the_check():
    assert values("env_variables.N", space={"env_variables.N": [[1, 2]]}) == [[1, 2]]


def test_spellings_of_one_text_are_one_value():
    loaded = sweep(space={"env_variables.N": [1000, 1e3, "1000", True, "true"]})
    assert values("env_variables.N", space=loaded.spec.space) == ["1000", "true"]
    assert loaded.expansion.duplicates_dropped == 3


def test_numbers_of_text_are_not_made_alike():
    """A float in a column of parameters makes floats of all; text stays as each is written."""
    assert values("env_variables.N", space={"env_variables.N": [1, 2.5]}) == ["1", "2.5"]


def test_rows_of_include_that_the_space_has_are_dropped():
    fields = {"space": {"env_variables.N": [1e3, True]}, "include": [{"env_variables.N": "1000"}]}
    assert values("env_variables.N", **fields) == ["1000", "true"]


def test_spellings_of_one_replicate_are_one():
    loaded = sweep(include=[{}], replicates={"key": "env_variables.N", "values": [1, 1.0, "1", True]})
    assert loaded.spec.replicates.values == ["1", "true"]
    assert any("listed twice" in notice.message for notice in loaded.notices)


def test_conditions_and_rules_look_at_the_text():
    space = {
        "env_variables.N": [True, 1e3, "x"],
        "parameters.lr": {"values": [1, 2], "when": {"env_variables.N": True}},
    }
    rows = [
        point.overrides for point in expand(sweep(space=space, exclude=[{"env_variables.N": 1000}])).points()
    ]
    assert rows == [
        {"env_variables.N": "true", "parameters.lr": 1},
        {"env_variables.N": "true", "parameters.lr": 2},
        {"env_variables.N": "x"},
    ]


@pytest.mark.parametrize(
    ("domain", "made"),
    [
        ({"min": 1, "max": 3, "step": 1}, ["1", "2", "3"]),
        ({"min": 0.5, "max": 1.5, "step": 0.5}, ["0.5", "1", "1.5"]),
        ({"min": 1e-3, "max": 10, "count": 5, "log": True}, ["0.001", "0.01", "0.1", "1", "10"]),
    ],
)
def test_numbers_that_are_counted_off_are_texts(domain, made):
    key = KEY
    assert values(key, space={key: domain}) == made
    rest = values(key, space={key: domain}, exclude=[{key: made[1]}], include=[{key: float(made[0])}])
    assert rest == [made[0], *made[2:]]
    assert expand(sweep(space={key: domain})).find({key: made[2]}).index == 2


@pytest.mark.parametrize("high", [5, 5.5])
@pytest.mark.parametrize("log", [False, True])
def test_numbers_that_are_drawn_are_texts(high, log):
    key = KEY
    fields = {
        "space": {key: {"min": 1, "max": high, "log": log}},
        "include": [{key: 2}],
        "search": {"method": "random", "trials": 5},
    }
    drawn = values(key, **fields)
    assert drawn[0] == "2"
    assert len(set(drawn)) == len(drawn) == 5
    assert all(isinstance(each, str) and 1 <= float(each) <= high for each in drawn)
    assert values(key, **fields) == drawn


def test_the_source_makes_the_same_sweep():
    loaded = sweep(
        space={"env_variables.N": [True, 1e3]}, replicates={"key": "env_variables.SEED", "values": [1, 2.5]}
    )
    tree = {
        "name": "demo",
        "base": BASE,
        "space": loaded.spec.space,
        "replicates": loaded.spec.replicates.model_dump(),
    }
    assert sweep_from_mapping(tree, directory=Path()).definition_digest == loaded.definition_digest


def test_trials_are_found_by_any_spelling():
    assert conditions(["env_variables.N=1e3", "parameters.lr=1e3"]) == {
        "env_variables.N": "1000",
        "parameters.lr": 1000.0,
    }

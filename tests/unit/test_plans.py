"""What a plan's hash is over, and in what two plans are said to differ."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflows.errors import SpecError
from airflows.plans import Plan, changed_leaves, plan_differences
from airflows.sweepfile import load_sweep, sweep_from_mapping

BASE = {
    "experiment_name": "demo",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"lr": 0.01, "opt": "adam"},
    "secrets": {"HF_TOKEN": "nlp/hf-token"},
}
TREE: dict[str, Any] = {
    "name": "demo",
    "base": BASE,
    "space": {"parameters.lr": [0.1, 0.2], "parameters.opt": ["adam", "sgd"]},
    "objective": {"metric": "loss", "goal": "minimize"},
    "limits": {"concurrent": 2},
    "backend": {"type": "local", "slots": 3},
}


def plan(code: str = "c0de", directory: str = "", **changes: Any) -> Plan:
    loaded = sweep_from_mapping({**TREE, **changes}, directory=Path())
    return Plan.of(loaded, code=code, directory=directory)


def base(**changes: Any) -> dict[str, Any]:
    return {**BASE, **changes}


# Each decides something of what will run, and nothing else of the plan; and how the difference is told.
DECIDING: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"name": "other"}, "name was"),
    "base": ({"base": base(command="false")}, "base.command was"),
    "space": (
        {"space": {"parameters.lr": [0.1, 0.3], "parameters.opt": ["adam", "sgd"]}},
        "space.parameters.lr.values was [0.1,0.2], and is [0.1,0.3]",
    ),
    "order of the keys": (
        {"space": dict(reversed(TREE["space"].items()))},
        "space: the same in another order",
    ),
    "order of the values": (
        {"space": {"parameters.lr": [0.2, 0.1], "parameters.opt": ["adam", "sgd"]}},
        "space.parameters.lr.values was",
    ),
    "include": ({"include": [{"parameters.lr": 5}]}, "include was []"),
    "exclude": ({"exclude": [{"parameters.lr": 0.1, "parameters.opt": "sgd"}]}, "exclude was []"),
    "trials": ({"search": {"trials": 3}}, "points: there were 4, and are 3"),
    "method": ({"search": {"method": "random", "trials": 4}}, 'search.method was "grid", and is "random"'),
    "seed": ({"search": {"seed": 5}}, "search.seed was 0"),
    "replicates": ({"replicates": {"key": "parameters.seed", "values": [0, 1]}}, "replicates was not there"),
    "objective": ({"objective": {"metric": "loss", "goal": "maximize"}}, "objective.goal was"),
    "stop": ({"stop": {"method": "patience", "steps": 3}}, "stop.method was not there"),
    "limits": ({"limits": {"concurrent": 3}}, "limits.concurrent was 2, and is 3"),
    "retry": ({"retry": {"max": 7}}, "retry.max was not there"),
    "checkpoint": ({"checkpoint": {"pattern": "*.ckpt"}}, "checkpoint.pattern was not there"),
    "backend": ({"backend": {"type": "local", "slots": 4}}, "backend.slots was 3"),
    "tracking": ({"tracking": {"experiment": "elsewhere"}}, "tracking.experiment was not there"),
    "secret": ({"base": base(secrets={"HF_TOKEN": "nlp/other"})}, "base.secrets.HF_TOKEN was"),
    "code": ({"code": "beef"}, "code"),
    "directory": ({"directory": "/elsewhere"}, "directory was"),
}
# Each is another way of writing the same.
SAME = {
    "spelling of a time": ({"retry": {"wait": "60s"}}, {"retry": {"wait": "1m"}}),
    "a default": ({}, {"retry": {"max_without_progress": 3}, "strict": False}),
    "a mapping of values": ({}, {"space": {**TREE["space"], "parameters.lr": {"values": [0.1, 0.2]}}}),
    "order of other keys": ({}, {"base": dict(reversed(BASE.items())), "name": "demo"}),
    "overrides of the base": ({"base": base(command="x")}, {"overrides": {"command": "x"}}),
    "an override of nothing": ({}, {"overrides": {"parameters.lr": 0.01}}),
    "more trials than points": ({"search": {"trials": 9}}, {"search": {"trials": 10}}),
}
# Each differs in what is not shown, or only looks like a secret.
OTHERS = {
    "a password in an address": (
        {"tracking": {"uri": "http://me:one@host"}},
        {"tracking": {"uri": "http://me:two@host"}},
    ),
    "a key that is none": (
        {"space": {"parameters.opt": ["s3://data/x?tokenizer=a&max_tokens=1"]}},
        {"space": {"parameters.opt": ["s3://data/x?tokenizer=b&max_tokens=2"]}},
    ),
    "a token of a point": (
        {"space": {"parameters.opt": ["s3://data/x?token=a"]}},
        {"space": {"parameters.opt": ["s3://data/x?token=b"]}},
    ),
    "a token in a variable": (
        {"base": base(env_variables={"API_TOKEN": "one"})},
        {"base": base(env_variables={"API_TOKEN": "two"})},
    ),
    "a swept variable": (
        {"space": {"env_variables.API_TOKEN": ["one", "three"]}},
        {"space": {"env_variables.API_TOKEN": ["two", "three"]}},
    ),
}


@pytest.mark.parametrize(("changes", "words"), DECIDING.values(), ids=list(DECIDING))
def test_what_decides_changes_the_hash_and_is_named(changes: dict[str, Any], words: str) -> None:
    changed = plan(**changes)

    assert changed.hash != plan().hash
    assert plan_differences(plan(), changed)[0].startswith(words)


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=list(SAME))
def test_another_way_of_writing_the_same_is_the_same_plan(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert plan(**other).hash == plan(**one).hash
    assert plan_differences(plan(**one), plan(**other)) == []


@settings(max_examples=100, deadline=None)
@given(st.sets(st.sampled_from(sorted(DECIDING))), st.sets(st.sampled_from(sorted(DECIDING))))
def test_two_plans_have_one_hash_just_when_all_that_decides_is_the_same(
    one: set[str], other: set[str]
) -> None:
    left, right = (
        {k: v for name in sorted(names) for k, v in DECIDING[name][0].items()} for names in (one, other)
    )

    assert (plan(**left).hash == plan(**right).hash) == (left == right)
    assert bool(plan_differences(plan(**left), plan(**right))) == (left != right)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text("xy", min_size=1), inner, max_size=3)
            ),
            max_leaves=5,
        ),
        max_size=4,
    )
)
def test_whatever_the_parameters_a_plan_comes_back_from_its_file(parameters: dict[str, Any]) -> None:
    made = plan(base=base(parameters={**parameters, "lr": 1}), space={"parameters.lr": [1]})

    again = Plan.from_document(json.loads(json.dumps(made.to_document(), allow_nan=False)), file="plan.json")

    assert (again.hash, plan_differences(made, again)) == (made.hash, [])


@pytest.mark.parametrize(("one", "other"), OTHERS.values(), ids=list(OTHERS))
def test_what_is_hidden_decides_too(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert plan(**other).hash != plan(**one).hash


def test_the_mlflow_of_the_environment_decides() -> None:
    loaded = sweep_from_mapping(TREE, directory=Path())
    one, other = (Plan.of(loaded, code="", mlflow=f"http://me:{word}@host") for word in ("one", "two"))

    assert one.hash != other.hash
    assert "two@" not in json.dumps(other.to_document())


def test_a_token_of_a_variable_is_in_no_plan() -> None:
    variables = {"API_TOKEN": "hunter2", "MODE": "fast"}
    made = plan(base=base(env_variables=variables), space={"env_variables.API_KEY": ["hunter2", "hunter3"]})
    text = json.dumps(made.to_document())

    assert "hunter" not in text
    assert "fast" in text
    assert Plan.from_document(json.loads(text), file="plan.json").hash == made.hash


def test_no_password_is_in_a_plan() -> None:
    made = plan(base=base(env_variables={"DB": "postgres://me:hunter2@host/x"}))

    assert "hunter2" not in json.dumps(made.to_document())
    assert made.parts["base"]["secrets"] == {"HF_TOKEN": "nlp/hf-token"}


def test_values_are_told_with_their_keys() -> None:
    changed = plan(limits={"concurrent": 5}, base=base(parameters={"lr": 0.5, "opt": "adam"}))

    assert plan_differences(plan(), changed) == [
        "limits.concurrent was 2, and is 5",
        "base.parameters.lr was 0.01, and is 0.5",
    ]


def test_many_changes_of_a_part_are_cut_short() -> None:
    parameters = {f"p{number}": number for number in range(20)}
    (words,) = plan_differences(plan(), plan(base=base(parameters=parameters)))

    assert words.endswith("and 17 more of base")


def test_points_are_told_only_when_nothing_else_tells_why() -> None:
    one, other = plan(), plan(search={"trials": 3})
    assert plan_differences(one, other) == ["points: there were 4, and are 3"]

    moved = Plan({**one.parts, "points": {"count": 4, "digest": "x"}}, list(reversed(one.points)))
    assert plan_differences(one, moved)[0].startswith('points: point 0 was {"parameters.lr":0.1')
    assert [words.partition(".")[0] for words in plan_differences(one, plan(**DECIDING["space"][0]))] == [
        "space"
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["decides"]["limits"].update(concurrent=99),
        lambda document: document["points"].pop(),
        lambda document: document["points"][0].update({"parameters.lr": 9}),
        lambda document: document.update(hash="0" * 64),
        lambda document: document.pop("points"),
        lambda document: document.pop("decides"),
        lambda document: document.update(decides=3),
    ],
)
def test_a_plan_that_was_changed_by_hand_is_refused(change: Any) -> None:
    document = copy.deepcopy(plan().to_document())
    change(document)

    with pytest.raises(SpecError, match="changed after it was made"):
        Plan.from_document(document, file="plan.json")


@pytest.mark.parametrize(("document", "words"), [({}, "this is no plan"), ({"plan": 7}, "format 7")])
def test_what_is_no_plan_is_said_to_be_none(document: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        Plan.from_document(document, file="plan.json")


def test_a_plan_of_a_million_points_lists_the_first_and_counts_all() -> None:
    axis = {"min": 0, "max": 999, "step": 1}
    made = plan(space={"parameters.lr": axis, "parameters.n": axis})

    assert (made.parts["points"]["count"], len(made.points)) == (1_000_000, 10_000)


def test_a_plan_of_a_method_that_learns_covers_what_it_chooses_by() -> None:
    def learning(seed: int, high: float) -> Plan:
        space = {"parameters.lr": {"min": 0.1, "max": high}}
        return plan(space=space, search={"method": "tpe", "trials": 30, "seed": seed})

    assert learning(1, 0.5).hash == learning(1, 0.5).hash
    assert len({learning(1, 0.5).hash, learning(2, 0.5).hash, learning(1, 0.6).hash}) == 3


def test_comments_and_the_place_of_the_files_do_not_matter(tmp_path: Path) -> None:
    hashes = set()
    for name, text in (("a", "# first\nlr: [0.1, 0.2]"), ("b", "lr:   [1e-1, 0.20]  # again")):
        directory = tmp_path / name
        directory.mkdir()
        (directory / "train.yaml").write_text(json.dumps(BASE))
        space = text.replace("lr:", "parameters.lr:").replace("\n", "\n  ")
        (directory / "sweep.yaml").write_text(f"name: demo\nbase: train.yaml\nspace:\n  {space}\n")
        hashes.add(Plan.of(load_sweep(directory / "sweep.yaml"), code="").hash)

    assert len(hashes) == 1


def test_changed_leaves_name_what_is_gone_and_what_is_new() -> None:
    assert list(changed_leaves({"a": 1, "b": {"c": [1]}}, {"b": {"c": [2]}, "d": True})) == [
        ("a", 1, None),
        ("b.c", [1], [2]),
        ("d", None, True),
    ]

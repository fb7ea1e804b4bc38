"""Overrides on a train.yaml, and train.yaml files given as mappings."""

import subprocess
import sys

import pytest

from airflows import yamlio
from airflows.errors import SpecError
from airflows.train import TrainFile, decode, from_mapping, load_train, parse_override, read_train

MINIMAL = """\
experiment_name: x
command: "true"
compute:
  accelerator_type: GPU_8xH100
  num_accelerators: 16
"""
TREE = {
    "experiment_name": "x",
    "command": "true",
    "compute": {"accelerator_type": "GPU_8xH100", "num_accelerators": 16},
}


def train(more: str = "", *overrides: str) -> TrainFile:
    return read_train(MINIMAL + more, file="train.yaml", overrides=overrides)


def refused(more: str, *overrides: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        train(more, *overrides)
    assert "\n" not in str(caught.value)
    return caught.value


# Overrides


def test_overrides_are_told():
    read = train("", "compute.num_accelerators=8", "parameters.opt={name: lion}", "parameters.opt.lr=1e-3")

    assert read.changes == (
        "changing compute.num_accelerators from 16 to 8",
        "setting parameters.opt to {name: 'lion'}",
        "setting parameters.opt.lr to 0.001",
    )
    assert read.config.parameters == {"opt": {"name": "lion", "lr": 0.001}}


def test_an_error_of_an_override_does_not_point_into_the_file():
    error = refused("", "compute.num_accelerators=12")

    assert (error.line, error.field) == (None, "compute.num_accelerators")
    assert "comes from the override of compute.num_accelerators" in str(error)


def test_an_override_can_repair_an_empty_file():
    read = read_train("", file="f", overrides=[f"{key}={value}" for key, value in TREE.items()])

    assert read.config == decode(TREE)


def test_every_key_is_checked_before_anything_is_read(tmp_path):
    with pytest.raises(SpecError, match="'gpus'") as caught:
        load_train(tmp_path / "absent.yaml", ["max_retries={", "compute.gpus=2"])

    assert caught.value.file == "--override"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("parameters.lr=1e-3", ("parameters.lr", 0.001)),
        (" max_retries =  7", ("max_retries", 7)),
        ("env_variables.ARGS=--a=1 --b=2", ("env_variables.ARGS", "--a=1 --b=2")),
        ("env_variables.A='x=y'", ("env_variables.A", "x=y")),
        ("parameters.'a=b'=3", ("parameters.'a=b'", 3)),
        ("it's=5", ("it's", 5)),
        ("timeout_minutes=", ("timeout_minutes", None)),
    ],
)
def test_an_override_splits_at_its_first_equals_sign(text, expected):
    assert parse_override(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [("max_retries", "no `=`"), ("=3", "no key"), ("  =3", "no key"), ("train.yml", "a file")],
)
def test_what_is_no_override_is_refused(text, words):
    with pytest.raises(SpecError, match=words):
        parse_override(text)


def test_overrides_replace_what_stands_in_their_way_as_ai_runtime_does():
    read = train("parameters: {a: 5, b: [1]}\n", "parameters.a.x=1", "parameters.b.y=2")

    assert read.config.parameters == {"a": {"x": 1}, "b": {"y": 2}}


def test_doubtful_values_of_overrides_are_noticed_unless_they_are_text():
    read = train("", "parameters.a=on", "env_variables.A=on", "env_variables.N=007")

    assert [(notice.file, notice.field) for notice in read.notices] == [
        ("--override", "parameters.a"),
        ("--override", "env_variables.N"),
    ]


# Mappings


def test_a_mapping_is_left_as_it_was():
    tree = {**TREE, "parameters": {"a": {"b": 1}}}

    read = from_mapping(tree, file="<python>", overrides=["parameters.a.b=2", "max_retries=1"])

    assert read.tree["parameters"] == {"a": {"b": 2}}
    assert tree == {**TREE, "parameters": {"a": {"b": 1}}}


def test_an_inline_base_keeps_lines_and_source_text_of_its_sweep():
    text = "name: s\nbase:\n  " + MINIMAL.replace("\n", "\n  ") + "env_variables: {A: 1.50}\n"
    document = yamlio.parse(text, file="sweep.yaml", dialect="sweep")
    base = document.value["base"]

    read = from_mapping(base, file="sweep.yaml", document=document, prefix=("base",))
    assert read.config.env_variables == {"A": "1.50"}
    base["compute"]["num_accelerators"] = 12
    with pytest.raises(SpecError) as caught:
        from_mapping(base, file="sweep.yaml", document=document, prefix=("base",))

    assert str(caught.value).startswith("sweep.yaml:7: base.compute.num_accelerators: 12 is not")


def test_a_value_changed_since_it_was_read_has_no_source_text():
    document = yamlio.parse(MINIMAL + "env_variables: {A: 1.50}\n", file="f", dialect="train")
    tree = {**document.value, "env_variables": {"A": 2.50}}

    assert from_mapping(tree, file="f", document=document).config.env_variables == {"A": "2.5"}


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x"])
def test_a_parameter_that_yaml_cannot_hold_is_refused(value):
    with pytest.raises(SpecError, match=f"A {type(value).__name__}") as caught:
        from_mapping({**TREE, "parameters": {"a": [value]}}, file="<python>")

    assert caught.value.field == "parameters.a[0]"


def test_decode_points_into_the_document_it_is_given():
    document = yamlio.parse(MINIMAL.replace("16", "12"), file="t.yaml", dialect="train")

    with pytest.raises(SpecError) as caught:
        decode(document.value, document=document)

    assert (caught.value.file, caught.value.line) == ("t.yaml", 5)


def test_what_is_read_can_be_written_and_read_again():
    read = train("env_variables: {A: 0042, B: on}\nparameters: {lr: 1e-5, tag: '1e3'}\n", "parameters.x=yes")

    again = read_train(yamlio.dump(read.tree), file="training_config.yaml")

    assert again.config == read.config
    assert again.tree == read.tree
    assert again.notices == ()


def test_reading_a_train_yaml_builds_no_pydantic_schema():
    script = (
        "from airflows.train import TrainConfig, read_train\n"
        f"read_train({MINIMAL!r}, file='f')\n"
        "assert not TrainConfig.__pydantic_complete__\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr

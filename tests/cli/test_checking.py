"""`validate` and `backends`: what can be said before anything runs."""

import json

import jsonschema
import pytest
import yaml


def test_right_files_are_ok(cli):
    files = [cli.train_file(), cli.sweep_file()]
    done = cli("validate", *files, "-o", "json")
    assert done.status == 0, done.out
    assert [(file["kind"], file["ok"]) for file in done.document["files"]] == [
        ("train", True),
        ("sweep", True),
    ]


def test_what_is_wrong_is_said_with_line_and_field(cli):
    right, wrong = (
        cli.train_file(),
        cli.write("wrong.yaml", "experiment_name: a\ncommand: b\ncompute:\n  acelerator_type: x\n"),
    )
    done = cli("validate", right, wrong, "-o", "json")
    assert done.status == 2
    (error,) = done.document["files"][1]["errors"]
    assert (error["line"], error["field"]) == (4, "compute.acelerator_type")
    assert "accelerator_type" in error["message"]


def test_warnings_are_no_errors(cli):
    file = cli.sweep_file(space={"parameters.lrr": [1, 2]})
    done = cli("validate", file)
    assert done.status == 0
    assert "warning" in done.out
    assert "parameters.lr" in done.out


def test_no_file_is_a_wrong_request(cli):
    assert cli("validate").status == 2


@pytest.mark.parametrize("kind", ["train", "sweep"])
def test_the_schema_accepts_the_example(cli, kind):
    schema = json.loads(cli("validate", "--schema", kind).out)
    file = cli.train_file() if kind == "train" else cli.sweep_file()
    jsonschema.validate(yaml.safe_load(file.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"nonsense": 1}, schema)


def test_both_schemas_come_together(cli):
    assert set(cli("validate", "--schema").document) == {"train", "sweep"}


def test_backends_say_whether_they_can_be_reached(cli):
    (local,) = [
        each for each in cli("backends", "-o", "json").document["backends"] if each["name"] == "local"
    ]
    assert (local["name"], local["available"], local["why_not"]) == ("local", True, None)
    assert "slots" in local["options"]["properties"]
    assert not cli.home.exists()


def test_the_options_of_one_backend_are_listed(cli):
    told = cli("backends", "local").out
    assert "slots" in told
    assert "grace" in told


def test_an_unknown_backend_names_those_there_are(cli):
    done = cli("backends", "locl")
    assert done.status == 2
    assert "local" in done.error


@pytest.mark.parametrize(
    ("base", "line", "word"),
    [
        ("experiment_name: a\ncommand: b\ncompute:\n  acelerator_type: x\n", 4, "wrong"),
        (
            {
                "experiment_name": "a",
                "command": "b",
                "idempotency_token": "t",
                "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
            },
            3,
            "ok",
        ),
    ],
)
def test_what_is_to_be_said_of_the_base_names_the_base(cli, base, line, word):
    cli.write("train.yaml", base)
    file = cli.sweep_file(base="train.yaml")
    (checked,) = cli("validate", file, "-o", "json").document["files"]
    (problem,) = [each for each in (*checked["errors"], *checked["warnings"]) if each["line"] == line]
    assert problem["file"] == str(cli.directory / "train.yaml")
    told = cli("validate", file).out
    assert f"{file}: {word}" in told
    assert f"{problem['file']}: line {line}:" in told


def test_what_is_to_be_said_of_the_file_itself_does_not_repeat_its_name(cli):
    file = cli.sweep_file(spac={})
    assert cli("validate", file).out.count(str(file)) == 1

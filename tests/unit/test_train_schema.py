"""Keys of train.yaml, and the JSON Schema that editors are given."""

import json
from functools import cache
from importlib.resources import files

import jsonschema
import pytest
import yaml

from airflows.errors import SpecError
from airflows.train import TrainConfig, check_key, json_schema
from airflows.train.shape import kinds

PUBLISHED = files("airflows") / "schemas" / "train.schema.json"
MINIMAL = {
    "experiment_name": "x",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
}
REWRITE = (
    "python -c 'import json; from airflows.train import json_schema; print(json.dumps(json_schema(), indent=2))' "
    "> airflows/schemas/train.schema.json"
)


@cache
def validator() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    return jsonschema.Draft202012Validator(json_schema())


def models(model=TrainConfig, seen=()):
    yield model
    for kind in kinds(model).values():
        if kind.model is not None and kind.model not in seen:
            yield from models(kind.model, (*seen, model))


def test_the_published_schema_is_current():
    assert json.loads(PUBLISHED.read_text()) == json_schema(), f"write it again: {REWRITE}"


def test_every_field_has_a_one_line_description():
    fields = [field for model in models() for field in model.model_fields.items()]

    assert len(fields) > 40
    assert [name for name, info in fields if not info.description or "\n" in info.description] == []


def test_the_schema_takes_every_accepted_case(config_cases):
    accepted = [case for case in config_cases if case["ok"] and not case["overrides"]]

    assert len(accepted) > 25
    check = validator()
    assert [case["name"] for case in accepted if not check.is_valid(yaml.safe_load(case["yaml"]))] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_nodes": 2},
        {"command": ["a"]},
        {"max_retries": "2"},
        {"max_retries": -1},
        {"compute": {"accelerator_type": "GPU_4xL40S", "num_accelerators": 4}},
        {"compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1, "node_type": "p5"}},
        {"code_source": {}},
        {"env_variables": {"A": {"b": 1}}},
        {"parameters": [1]},
        {"environment": {"dependencies": "a"}},
        {"permissions": [{"level": 1, "who": "x"}]},
    ],
)
def test_the_schema_refuses(wrong):
    assert validator().is_valid(MINIMAL)
    assert not validator().is_valid({**MINIMAL, **wrong})


@pytest.mark.parametrize(
    "key",
    [
        "compute.num_accelerators",
        "environment.docker_image.url",
        "code_source.snapshot.git.branch",
        "code_source.root_path",
        "compute.pool_id",
        "parameters",
        "parameters.any.thing",
        "parameters.'model.name'.x",
        "env_variables.A",
        "secrets.HF",
        "permissions.level",
    ],
)
def test_a_key_of_the_schema_is_taken_apart(key):
    assert ".".join(check_key(key)) == key.replace("'", "")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("compute.num_acelerators", ["did you mean compute.num_accelerators?"]),
        ("num_accelerators", ["did you mean compute.num_accelerators?"]),
        ("Command", ["did you mean command?"]),
        ("environment.docker_image.uri", ["did you mean environment.docker_image.url?"]),
        ("compute.gpus", ["accelerator_type, num_accelerators, pool_id, priority_class"]),
        ("command.shell", ["command is not a nested object"]),
        ("environment.version.x", ["version is not a nested object"]),
        ("environment.dependencies.0", ["not a nested object"]),
        ("permissions.0.level", ["'0'", "service_principal_name"]),
        ("config.command", ["'config'"]),
        ("compute. num_accelerators", ["' num_accelerators'"]),
        ("compute..num_accelerators", ["empty"]),
        ("", ["empty"]),
    ],
)
def test_an_unknown_key_is_refused_with_what_is_near(key, words):
    with pytest.raises(SpecError) as caught:
        check_key(key, file="sweep.yaml", line=7)

    text = str(caught.value)
    assert [word for word in words if word not in text.lower()] == []
    assert not key.strip(".") or caught.value.field == key


def test_the_place_of_an_unknown_key_is_told():
    with pytest.raises(SpecError) as caught:
        check_key("compute.gpu", file="sweep.yaml", line=7)

    assert str(caught.value).startswith("sweep.yaml:7: compute.gpu: 'gpu' is not a key of compute.")


@pytest.fixture
def config_cases(request):
    path = request.path.parents[1] / "data" / "ai-runtime" / "configs.yaml"
    return yaml.safe_load(path.read_text())

"""What of a trial becomes MLflow params, and what goes into an artifact."""

import json
import posixpath
import re

from hypothesis import given
from hypothesis import strategies as st

from airflows.addresses import HIDDEN
from airflows.tracking.params import MOST_CHARACTERS, flatten


def test_overrides_and_all_other_parameters_are_logged_under_their_dotted_keys():
    made = flatten(
        {"parameters.lr": 1e-05, "compute.num_accelerators": 8},
        {"lr": 1e-05, "seed": 0, "model": {"name": "small", "wide": True, "layers": [64, 32]}, "note": None},
    )
    assert made.values == {
        "parameters.lr": "1e-05",
        "compute.num_accelerators": "8",
        "parameters.seed": "0",
        "parameters.model.name": "small",
        "parameters.model.wide": "true",
        "parameters.model.layers": "[64,32]",
        "parameters.note": "null",
    }
    assert made.artifact == ""


def test_text_stands_as_it_is():
    values = ["x" * 300, "s3://b/x y", "µ=0.1", "a\nb", ""]
    made = flatten({f"parameters.v{n}": value for n, value in enumerate(values)}, {})
    assert list(made.values.values()) == values


def test_a_value_that_mlflow_would_cut_is_whole_in_the_artifact():
    fits, long = "x" * MOST_CHARACTERS, "y" * (MOST_CHARACTERS + 1)
    made = flatten({"parameters.fits": fits, "parameters.long": long}, {"fits": fits, "long": long})
    assert made.values["parameters.fits"] == fits
    assert made.values["parameters.long"].startswith("yyyy")
    assert "6001 characters, whole in the artifact airflows/overrides.json" in made.values["parameters.long"]
    assert json.loads(made.artifact)["overrides"]["parameters.long"] == long


def test_keys_that_mlflow_refuses_are_changed_and_whole_in_the_artifact():
    overrides = {
        "parameters.'model.name'": "a",
        "parameters.model.name": "b",
        "parameters.acc@5": 1,
        "parameters.a//b": 2,
        "parameters." + "k" * 300: 3,
    }
    made = flatten(overrides, {})
    assert made.values["parameters.model.name"] == "b"
    assert sorted(made.values.values()) == ["1", "2", "3", "a", "b"]
    assert made.values["parameters.acc_5"] == "1"
    assert json.loads(made.artifact)["overrides"] == overrides


def test_very_many_parameters_are_whole_in_the_artifact():
    made = flatten({"parameters.first": 1}, {f"p{n}": n for n in range(2000)})
    assert made.values["parameters.first"] == "1"
    assert len(made.values) == 1000
    assert len(json.loads(made.artifact)["parameters"]) == 2000


def accepted_by_mlflow(key):
    """The rules of MLflow 3.17, as its validation module has them."""
    normal = posixpath.normpath(key)
    named = re.fullmatch(r"[/\w.\- :]*", key) is not None and len(key) <= 250
    return named and normal == key and normal != "." and not normal.startswith(("..", "/"))


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=12) | st.sampled_from(["/a", "a/", "..", ".", "a/../b"]),
        st.integers(),
        max_size=8,
    )
)
def test_every_key_is_one_that_mlflow_takes_and_no_value_is_lost(overrides):
    made = flatten(overrides, {})
    assert all(accepted_by_mlflow(key) for key in made.values)
    assert sorted(made.values.values()) == sorted(map(repr, overrides.values()))


def test_what_is_called_like_a_secret_is_hidden_and_a_size_is_not():
    overrides = {
        "parameters.api_key": "sk-12345",
        "parameters.max_tokens": 512,
        "parameters.data": "s3://key:pa55@bucket/x",
        "env_variables.HF_TOKEN": 1234,
    }
    overrides["parameters.token.value"] = "tv-1111"
    parameters = {
        "api_key": "sk-12345",
        "hub": {"token": "hf_6789"},
        "secrets": {"wandb": "wb-2222"},
        "tracking_secret": "ts-3333",
        "text": "x" * (MOST_CHARACTERS + 1),
    }

    made = flatten(overrides, parameters)

    assert made.values["parameters.api_key"] == made.values["env_variables.HF_TOKEN"] == HIDDEN
    assert made.values["parameters.hub.token"] == HIDDEN
    assert made.values["parameters.max_tokens"] == "512"
    assert not [
        word
        for word in ("sk-1", "pa55", "1234", "hf_6", "1111", "2222", "3333")
        if word in f"{made.values} {made.artifact}"
    ]
    assert "xxx" in made.artifact

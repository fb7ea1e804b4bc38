"""A flow run's parameters: checked by the model of sweep.yaml, before anything starts."""

import pytest
from pydantic import TypeAdapter, ValidationError

from airflows.errors import LedgerError, SpecError
from airflows.flowruns.request import MOST_SHOWN, SweepParameter, SweepRequest, read_request

BASE = {
    "experiment_name": "x",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"lr": 0.1, "seed": 0},
}
TREE = {"name": "lr", "base": BASE, "space": {"parameters.lr": [0.1, 0.2]}}
PARAMETER = TypeAdapter(SweepParameter)


def read(home, at="t", /, **fields):
    return read_request(SweepRequest(**{"sweep": TREE, **fields}), home=home, instance=at)


def test_a_mapping_goes_on_as_it_was_given():
    given = {**TREE, "limits": {"wall_time": "12h"}, "backend": "local"}
    assert PARAMETER.validate_python(given) == given
    assert PARAMETER.validate_python("sweep.yaml") == "sweep.yaml"


@pytest.mark.parametrize(
    "wrong",
    [
        {**TREE, "spce": {}},
        {**TREE, "limits": {"concurrent": 0}},
        {**TREE, "limits": {"wall_time": 12}},
        {**TREE, "objective": {"metric": "loss", "goal": "descending"}},
        7,
    ],
)
def test_a_wrong_value_is_refused(wrong):
    with pytest.raises(ValidationError):
        PARAMETER.validate_python(wrong)


def test_a_path_is_read_with_overrides_settings_and_backend(home, tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(
        "name: lr\n"
        "base: {experiment_name: x, command: 'true', parameters: {lr: 0.1, seed: 0},\n"
        "  compute: {accelerator_type: GPU_1xA10, num_accelerators: 1}}\n"
        "space: {parameters.lr: [0.1, 0.2]}\n"
    )
    wanted = read(
        home,
        sweep=str(path),
        overrides=("parameters.seed=7",),
        settings=("limits.concurrent=3",),
        backend="local",
    )
    assert wanted.loaded.base.tree["parameters"]["seed"] == 7
    assert wanted.loaded.spec.limits.concurrent == 3
    assert wanted.loaded.path == path


def test_a_path_that_is_not_there_is_said(home):
    with pytest.raises(SpecError, match=r"missing/sweep\.yaml"):
        read(home, sweep="missing/sweep.yaml")
    with pytest.raises(SpecError, match=r"nothing\.yaml"):
        read(home, sweep="nothing.yaml")


def test_the_instance_tells_sweeps_apart(home):
    tonight, tomorrow = read(home, "2026-11-30T01:00:00Z"), read(home, "2026-12-01T01:00:00Z")
    assert tonight.id != tomorrow.id
    assert tonight.id == read(home, "2026-11-30T01:00:00Z").id
    assert tonight.instance == "2026-11-30T01:00:00Z"
    named = read(home, "2026-11-30T01:00:00Z", instance="mine")
    assert (named.instance, named.id) == ("mine", read(home, "other", instance="mine").id)
    assert read(home, "2026-11-30T01:00:00Z", instance="").id == tonight.id


def test_a_ledger_that_cannot_be_read_is_not_taken_for_an_empty_one(home):
    home.mkdir()
    (home / "ledger.db").write_bytes(b"no database" * 1000)
    with pytest.raises(LedgerError):
        read(home, sweep="nightly")


def test_up_to_a_thousand_trials_are_mirrored_and_no_more(home):
    fits = {**TREE, "space": {"parameters.seed": list(range(MOST_SHOWN))}}
    assert read(home, sweep=fits, show_trials=True).loaded is not None
    twice = {**fits, "replicates": {"key": "parameters.lr", "values": [0.1, 0.2]}}
    with pytest.raises(SpecError, match=r"show_trials: It mirrors up to 1,000 trials .* has 2,000 trials\."):
        read(home, sweep=twice, show_trials=True)
    assert read(home, sweep=twice).loaded is not None


def test_a_point_that_is_no_valid_train_yaml_is_refused(home):
    wrong = {**TREE, "space": {"compute.num_accelerators": [1, 0]}}
    with pytest.raises(SpecError):
        read(home, sweep=wrong)

"""`retry.on_out_of_memory`, as a person uses it: rescued trials, how they are shown, and after a resume."""

import contextlib
import sqlite3
import sys
from pathlib import Path

import pytest
import yaml

# Really out of memory: the limit is on the address space.
TRAIN = f"""
batch=$(sed -n 's/^batch: //p' "$HYPERPARAMETERS_PATH")
ulimit -v 400000
exec {sys.executable} -c "data = bytearray($batch << 24); print('fits', $batch)"
"""


def sweep(cli, name, **fields):
    return cli.sweep_file(
        name=name,
        file=f"{name}.yaml",
        base={
            "experiment_name": "demo",
            "command": TRAIN,
            "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
            "parameters": {"batch": 1},
        },
        space={"parameters.batch": [2, 64, 128]},
        **fields,
    )


@pytest.fixture(scope="module")
def swept(shared_cli):
    file = sweep(
        shared_cli,
        "rescued",
        retry={"on_out_of_memory": {"parameters.batch": 4}, "wait": "0s"},
        limits={"concurrent": 1},
        objective={"metric": "loss", "goal": "minimize"},
    )
    shared_cli.ended = shared_cli("sweep", file)
    with contextlib.closing(sqlite3.connect(shared_cli.home / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE trials SET value = 3.5 - number, reason = ''")
    return shared_cli


def test_a_trial_that_ran_out_of_memory_is_tried_again_with_other_values(swept):
    assert swept.ended.status == 0, swept.ended.err
    trial = swept("get", "rescued/1", "-o", "json").document
    assert (trial["state"], trial["overrides"]) == ("succeeded", {"parameters.batch": 64})
    assert [attempt["class"] for attempt in trial["attempts"]] == ["out_of_memory", None]
    assert [attempt["changed"] for attempt in trial["attempts"]] == [{}, {"parameters.batch": 4}]
    assert trial["config"]["parameters"] == {"batch": 4}
    assert swept("logs", "rescued/1").out == "fits 4\n"


def test_its_launch_directory_has_the_values_it_ran_with(swept):
    trial = swept("get", "rescued/2", "-o", "json").document
    configs = [Path(attempt["launch_dir"]) / "training_config.yaml" for attempt in trial["attempts"]]
    assert [yaml.safe_load(path.read_text())["parameters"]["batch"] for path in configs] == [128, 4]


def test_its_story_says_so(swept):
    told = swept("get", "rescued/1").out
    assert 'an earlier attempt ran out of memory, so with {"parameters.batch":4}' in told


def test_trials_that_fit_run_as_searched(swept):
    trial = swept("get", "rescued/0", "-o", "json").document
    assert (trial["attempt"], trial["config"]["parameters"]) == (0, {"batch": 2})


def test_its_result_is_marked_and_the_winner_runs_again_as_it_ran(swept):
    winner = swept("best", "rescued", "-o", "json").document
    assert (winner["overrides"], winner["changed"]) == ({"parameters.batch": 128}, {"parameters.batch": 4})
    note = "ran out of memory, then ran with parameters.batch = 4"
    assert winner["note"] == note
    assert swept("results", "rescued").out.count(note) == 2
    assert swept("results", "rescued", "--format", "csv").out.count(note) == 2
    assert note in swept("best", "rescued").out
    assert swept("best", "rescued", "--as", "overrides").out == "--override parameters.batch=4\n"
    assert yaml.safe_load(swept("best", "rescued", "--as", "yaml").out)["parameters"] == {"batch": 4}


def test_the_values_may_come_with_a_resume(cli):
    assert cli("sweep", sweep(cli, "late", retry={"max": 2, "wait": "0s"})).status == 1
    done = cli("resume", "late", "--failed", "--set", "retry.on_out_of_memory={parameters.batch: 4}")
    assert done.status == 0, done.err
    trial = cli("get", "late/2", "-o", "json").document
    assert [attempt["changed"] for attempt in trial["attempts"]] == [{}, {"parameters.batch": 4}]


@pytest.mark.parametrize(
    ("relief", "told"),
    [
        ({"compute.accelerator_typo": "x"}, "accelerator_typ"),
        ({"compute.num_accelerators": 0}, "num_accelerators"),
        ({}, "names no value"),
        ({"experiment_name": "x"}, "cannot be swept"),
    ],
)
def test_values_that_cannot_be_are_refused_before_anything_runs(cli, relief, told):
    done = cli("sweep", sweep(cli, "wrong", retry={"on_out_of_memory": relief}), "--dry-run")
    assert done.status == 2
    assert told in done.error
    assert "retry.on_out_of_memory" in done.error

"""The examples in sweeps/: their files are right, and what runs without a cloud runs, is killed and goes on."""

import signal
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
import yaml

from airflows.testing.waiting import until

PATIENCE_S = 300  # each of the two processes imports torch, twice
SWEEPS = Path(__file__).parents[2] / "sweeps"
FILES = sorted(SWEEPS.glob("*/*.yaml"))


def test_every_example_says_what_it_is():
    folders = [folder for folder in SWEEPS.iterdir() if folder.is_dir() and not folder.name.startswith("__")]

    assert len(folders) >= 4
    assert [folder.name for folder in folders if not (folder / "README.md").exists()] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(file.parts[-2:]))
def test_every_file_is_valid(in_process, file):
    done = in_process("validate", file)

    assert done.status == 0, done.err


def test_the_sbatch_example_is_what_migrate_writes(cli):
    folder = SWEEPS / "from-sbatch"
    done = cli("migrate", folder / "job.sbatch", "--to", "migrated", "-o", "json")
    assert done.status == 0, done.err

    train = yaml.safe_load((folder / "train.yaml").read_text())
    sweep = yaml.safe_load((folder / "sweep.yaml").read_text())
    written = done.document["train"]
    written["code_source"]["snapshot"]["root_path"] = "."
    assert train == written
    assert sweep.pop("objective") == {"metric": "val_accuracy", "goal": "maximize"}
    assert sweep == done.document["sweep"]


def test_a_trial_of_the_sbatch_example_runs_here_as_well(cli):
    done = cli("run", "-f", SWEEPS / "from-sbatch" / "train.yaml", "--watch")

    assert done.status == 0, done.err
    assert "epoch 10: val_accuracy" in done.out


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_both_processes_of_a_killed_training_go_on_from_one_checkpoint(cli):
    file = SWEEPS / "transformer-ddp" / "train.yaml"
    process = cli.start("run", "-f", file, "--override", "parameters.steps=50", "-o", "json")
    saved = "checkpoints/*/0/checkpoint-25.pt"
    until(lambda: any(cli.home.glob(saved)), "a checkpoint", patience_s=PATIENCE_S)

    for each in psutil.process_iter():
        if is_training(each, cli.home):
            kill(each)
    out, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0, (out, err)
    (log,) = cli.home.glob("runs/*/0/a1/logs/node_0.log")
    text = log.read_text()
    assert "resuming after step" in text
    assert "step 50: " in text
    assert "step 25: " not in text


def is_training(process: psutil.Process, home: Path) -> bool:
    try:
        return any(str(home) in word and word.endswith("train.py") for word in process.cmdline())
    except psutil.Error:
        return False


def kill(process: psutil.Process) -> None:
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return

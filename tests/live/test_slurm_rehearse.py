"""A rehearsal on a real Slurm: an element of an array is cancelled by `scancel`, and the next attempt resumes."""

import json
import sys

import pytest

pytestmark = [pytest.mark.live, pytest.mark.slow]

# As MLflow's client would log it, without the seconds that importing it takes.
PROGRAM = """\
import os, pathlib, sqlite3, threading, time
import yaml
with open(os.environ["HYPERPARAMETERS_PATH"], encoding="utf-8") as file:
    seed = yaml.safe_load(file)["seed"]
store = sqlite3.connect(os.environ["MLFLOW_TRACKING_URI"].removeprefix("sqlite:///"), timeout=60)
folder, resume = pathlib.Path(os.environ["AIRFLOWS_CHECKPOINT_DIR"]), os.environ["AIRFLOWS_RESUME_FROM"]
for step in range(int(pathlib.Path(resume).read_text()) + 1 if resume else 0, 1000):
    row = ("loss", (seed + 1) / (step + 1), int(time.time() * 1000), os.environ["MLFLOW_RUN_ID"], step)
    with store:
        for table in ("metrics", "latest_metrics"):
            store.execute(
                f"INSERT OR REPLACE INTO {table} (key, value, timestamp, run_uuid, step, is_nan)"
                " VALUES (?, ?, ?, ?, ?, 0)",
                row,
            )
    aside = folder / f"step-{step}.tmp"
    aside.write_text(str(step))
    aside.rename(folder / f"step-{step}.pt")
    threading.Event().wait(0.3)
"""


def test_a_sweep_on_slurm_is_rehearsed(sweeping):
    program = sweeping.directory / "train.py"
    program.write_text(PROGRAM)
    path = sweeping.write(
        f'exec "{sys.executable}" "{program}"',
        3,
        tracking={},
        objective={"metric": "loss", "goal": "minimize"},
    )

    done = sweeping.ask("rehearse", str(path), "--timeout", "60s", "-o", "json")

    document = json.loads(done.stdout)
    results = {row["check"]: row["result"] for row in document["checks"]}
    assert (done.returncode, document["go"]) == (0, True), done.stdout
    assert results["resumes"] == results["parameters file"] == results["key parameters.seed"] == "ok"
    first, *others = [each for each in sweeping.attempts() if each.number == 0]
    assert (first.reason, len(others)) == ("paused", 1)
    assert others[0].resumed_from.endswith(".pt")

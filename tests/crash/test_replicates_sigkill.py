"""kill -9 of a real `airflows resume --replicates`: asked for again, each replicate has run once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflows.testing.waiting import until

AIRFLOWS = [sys.executable, "-m", "airflows.cli"]
PATIENCE_S = 120
# As MLflow's client would log it, without the seconds that importing it takes.
SCORE = """\
import os
import sqlite3
import yaml
with open(os.environ["HYPERPARAMETERS_PATH"], encoding="utf-8") as file:
    given = yaml.safe_load(file)
store = sqlite3.connect(os.environ["MLFLOW_TRACKING_URI"].removeprefix("sqlite:///"), timeout=60)
row = {"value": given["lr"] + given["seed"] % 2, "run": os.environ["MLFLOW_RUN_ID"]}
with store:
    for table in ("metrics", "latest_metrics"):
        store.execute(
            f"INSERT INTO {table} (key, value, timestamp, run_uuid, step, is_nan)"
            " VALUES ('loss', :value, 1, :run, 0, 0)",
            row,
        )
"""
COMMAND = f"""\
echo "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" >> "$RUNS"
sleep 0.3
"{sys.executable}" score.py
"""


def write_sweep(directory: Path) -> Path:
    (directory / "score.py").write_text(SCORE, encoding="utf-8")
    tree: dict[str, Any] = {
        "name": "confirmed",
        "base": {
            "experiment_name": "confirmed",
            "command": COMMAND,
            "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
            "env_variables": {"RUNS": str(directory / "runs.txt")},
            "parameters": {"lr": 0.1, "seed": 0},
        },
        "space": {"parameters.lr": [0.1, 0.2]},
        "replicates": {"key": "parameters.seed", "values": [0, 1]},
        "objective": {"metric": "loss", "goal": "minimize"},
        "limits": {"concurrent": 2},
        "retry": {"max": 0},
    }
    path = directory / "sweep.yaml"
    path.write_text(json.dumps(tree), encoding="utf-8")
    return path


def start(directory: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*AIRFLOWS, *words, "-o", "json"],
        env={**os.environ, "AIRFLOWS_HOME": str(directory / "home")},
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def document(directory: Path, *words: str) -> dict[str, Any]:
    process = start(directory, *words)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, out
    made: dict[str, Any] = json.loads(out)
    return made


def started(directory: Path) -> list[str]:
    return (directory / "runs.txt").read_text(encoding="ascii").split()


@pytest.mark.parametrize("added", [1, 3])
def test_killed_while_replicates_run_each_runs_once(tmp_path: Path, added: int) -> None:
    assert document(tmp_path, "sweep", str(write_sweep(tmp_path)), "--yes")["state"] == "succeeded"
    process = start(tmp_path, "resume", "confirmed", "--replicates", "2")
    until(lambda: len(started(tmp_path)) >= 4 + added, "an added trial has started", patience_s=PATIENCE_S)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL

    assert document(tmp_path, "resume", "confirmed", "--replicates", "2")["trials"]["succeeded"] == 8
    assert Counter(started(tmp_path)) == {f"{number}.0": 1 for number in range(8)}
    ranked = document(tmp_path, "results", "confirmed")["ranked"]
    assert [(group["n"], len(group["trials"])) for group in ranked] == [(4, 4), (4, 4)]

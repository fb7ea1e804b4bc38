"""kill -9 of a real `airflows sweep` at random moments: each attempt runs once, none is lost, one winner."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflows.ledger import open_ledger

AIRFLOWS = [sys.executable, "-m", "airflows.cli"]
TRIALS = 8
# Trial 3's first attempt fails, so that retries are among what is interrupted.
COMMAND = """\
echo "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" >> "$RUNS"
sleep 0.2
[ "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" != 3.0 ] || exit 1
"""
SCORE = """\
import os
import yaml
from mlflow.tracking import MlflowClient
with open(os.environ["HYPERPARAMETERS_PATH"], encoding="utf-8") as file:
    seed = yaml.safe_load(file)["seed"]
MlflowClient().log_metric(os.environ["MLFLOW_RUN_ID"], "loss", (seed - 5) ** 2)
"""


def write_sweep(directory: Path, *, metrics: bool) -> Path:
    command = COMMAND
    tree: dict[str, Any] = {"tracking": {"uri": "none"}}
    if metrics:
        (directory / "score.py").write_text(SCORE, encoding="utf-8")
        command += f'"{sys.executable}" "{directory}/score.py"\n'
        tree = {"objective": {"metric": "loss", "goal": "minimize"}}
    tree |= {
        "name": "killed",
        "base": {
            "experiment_name": "killed",
            "command": command,
            "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
            "env_variables": {"RUNS": str(directory / "runs.txt")},
            "parameters": {"seed": 0},
        },
        "space": {"parameters.seed": list(range(TRIALS))},
        "limits": {"concurrent": 2},
        "retry": {"wait": "0s"},
    }
    path = directory / "sweep.yaml"
    path.write_text(json.dumps(tree), encoding="utf-8")
    return path


def drive(path: Path, home: Path, kill_after_s: float | None) -> tuple[int, str]:
    env = {**os.environ, "AIRFLOWS_HOME": str(home)}
    process = subprocess.Popen(
        [*AIRFLOWS, "sweep", str(path), "--yes", "-o", "json"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        out, _ = process.communicate(timeout=120 if kill_after_s is None else kill_after_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        out, _ = process.communicate()
    return process.returncode, out


def run_with_kills(directory: Path, moments: list[float], *, metrics: bool) -> dict[str, Any]:
    """Kill the driver at each moment after its start, then let it end; check and return the document."""
    path = write_sweep(directory, metrics=metrics)
    home = directory / "home"
    for moment in moments:
        drive(path, home, moment)
    code, out = drive(path, home, None)
    document: dict[str, Any] = json.loads(out)

    assert (code, document["state"]) == (0, "succeeded")
    runs = Counter((directory / "runs.txt").read_text(encoding="ascii").split())
    expected = {f"{number}.0" for number in range(TRIALS)} | {"3.1"}
    assert dict(runs) == dict.fromkeys(expected, 1)
    ledger = open_ledger(home)
    attempts = {f"{a.number}.{a.attempt}" for a in ledger.attempts(document["sweep"])}
    ledger.close()
    assert attempts == expected
    return document


@pytest.mark.parametrize("seed", range(8))
def test_killed_at_random_moments_each_attempt_runs_exactly_once(tmp_path: Path, seed: int) -> None:
    moments = [random.Random(f"{seed}-{k}").uniform(0.15, 1.2) for k in range(3)]
    run_with_kills(tmp_path, moments, metrics=False)


@pytest.mark.parametrize("seed", range(2))
def test_killed_at_random_moments_the_winner_is_the_same(tmp_path: Path, seed: int) -> None:
    moments = [random.Random(f"winner-{seed}-{k}").uniform(0.5, 4.0) for k in range(3)]
    winner = run_with_kills(tmp_path, moments, metrics=True)["winner"]

    assert winner["overrides"] == {"parameters.seed": 5}
    assert (winner["value"], winner["n"]) == (0.0, 1)

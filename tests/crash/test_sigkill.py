"""kill -9 of a real `airflows sweep` at random moments: each attempt runs once, none is lost, one winner."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflows.ledger import open_ledger

AIRFLOWS = [sys.executable, "-m", "airflows.cli"]
TRIALS = 8
PATIENCE_S = 120
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


def write_sweep(directory: Path, *, metrics: bool, pack: int = 1) -> Path:
    command = COMMAND
    tree: dict[str, Any] = {"tracking": {"uri": "none"}, "pack": pack}
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


@dataclass(frozen=True)
class Moment:
    """Seconds after so many commands have started, over all drivers."""

    started: int
    seconds: float


def commands_started(directory: Path) -> int:
    try:
        return len((directory / "runs.txt").read_text(encoding="ascii").split())
    except FileNotFoundError:
        return 0


def drive(path: Path, home: Path, moment: Moment | None) -> tuple[int, str]:
    """Drive the sweep to its end, or to the moment of its death."""
    process = subprocess.Popen(
        [*AIRFLOWS, "sweep", str(path), "--yes", "-o", "json"],
        env={**os.environ, "AIRFLOWS_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        while moment is not None and commands_started(path.parent) < moment.started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.01)
                break
        out, _ = process.communicate(timeout=PATIENCE_S if moment is None else moment.seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        out, _ = process.communicate()
    return process.returncode, out


def moments(seed: str) -> list[Moment]:
    """One while the driver starts, one while it takes over and runs the first half, one in the second."""
    chance = random.Random(seed)
    return [
        Moment(0, chance.uniform(0.1, 1.5)),
        Moment(chance.randint(1, TRIALS // 2), chance.uniform(0, 0.25)),
        Moment(chance.randint(TRIALS // 2 + 1, TRIALS - 1), chance.uniform(0, 0.25)),
    ]


def run_with_kills(directory: Path, seed: str, *, metrics: bool, pack: int = 1) -> dict[str, Any]:
    """Kill the driver at each moment, then let it end; check and return the document."""
    path = write_sweep(directory, metrics=metrics, pack=pack)
    home = directory / "home"
    codes = [drive(path, home, moment)[0] for moment in moments(seed)]
    assert codes == [-signal.SIGKILL] * len(codes)
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
    run_with_kills(tmp_path, f"{seed}", metrics=False)


def test_killed_at_random_moments_each_packed_attempt_runs_exactly_once(tmp_path: Path) -> None:
    run_with_kills(tmp_path, "packed", metrics=False, pack=4)


@pytest.mark.parametrize("seed", range(2))
def test_killed_at_random_moments_the_winner_is_the_same(tmp_path: Path, seed: int) -> None:
    winner = run_with_kills(tmp_path, f"winner-{seed}", metrics=True)["winner"]

    assert winner["overrides"] == {"parameters.seed": 5}
    assert (winner["value"], winner["n"]) == (0.0, 1)

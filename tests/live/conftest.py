"""Real services that the live tests share; absent ones are a skip with the reason."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflows.ledger import open_ledger
from airflows.testing.slurm_cluster import Cluster, running, why_not
from airflows.testing.waiting import until

AIRFLOWS = [sys.executable, "-m", "airflows.cli"]
PATIENCE_S = 180
SLURM = Path(__file__).parent / "slurm"


def start(**settings) -> Iterator[Cluster]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with running(SLURM, **settings) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Cluster]:
    """A cluster with accounts, for all tests that do not ask for another."""
    yield from start(port=17100, maxarray=300, grace=10, enforce="limits,qos")


@pytest.fixture
def slurm(slurm_cluster, clean_env) -> Iterator[Cluster]:
    """The common cluster, whole, empty, and found by Slurm's commands."""
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        clean_env.delenv(name)
    clean_env.setenv("SLURM_CONF", slurm_cluster.conf)
    slurm_cluster.up()
    yield slurm_cluster
    slurm_cluster.clear()


@pytest.fixture
def slurm_without_accounts(clean_env) -> Iterator[Cluster]:
    """A cluster without slurmdbd, which forgets a job seconds after its end."""
    for cluster in start(port=17200, db=0, minage=2, nodes=2):
        clean_env.setenv("SLURM_CONF", cluster.conf)
        yield cluster


class Sweeping:
    """A sweep in a home of its own, driven by the real command."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.runs_file = directory / "runs.txt"
        self.drivers: list[subprocess.Popen] = []

    def write(self, command: str, trials: int, *, backend=None, **tree) -> Path:
        base = {
            "experiment_name": "live",
            "command": command,
            "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
            "env_variables": {"RUNS": str(self.runs_file)},
            "parameters": {"seed": 0},
        }
        base |= tree.pop("base", {})
        mapping = {
            "name": "live",
            "base": base,
            "space": {"parameters.seed": list(range(trials))},
            "retry": {"wait": "0s"},
            "tracking": {"uri": "none"},
            "backend": {
                "type": "slurm",
                "grace": 3,
                "patience": 5,
                "accelerators": {"GPU_1xA10": {"cpu": True}},
                **(backend or {}),
            },
            **tree,
        }
        path = self.directory / "sweep.yaml"
        path.write_text(json.dumps(mapping), encoding="utf-8")
        return path

    def start(self, *words) -> subprocess.Popen:
        env = {**os.environ, "AIRFLOWS_HOME": str(self.home)}
        command = [*AIRFLOWS, "sweep", str(self.directory / "sweep.yaml"), "--yes", "-o", "json", *words]
        with (self.directory / "driver.log").open("a") as log:
            process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True)
        self.drivers.append(process)
        return process

    def ask(self, *words) -> subprocess.CompletedProcess:
        """Run another command of airflows beside the driver."""
        env = {**os.environ, "AIRFLOWS_HOME": str(self.home)}
        return subprocess.run(
            [*AIRFLOWS, *words], env=env, capture_output=True, text=True, check=False, timeout=90
        )

    def end(self, process: subprocess.Popen) -> tuple[int, dict]:
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert out, (self.directory / "driver.log").read_text()
        return process.returncode, json.loads(out)

    def drive(self) -> tuple[int, dict]:
        return self.end(self.start())

    def runs(self) -> Counter:
        return Counter(self.runs_file.read_text().split()) if self.runs_file.exists() else Counter()

    def until(self, holds, seconds=60) -> None:
        log = self.directory / "driver.log"
        until(holds, lambda: f"what the driver says of it: {log.read_text()}", patience_s=seconds)

    def log(self, number: int, attempt: int) -> str:
        logs = self.home.glob(f"runs/*/{number}/a{attempt}/logs/node_0.log")
        return "".join(path.read_text() for path in logs)

    def attempts(self) -> list:
        ledger = open_ledger(self.home)
        try:
            return ledger.attempts(ledger.sweeps()[0].id)
        finally:
            ledger.close()

    def arrays(self) -> set[str]:
        return {path.read_text().split()[0] for path in self.home.glob("batches/*/*/job")}


@pytest.fixture
def new_sweeping(tmp_path):
    made = Sweeping(tmp_path)
    yield lambda: made
    for process in made.drivers:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture
def sweeping(slurm, new_sweeping) -> Sweeping:  # noqa: ARG001 - the cluster it runs on
    return new_sweeping()

"""kill -9 of a real `airflows sweep` that bursts: each attempt runs once, in one place, and none is lost."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict

import pytest

from airflows.ledger import open_ledger
from airflows.testing.cluster import Cluster
from airflows.testing.waiting import until
from airflows.trial import Reason

AIRFLOWS = [sys.executable, "-m", "airflows.cli"]
TRIALS = 6
PATIENCE_S = 120
# The first attempt of trial 1 fails, wherever it runs.
COMMAND = """\
echo "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" >>"$RUNS"
sleep 0.5
[ "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" != 1.0 ] || exit 1
"""


@pytest.fixture
def cluster():
    with Cluster(namespaces=["ml"], claims=["data"], execute=True, clock_scale=1) as made:
        made.pods.plan(start_s=0.1)
        yield made


class Burst:
    """A sweep on this machine and on a cluster, and the drivers that drive it."""

    def __init__(self, directory, cluster):
        self.home, self.cluster = directory / "home", cluster
        self._path = directory / "sweep.yaml"
        self._runs = directory / "runs.txt"

    def write(self, first):
        volume = self.cluster.claim("data")
        volume.mkdir(parents=True)
        kubernetes = {
            "type": "kubernetes",
            "kubeconfig": str(self.cluster.kubeconfig),
            "image": "python:3.11",
            "patience": 2,
            "pvc": {"claim": "data", "mount": str(volume), "local": str(volume)},
            "concurrent": 1,
        }
        places = [{"type": "local", "concurrent": 1}, kubernetes]
        one, other = places if first == "local" else reversed(places)
        base = {
            "experiment_name": "killed",
            "command": COMMAND,
            "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
            "env_variables": {"RUNS": str(self._runs)},
            "parameters": {"seed": 0},
        }
        tree = {
            "name": "killed",
            "base": base,
            "space": {"parameters.seed": list(range(TRIALS))},
            "retry": {"wait": "0s"},
            "tracking": {"uri": "none"},
            "checkpoint": {"dir": str(volume)},
            "backend": {"type": "burst", "first": one, "then": other, "after": "1s"},
        }
        self._path.write_text(json.dumps(tree))

    @contextlib.contextmanager
    def driver(self):
        command = [*AIRFLOWS, "sweep", str(self._path), "--yes", "-o", "json"]
        env = {**os.environ, "AIRFLOWS_HOME": str(self.home)}
        with self._path.with_name("driver.log").open("a") as log:
            process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def kill_when(self, has_come):
        """Start a driver, and kill it at a moment."""
        with self.driver() as process:
            until(
                lambda: has_come() or process.poll() is not None,
                self.log,
                patience_s=PATIENCE_S,
                pause_s=0.01,
            )
            assert process.poll() is None, self.log()
            process.send_signal(signal.SIGKILL)

    def end(self):
        with self.driver() as process:
            out, _ = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, json.loads(out)["state"]) == (0, "succeeded"), self.log()

    def log(self):
        return self._path.with_name("driver.log").read_text()

    def ran(self):
        return Counter(self._runs.read_text().split()) if self._runs.exists() else Counter()

    def jobs(self):
        """The names of all Jobs that were ever made: one that is cancelled goes."""
        return [told["metadata"]["name"] for kind, told in self.cluster.changes("jobs") if kind == "ADDED"]

    def started_here(self):
        return [path.name for path in (self.home / "claims").glob("*")]

    def is_moving(self):
        """Whether a trial is on its way from one place to the other."""
        with self.ledger() as ledger:
            return any(a.reason == Reason.MOVED for a in ledger.attempts(ledger.sweeps()[0].id))

    @contextlib.contextmanager
    def ledger(self):
        opened = open_ledger(self.home)
        try:
            yield opened
        finally:
            opened.close()

    def require_one_place(self):
        """Each attempt ran where the ledger says, once, and nowhere else; what moved never ran."""
        with self.ledger() as ledger:
            sweep = ledger.sweeps()[0].id
            attempts, trials = ledger.attempts(sweep), ledger.trials(sweep)
        by_place = defaultdict(set)
        for attempt in attempts:
            by_place[attempt.backend].add(attempt.token)
        assert by_place == {"local": set(self.started_here()), "kubernetes": set(self.jobs())}
        assert len(self.jobs()) == len(by_place["kubernetes"])
        moved = [a for a in attempts if a.reason == Reason.MOVED]
        assert all(a.backend == "kubernetes" and a.started_at is None for a in moved)
        assert self.ran() == Counter(f"{a.number}.{a.attempt}" for a in attempts if a not in moved)
        assert {trial.state for trial in trials} == {"succeeded"}
        assert len(trials) == TRIALS
        return moved


@pytest.fixture
def burst(tmp_path, cluster, clean_env):
    del clean_env
    return Burst(tmp_path, cluster)


def test_killed_while_trials_overflow_each_attempt_runs_once_in_one_place(burst):
    burst.write("local")

    burst.kill_when(burst.jobs)
    burst.kill_when(lambda: burst.ran()["1.1"])
    burst.kill_when(lambda: len(burst.ran()) > TRIALS // 2)
    burst.end()

    assert burst.require_one_place() == []


def test_killed_while_trials_are_moved_each_attempt_runs_once_in_one_place(burst, cluster):
    cluster.pods.plan(job="*-000[023]-a0", unschedulable="0/3 nodes are available.")
    burst.write("kubernetes")

    burst.kill_when(burst.jobs)
    burst.kill_when(burst.is_moving)
    burst.kill_when(burst.started_here)
    burst.end()

    assert 0 in {a.number for a in burst.require_one_place()}

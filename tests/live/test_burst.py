"""A full Slurm partition, whose overflow goes to a workspace: a real Slurm, and a fake workspace that runs it."""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from airflows.backends.burst import BurstBackend, BurstSettings
from airflows.backends.databricks import DatabricksBackend, DatabricksSettings
from airflows.backends.slurm import SlurmBackend, SlurmSettings
from airflows.testing.contract import PlaceContract
from airflows.testing.workspace import FakeWorkspace
from airflows.trial import Reason

pytestmark = pytest.mark.live

VOLUME = Path("/Volumes/main/ml/runs")
# With nothing but the standard library: importing MLflow's client takes seconds.
LOGS = """\
import json, os, urllib.request
body = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": "loss", "value": float(os.environ["AIRFLOWS_TRIAL"])}
request = urllib.request.Request(
    os.environ["DATABRICKS_HOST"] + "/api/2.0/mlflow/runs/log-metric",
    json.dumps({**body, "timestamp": 1, "step": 0}).encode(),
    {"Authorization": "Bearer " + os.environ["DATABRICKS_TOKEN"], "Content-Type": "application/json"},
)
urllib.request.urlopen(request, timeout=30).close()
"""
# Of seven; what runs then runs on Slurm.
MOST_UNTIL_THEN = 3
COUNTS = 'echo "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" >>"$RUNS"; sleep 1; '


@pytest.fixture
def workspace(clean_env):
    with FakeWorkspace(execute=True, clock_scale=1.0, default={"queue_s": 0.0}) as made:
        for name, value in made.environment.items():
            clean_env.setenv(name, value)
        yield made


@pytest.fixture
def volume():
    """A directory that a cluster has mounted where the workspace's volume is."""
    top = next(path for path in (VOLUME, *VOLUME.parents) if path.parent.exists())
    VOLUME.mkdir(parents=True, exist_ok=True)
    yield VOLUME
    shutil.rmtree(top)


@pytest.mark.usefixtures("slurm")
class TestSlurmBeforeAWorkspace(PlaceContract):
    patience_s = 90.0

    @pytest.fixture
    def reopen(self, tmp_path, workspace):
        del workspace
        opened = {
            "slurm": lambda home: SlurmBackend(SlurmSettings(grace=2, patience=10), home / "slurm"),
            "databricks": lambda home: DatabricksBackend(DatabricksSettings(patience=5), home),
        }
        settings = BurstSettings(first="slurm", then="databricks")
        return lambda: BurstBackend(settings, tmp_path, open_one=lambda one, home: opened[one["type"]](home))

    @pytest.fixture
    def backend(self, reopen):
        return reopen()


@pytest.fixture
def overflowing(slurm, sweeping, volume):
    """A sweep on Slurm and a workspace, and a partition that somebody else has filled."""
    script = sweeping.directory / "log.py"
    script.write_text(LOGS)
    slurm.run("sbatch", "--array=1-9", "--exclusive", "--output=/dev/null", "--wrap", "sleep 600")
    path = sweeping.write(
        f'{COUNTS} "{sys.executable}" "{script}"',
        7,
        objective={"metric": "loss", "goal": "minimize"},
        tracking={},
        checkpoint={"dir": str(volume)},
    )
    tree = json.loads(path.read_text())
    tree["backend"] = {
        "type": "burst",
        "first": {**tree["backend"], "concurrent": 4},
        "then": {"type": "databricks", "concurrent": 1, "patience": 5},
        "after": "4s",
    }
    path.write_text(json.dumps(tree))
    return sweeping


def test_what_waits_in_a_full_partition_goes_to_the_workspace(slurm, overflowing, workspace):
    driving = overflowing.start()
    overflowing.until(lambda: has_moved(overflowing), seconds=150)
    slurm.run("scancel", "--name=wrap")

    require_one_place(overflowing, workspace, *overflowing.end(driving))


def test_killed_while_it_bursts_each_attempt_runs_once_in_one_place(slurm, overflowing, workspace):
    kill_when(overflowing, lambda: workspace.runs)
    kill_when(overflowing, lambda: is_moving(overflowing))
    slurm.run("scancel", "--name=wrap")
    kill_when(overflowing, lambda: len(overflowing.runs()) > MOST_UNTIL_THEN)

    require_one_place(overflowing, workspace, *overflowing.drive())


def kill_when(sweeping, has_come):
    """Start a driver, and kill it at a moment."""
    driving = sweeping.start()
    sweeping.until(has_come, seconds=150)
    assert driving.poll() is None
    driving.kill()
    driving.communicate()


def has_moved(sweeping):
    return list(sweeping.home.glob("runs/*/*/a1"))


def is_moving(sweeping):
    return any(a.reason == Reason.MOVED for a in sweeping.attempts())


def require_one_place(sweeping, workspace, code, document):
    """Each trial ran once, in one place, and the ledger, the claims and MLflow tell it alike."""
    assert (code, document["state"], document["winner"]["trial"]) == (
        0,
        "succeeded",
        f"{document['sweep']}/0",
    )
    attempts = sweeping.attempts()
    tokens = Counter(run.submission.token for run in workspace.runs)
    assert tokens == Counter(a.token for a in attempts if a.backend == "databricks")
    ran = {f"{a.number}.{a.attempt}": a for a in attempts if a.reason != Reason.MOVED}
    assert sweeping.runs() == Counter(ran.keys())
    assert sorted(a.number for a in ran.values()) == list(range(7))
    assert {a.backend for a in ran.values()} == {"slurm", "databricks"}
    moved = [a for a in attempts if a.reason == Reason.MOVED]
    assert {(a.backend, a.started_at) for a in moved} == {("slurm", None)}
    claimed = {path.name.rpartition(".")[0] for path in (sweeping.home / "claims").iterdir()}
    assert not claimed & {a.token for a in moved}
    store = workspace.world.mlflow.store
    experiment = store.get_experiment_by_name("/Users/kim@example.com/live").experiment_id
    runs = store.search_runs([experiment], "", 1, 99)
    trials = [run for run in runs if run.data.tags.get("airflows.role") == "trial"]
    assert Counter(run.info.status for run in trials) == {"FINISHED": 7}
    shown = json.loads(sweeping.ask("results", document["sweep"], "-o", "json").stdout)
    assert {one["place"]: len(one["trials"]) for one in shown["places"]} == Counter(
        a.backend for a in ran.values()
    )

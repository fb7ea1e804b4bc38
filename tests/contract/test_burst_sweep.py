"""Sweeps on a cluster with a queue, and behind it a fake Databricks workspace, which makes MLflow runs itself."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow.entities import Metric

from airflows.backends.burst import BurstBackend, BurstSettings
from airflows.backends.databricks import DatabricksBackend, DatabricksSettings
from airflows.engine.drive import Drive
from airflows.engine.results import gather
from airflows.engine.sharing import require_shared_checkpoints, shared_checkpoints
from airflows.engine.site import Site, open_site
from airflows.engine.start import begin, require_backend
from airflows.errors import SpecError
from airflows.ledger import SweepState, open_ledger
from airflows.sweepfile import sweep_from_mapping
from airflows.testing.crash import Ticks
from airflows.testing.fake import FakeCluster, QueueingBackend, Script
from airflows.testing.workspace import FakeWorkspace
from airflows.tracking import open_tracker
from airflows.trial import Reason, State

BASE = {
    "experiment_name": "ner",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"seed": 0},
}


VOLUME = "/Volumes/main/ml/runs"


class Cluster(QueueingBackend):
    """A cluster that sees none of this machine's disks."""

    checkpoint_root = Path(VOLUME)

    @property
    def capabilities(self):
        return replace(super().capabilities, uploads=True)

    def newest_checkpoint(self, _directory, _pattern):
        return None


class Clock:
    """The workspace's time, as the fake cluster takes it."""

    def __init__(self, workspace):
        self._workspace = workspace

    def __call__(self):
        return self._workspace.clock.now()

    def advance(self, seconds):
        self._workspace.advance(max(seconds, 0.5))


@pytest.fixture
def workspace(home, clean_env):
    del home
    with FakeWorkspace(default={"queue_s": 1.0, "run_s": 4.0, "metrics": {"loss": [0.5]}}) as made:
        for name, value in made.environment.items():
            clean_env.setenv(name, value)
        yield made


def experiment_of(workspace):
    return workspace.world.mlflow.store.get_experiment_by_name("/Users/kim@example.com/ner").experiment_id


def runs_of(workspace, sweep):
    """Return the active MLflow runs of the sweep's trials."""
    runs = workspace.world.mlflow.store.search_runs([experiment_of(workspace)], "", 1, 99)
    wanted = {"airflows.sweep": sweep, "airflows.role": "trial"}
    return [run for run in runs if wanted.items() <= run.data.tags.items()]


@pytest.fixture
def drive(home, workspace):
    """Drive a sweep to its end; return (row, ledger, results)."""
    opened = []

    def go(scripts, *, count=3, **tree):
        mapping = {
            "name": "ner",
            "base": BASE,
            "space": {"parameters.seed": list(range(count))},
            "objective": {"metric": "loss", "goal": "minimize"},
            "retry": {"wait": "1s"},
            "checkpoint": {"dir": VOLUME},
            **tree,
        }
        clock = Clock(workspace)
        cluster = FakeCluster(clock, scripts)

        def log(job):
            store = workspace.world.mlflow.store
            store.log_metric(
                job.env["MLFLOW_RUN_ID"], Metric("loss", 0.1 + job.number, int(clock() * 1000), 1)
            )

        cluster.on_end = log

        def open_one(options, place_home):
            if options["type"] == "fake":
                return Cluster(cluster, home / "fake")
            return DatabricksBackend(DatabricksSettings(patience=20), place_home, clock=clock)

        settings = BurstSettings(
            first={"type": "fake", "concurrent": 2}, then={"type": "databricks", "concurrent": 1}, after=5
        )
        burst = BurstBackend(settings, home / "root", open_one=open_one)
        tracker = open_tracker("databricks", home, clock=clock, is_service=True, is_shared=True)
        ledger = open_ledger(home)
        opened.append(ledger)
        site = Site(home, sweep_from_mapping(mapping, directory=home), ledger, burst, tracker)
        row = begin(site, now=clock(), new=True, code=site.prepare_code()).row
        row = Drive(site, Ticks(most=800), clock=clock).run(row.id)
        return row, ledger, gather(ledger, row)

    yield go
    for ledger in opened:
        ledger.close()


def test_each_trial_has_one_run_wherever_it_ran(workspace, drive):
    row, ledger, results = drive(lambda job: Script(seconds=4, queued=0.0 if job.number == 0 else 900.0))

    assert row.state is SweepState.SUCCEEDED
    trials = ledger.trials(row.id)
    assert [trial.backend for trial in trials] == ["fake", "databricks", "databricks"]
    assert [trial.value for trial in trials] == [0.1, 0.5, 0.5]
    assert results.winner["trial"] == f"{row.id}/0"
    runs = runs_of(workspace, row.id)
    # What was made for an attempt that never started is gone.
    assert {run.info.run_id for run in runs} == {trial.run_id for trial in trials}
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert Counter(run.data.tags["mlflow.parentRunId"] for run in runs) == {row.parent_run_id: 3}


def test_what_failed_in_the_workspace_goes_on_in_its_run_on_the_cluster(workspace, drive):
    workspace.outcome(
        {"run_s": 4.0, "result": "INTERNAL_ERROR", "metrics": {"loss": [9.0]}}, token="*-0002-a0"
    )

    # Both of the cluster's places are taken until long after.
    row, ledger, _ = drive(lambda job: Script(seconds=4.0 if job.attempt else 3.0))

    assert row.state is SweepState.SUCCEEDED
    first, second = ledger.attempts(row.id, 2)
    assert (first.backend, first.reason, second.backend) == ("databricks", Reason.NODE_FAILED, "fake")
    (trial,) = ledger.trials(row.id, numbers=[2])
    (run,) = [run for run in runs_of(workspace, row.id) if run.data.tags["airflows.trial"] == "2"]
    assert (run.info.run_id, run.info.status, trial.value) == (trial.run_id, "FINISHED", 2.1)


def test_what_failed_on_the_cluster_keeps_its_metrics_when_it_goes_on_in_the_workspace(workspace, drive):
    def scripts(job):
        return Script(seconds=2, exit_code=None, word="PREEMPTED") if job.number == 1 else Script(seconds=60)

    row, ledger, _ = drive(scripts, count=3)

    backends = [attempt.backend for attempt in ledger.attempts(row.id, 1)]
    assert backends[0] == "fake"
    assert {trial.state for trial in ledger.trials(row.id)} <= {State.SUCCEEDED, State.FAILED}
    assert "RUNNING" not in {run.info.status for run in runs_of(workspace, row.id)}


def burst_site(home, backend, **tree):
    mapping = {"name": "ner", "base": BASE, "space": {"parameters.seed": [0, 1]}, **tree}
    return open_site(sweep_from_mapping({**mapping, "backend": backend}, directory=home), home)


@pytest.mark.usefixtures("workspace")
class TestWhatIsCheckedBeforehand:
    BACKEND = {"type": "burst", "first": "local", "then": "databricks"}  # noqa: RUF012

    def test_checkpoints_must_be_named_where_no_disk_is_shared(self, home):
        with pytest.raises(SpecError, match="local, databricks share no directory") as caught:
            require_backend(burst_site(home, self.BACKEND))
        assert caught.value.field == "checkpoint.dir"

    def test_checkpoints_must_be_where_the_workspace_sees_them(self, home):
        with pytest.raises(SpecError, match="no directory that trials on databricks see"):
            require_backend(burst_site(home, self.BACKEND, checkpoint={"dir": str(home)}))

    def test_checkpoints_must_be_where_the_others_see_them(self, home):
        with pytest.raises(SpecError, match="Mount it here and where trials of local run"):
            require_backend(burst_site(home, self.BACKEND, checkpoint={"dir": "/Volumes/main/ml/none"}))

    def test_another_mlflow_than_the_workspace_s_is_refused(self, home):
        with pytest.raises(SpecError, match="log to the MLflow of their workspace"):
            burst_site(home, self.BACKEND, tracking={"uri": "http://elsewhere"})


@pytest.mark.parametrize(
    "space",
    [
        {"compute.num_accelerators": [1, 2]},
        {"compute": [{"accelerator_type": "GPU_1xA10", "num_accelerators": n} for n in (1, 2)]},
    ],
)
def test_what_a_place_sets_cannot_be_in_the_space(home, space):
    then = {"type": "local", "name": "other", "compute": {"num_accelerators": 2}}
    backend = {"type": "burst", "first": "local", "then": then}
    site = burst_site(home, backend, space=space)

    with pytest.raises(SpecError, match="differs between the trials, and the place other gives it a value"):
        require_backend(site)


def test_two_roots_of_clusters_need_a_directory_for_checkpoints(home):
    two = [{"type": "slurm", "name": name, "root": f"{home}/{name}"} for name in ("one", "two")]
    site = burst_site(home, {"type": "burst", "first": two[0], "then": two[1:]})

    with pytest.raises(SpecError, match="one, two share no directory"):
        require_shared_checkpoints(site.spec.checkpoint, site.places, home)
    named = site.spec.checkpoint.model_copy(update={"dir": "ckpt"})
    require_shared_checkpoints(named, site.places, home)
    assert shared_checkpoints(named, site.places) is named


def test_places_on_one_disk_share_its_checkpoints(home):
    backend = {"type": "burst", "first": "local", "then": {"type": "slurm", "root": f"{home}/shared"}}
    site = burst_site(home, backend)

    assert shared_checkpoints(site.spec.checkpoint, site.places).dir == f"{home}/shared/checkpoints"

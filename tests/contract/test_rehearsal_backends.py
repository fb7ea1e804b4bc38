"""Rehearsals where trials see no disk of this machine: killed, resumed and judged all the same."""

import json
from pathlib import PurePosixPath

from airflows import api
from airflows.backends.databricks import DatabricksBackend, DatabricksSettings
from airflows.engine.drive import Drive
from airflows.engine.gathering import gather_evidence
from airflows.engine.rehearsals import Request, rehearse
from airflows.engine.site import Site
from airflows.engine.start import begin
from airflows.ledger import open_ledger
from airflows.rehearsal.casting import cast_of
from airflows.rehearsal.judgement import Wanted, judge
from airflows.rehearsal.rows import Mark
from airflows.rehearsal.script import Script
from airflows.rehearsal.sweep import rehearsal_of
from airflows.sweepfile import sweep_from_mapping
from airflows.testing.cluster import Cluster
from airflows.testing.crash import Ticks
from airflows.testing.workspace import FakeWorkspace
from airflows.tracking import open_tracker
from airflows.trial import Reason

SAVES = """
import os, pathlib, threading
kept, resume = pathlib.Path(os.environ["AIRFLOWS_CHECKPOINT_DIR"]), os.environ["AIRFLOWS_RESUME_FROM"]
step = int(resume.rpartition("-")[2]) if resume else 0
while True:
    step += 1
    aside = kept / f".{step}.tmp"
    aside.mkdir()
    (aside / "trainer_state.json").write_text("{}")
    aside.rename(kept / f"checkpoint-{step}")
    threading.Event().wait(0.3)
"""
BASE = {
    "experiment_name": "demo",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"lr": 0.1},
}


def test_a_rehearsal_on_kubernetes_sees_checkpoints_on_the_volume(clean_env, home, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(SAVES)
    with Cluster(namespaces=["ml"], execute=True, clock_scale=1) as cluster:
        cluster.put("persistentvolumeclaims", {"metadata": {"name": "data"}})
        clean_env.setenv("KUBECONFIG", str(cluster.kubeconfig))
        pvc = {"claim": "data", "mount": "/mnt/ml", "local": str(cluster.claim("data"))}
        tree = {
            "name": "kube",
            "base": BASE
            | {
                "command": "exec python $CODE_SOURCE_PATH/train.py",
                "code_source": {"root_path": "src"},
            },
            "space": {"parameters.lr": [0.1]},
            "tracking": {"uri": "none"},
            "backend": {"type": "kubernetes", "image": "python:3.11", "pvc": pvc, "code": "config_map"},
        }
        path = tmp_path / "sweep.yaml"
        path.write_text(json.dumps(tree))

        done = rehearse(
            api.load_sweep(path).loaded, Request(timeout_s=60.0), home=home, on_begun=lambda *_: None
        )
    resumes = next(row for row in done.rows if row.check == "resumes")
    assert done.is_go, done.rows
    assert resumes.words.startswith("started again (by now it has checkpoint-"), resumes


def test_a_rehearsal_on_databricks_joins_the_runs_of_both_attempts(clean_env, home):
    with FakeWorkspace(default={"queue_s": 2.0, "run_s": 600.0}) as workspace:
        for name, value in workspace.environment.items():
            clean_env.setenv(name, value)
        # Both attempts log steps from 0 on: the second one has not resumed.
        workspace.outcome({"run_s": 60.0, "metrics": {"loss": [1 / n for n in range(1, 21)]}}, token="*")
        place = workspace.world.files.place("/Volumes/main/ml/runs/checkpoints")
        original = workspace.advance

        def advance(seconds):
            original(seconds)
            if workspace.runs and not place.exists():
                script = PurePosixPath(workspace.runs[0].ai_task["deployments"][0]["command_path"])
                directory = place / script.parent.name.rpartition("_")[0] / "0" / "checkpoint-1"
                directory.mkdir(parents=True)
                (directory / "trainer_state.json").write_text("{}")

        workspace.advance = advance
        rows, trial, attempts = _rehearsed(workspace, home)

    assert [each.reason for each in attempts] == [Reason.PAUSED, Reason.RULE]
    assert "killed by the rehearsal after step" in attempts[0].message
    assert trial.run_id
    assert rows["metric loss"].mark is Mark.OK
    assert (rows["resumes"].mark, "began again" in rows["resumes"].words) == (Mark.FAIL, True)


def _rehearsed(workspace, home):
    """Rehearse a sweep at the workspace's time; return (rows by check, the trial, its attempts)."""
    objective = {"metric": "loss", "goal": "minimize"}
    tree = {"name": "demo", "base": BASE, "space": {"parameters.lr": [0.1]}, "objective": objective}
    sweep = sweep_from_mapping(tree, directory=home)
    cast = cast_of(sweep)
    rehearsal = rehearsal_of(sweep, cast, Script("demo", 1, 3, 300.0, ("loss",)))
    clock = workspace.clock.now
    backend = DatabricksBackend(
        DatabricksSettings(patience=20, volume="/Volumes/main/ml/runs"),
        home / "root",
        clock=clock,
        pause=lambda seconds: workspace.advance(max(seconds, 0.5)),
    )
    tracker = open_tracker("databricks", home, clock=clock, is_service=True)
    ledger = open_ledger(home)
    try:
        site = Site(home, rehearsal, ledger, backend, tracker)
        row = Drive(site, Ticks(), clock=clock).run(begin(site, now=clock(), new=True).row.id)
        rows = judge(cast, gather_evidence(site, row, ("loss",)), Wanted(metrics=("loss",)))
        (trial,) = ledger.trials(row.id)
        return {each.check: each for each in rows}, trial, ledger.attempts(row.id)
    finally:
        ledger.close()

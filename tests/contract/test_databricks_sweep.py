"""Sweeps on a fake Databricks workspace whose runs are scripted: what is asked of it, and what comes out."""

from collections import Counter
from pathlib import PurePosixPath

import pytest

from airflows.backends.databricks import DatabricksBackend, DatabricksSettings
from airflows.engine.drive import Drive
from airflows.engine.results import exit_status, gather
from airflows.engine.site import Site, open_site
from airflows.engine.start import begin, require_backend
from airflows.errors import SpecError
from airflows.ledger import SweepState, Wish, open_ledger
from airflows.sweepfile import sweep_from_mapping
from airflows.testing.crash import Ticks
from airflows.testing.workspace import FakeWorkspace
from airflows.tracking import open_tracker
from airflows.trial import Reason

BASE = {
    "experiment_name": "ner",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"seed": 0},
}
LOOKING = {
    *("jobs/runs/list", "jobs/runs/get", "jobs/runs/get-output", "logs"),
    *("mlflow/runs/search", "mlflow/metrics/get-history", "config"),
}


@pytest.fixture
def workspace(home, clean_env):
    del home
    with FakeWorkspace(default={"queue_s": 2.0, "run_s": 20.0}) as made:
        for name, value in made.environment.items():
            clean_env.setenv(name, value)
        yield made


@pytest.fixture
def notices():
    """Return what was said before the first trial, once a sweep was driven."""
    return []


@pytest.fixture
def drive(home, workspace, notices):
    """Drive a sweep to its end at the workspace's time; return (row, results, trials)."""
    opened = []

    def go(*, count=3, settings=None, **tree):
        mapping = {
            "name": "ner",
            "base": BASE,
            "space": {"parameters.seed": list(range(count))},
            "objective": {"metric": "loss", "goal": "minimize"},
            "retry": {"wait": "1s"},
            **tree,
        }
        sweep = sweep_from_mapping(mapping, directory=home)
        clock = workspace.clock.now
        backend = DatabricksBackend(
            settings or DatabricksSettings(patience=20),
            home / "root",
            clock=clock,
            pause=lambda seconds: workspace.advance(max(seconds, 0.5)),
        )
        tracker = open_tracker("databricks", home, clock=clock, is_service=True)
        ledger = open_ledger(home)
        opened.append(ledger)
        site = Site(home, sweep, ledger, backend, tracker)
        notices.extend(require_backend(site))
        row = begin(site, now=clock(), new=True, code=site.prepare_code()).row
        row = Drive(site, Ticks(), clock=clock).run(row.id)
        return row, gather(ledger, row), ledger.trials(row.id)

    yield go
    for ledger in opened:
        ledger.close()


def losses(workspace, values):
    for number, value in values.items():
        plan = {"queue_s": 2.0, "run_s": 20.0, "metrics": {"loss": [value + 1, value]}}
        workspace.outcome(plan, token=f"*-{number:04d}-a*")


def test_an_experiment_that_the_service_does_not_use_is_named(drive, notices):
    drive(count=1, tracking={"experiment": "mine"})

    assert [
        notice for notice in notices if notice.startswith("tracking.experiment is not used: on databricks")
    ]


def test_five_hundred_trials_cost_two_requests_each_and_survive_a_busy_workspace(workspace, drive):
    values = {number: ((number * 7919) % 500) / 100 for number in range(500)}
    losses(workspace, values)
    for kind in ("rate_limited", "unavailable"):
        workspace.fault(kind, probability=0.005, retry_after=0)

    row, results, trials = drive(count=500, limits={"concurrent": 20})

    assert row.state is SweepState.SUCCEEDED
    assert {trial.number: trial.value for trial in trials} == values
    assert results.winner["trial"].endswith(f"/{min(values, key=values.get)}")
    assert [len(run.attempts) for run in workspace.runs] == [1] * 500
    recorder = workspace.recorder
    answered = Counter(each.route for each in recorder.requests if not each.fault)
    assert sum(1 for each in recorder.requests if each.fault) > 10
    # Of each trial: its script, its submission; and MLflow is told whose the run is.
    own = ("workspace-files/import-file", "jobs/runs/submit", "mlflow/runs/log-batch")
    assert {route: round(answered[route] / 500, 1) for route in own} == dict.fromkeys(own, 1.0)
    once = sum(count for route, count in answered.items() if route not in {*own, *LOOKING})
    assert once < 30
    assert recorder.most_at_once <= 8
    assert most_in_flight(workspace) <= 20


def most_in_flight(workspace):
    moments = [(run.created_at, 1) for run in workspace.runs] + [(run.ended_at, -1) for run in workspace.runs]
    going, most = 0, 0
    for _, change in sorted(moments):
        going += change
        most = max(most, going)
    return most


def runs_in_mlflow(workspace):
    """Return the MLflow runs of the sweep's experiment by id."""
    store = workspace.world.mlflow.store
    experiment = store.get_experiment_by_name("/Users/kim@example.com/ner").experiment_id
    return {run.info.run_id: run for run in store.search_runs([experiment], "", 1, 100)}


def test_runs_are_tagged_and_listed_under_the_parent_run(workspace, drive):
    losses(workspace, {0: 0.5, 1: 0.25})

    row, results, trials = drive(count=2)

    runs = runs_in_mlflow(workspace)
    parent = runs.pop(row.parent_run_id)
    assert parent.info.status == "FINISHED"
    assert set(runs) == {trial.run_id for trial in trials} == {r.last.mlflow_run_id for r in workspace.runs}
    for trial in trials:
        run = runs[trial.run_id]
        tags = run.data.tags
        assert tags["mlflow.parentRunId"] == row.parent_run_id
        assert (tags["airflows.sweep"], tags["airflows.trial"]) == (row.id, str(trial.number))
        assert run.data.params["parameters.seed"] == str(trial.number)
        assert run.info.run_name.endswith(f"-{trial.number:04d}-a0")
    assert results.winner["value"] == 0.25


def test_a_retried_trial_s_curve_is_that_of_its_attempts(workspace, drive):
    failing = {"run_s": 4.0, "result": "INTERNAL_ERROR", "metrics": {"loss": [0.3, 0.2, 0.9, 0.1]}}
    workspace.outcome(failing, token="*-0000-a0")
    # Of the steps that both have the later attempt's values count; the last one only the first attempt had.
    workspace.outcome({"run_s": 6.0, "metrics": {"loss": [0.6, 0.5, 0.4]}}, token="*-0000-a1")
    workspace.outcome({**failing, "metrics": {"loss": [0.05]}}, token="*-0001-a0")
    workspace.outcome({"run_s": 6.0, "metrics": {"loss": [0.7]}}, token="*-0001-a1")
    objective = {"metric": "loss", "goal": "minimize", "take": "best"}

    row, _, trials = drive(count=2, objective=objective)

    assert row.state is SweepState.SUCCEEDED
    assert [(trial.attempt, trial.value) for trial in trials] == [(1, 0.1), (1, 0.7)]
    attempts = {run.submission.token[-7:]: run.last.mlflow_run_id for run in workspace.runs}
    assert [trial.run_id for trial in trials] == [attempts["0000-a1"], attempts["0001-a1"]]
    tags = runs_in_mlflow(workspace)[attempts["0000-a1"]].data.tags
    assert tags["airflows.earlier_run"] == attempts["0000-a0"]


def test_native_retries_are_one_attempt_and_nothing_is_tried_again_after_them(workspace, drive):
    failed = {"run_s": 2.0, "result": "FAILED", "exit_code": 3, "retry_s": 2.0}
    workspace.outcome({"attempts": [failed, {"run_s": 2.0, "metrics": {"loss": [0.5]}}]}, token="*-0000-*")
    workspace.outcome({"attempts": [failed]}, token="*-0001-*")
    base = {**BASE, "max_retries": 1}

    _, _, trials = drive(count=2, base=base, settings=DatabricksSettings(patience=5, retries="native"))

    assert [trial.state.value for trial in trials] == ["succeeded", "failed"]
    assert [trial.attempt for trial in trials] == [0, 0]
    assert [len(run.attempts) for run in workspace.runs] == [2, 2]
    assert trials[0].value == 0.5
    assert trials[1].exit_code == 3


def test_a_trial_that_timed_out_goes_on_if_its_checkpoint_in_the_volume_has_advanced(workspace, drive):
    place = workspace.world.files.place("/Volumes/main/ml/runs/checkpoints")
    workspace.outcome({"run_s": 2.0, "result": "TIMEDOUT"}, token="*-a0")
    workspace.outcome({"run_s": 2.0, "metrics": {"loss": [0.5]}}, token="*-0000-a1")
    settings = DatabricksSettings(patience=5, volume="/Volumes/main/ml/runs")

    original = workspace.advance

    def advance(seconds):
        original(seconds)
        if workspace.runs and not place.exists():
            script = PurePosixPath(workspace.runs[0].ai_task["deployments"][0]["command_path"])
            directory = place / script.parent.name.rpartition("_")[0] / "0" / "checkpoint-100"
            directory.mkdir(parents=True)
            (directory / "trainer_state.json").write_text("{}")

    workspace.advance = advance
    row, _, trials = drive(count=2, settings=settings)

    assert [trial.state.value for trial in trials] == ["succeeded", "failed"]
    assert trials[0].checkpoint == f"/Volumes/main/ml/runs/checkpoints/{row.id}/0/checkpoint-100"
    assert trials[0].checkpoint_step == 100
    assert (trials[1].attempt, trials[1].reason) == (0, Reason.TIMED_OUT)


def stop_once(workspace, home, is_time) -> None:
    """Ask for the sweep's end once, when the clock moves on and it is time."""
    advance, stopped = workspace.advance, []

    def watched(seconds):
        advance(seconds)
        if is_time() and not stopped:
            ledger = open_ledger(home)
            (row,) = ledger.sweeps(active_only=True)
            ledger.wish(row.id, Wish.STOP)
            ledger.close()
            stopped.append(row.id)

    workspace.advance = watched


def test_a_sweep_that_is_cancelled_leaves_nothing_running(workspace, drive, home):
    workspace.outcome({"run_s": None})
    stop_once(workspace, home, lambda: sum(run.last.started_at is not None for run in workspace.runs) == 3)
    row, _, trials = drive(count=3)

    assert row.state is SweepState.CANCELLED
    assert {trial.state.value for trial in trials} == {"cancelled"}
    assert {run.result for run in workspace.runs} == {"CANCELED"}


def test_a_run_that_is_listed_late_is_cancelled_though_the_answer_to_its_submission_was_lost(
    workspace, drive, home
):
    workspace.outcome({"run_s": None})
    workspace.fault("bad_gateway", when="after", route="jobs/runs/submit", times=1)
    workspace.fault(route="jobs/runs/list", status=200, body="{}", times=3)
    stop_once(workspace, home, lambda: workspace.runs)
    row, _, trials = drive(count=1)

    assert (row.state, [trial.state.value for trial in trials]) == (SweepState.CANCELLED, ["cancelled"])
    assert [run.result for run in workspace.runs] == ["CANCELED"]


def test_another_mlflow_than_the_workspace_s_is_refused(home, workspace):
    del workspace
    mapping = {"name": "x", "base": BASE, "backend": "databricks", "tracking": {"uri": "http://elsewhere"}}

    with pytest.raises(SpecError, match=r"tracking\.uri: runs on databricks log to the MLflow"):
        open_site(sweep_from_mapping({**mapping, "include": [{}]}, directory=home), home)


IMPORT_ERROR = [
    "Traceback (most recent call last):",
    '  File "/Workspace/Users/kim@example.com/train.py", line 1, in <module>',
    "ModuleNotFoundError: No module named 'torchx'",
]


def test_identical_failures_end_the_sweep_early(workspace, drive):
    """O19."""
    workspace.outcome(
        {"queue_s": 1.0, "run_s": 1.0, "result": "FAILED", "exit_code": 1, "logs": IMPORT_ERROR}
    )

    row, results, trials = drive(count=100, limits={"concurrent": 4})

    assert row.state is SweepState.FAILED
    assert exit_status(results) == 1
    assert len(workspace.runs) < 8
    assert row.message.count("No module named") == 1
    assert "trials to fail all ended alike" in row.message
    assert sum(trial.state.value == "failed" for trial in trials) == len(workspace.runs)


def test_the_class_of_a_failure_decides_about_the_next_attempt(workspace, drive):
    """O20: memory, preemption, an error of the program, and a machine that went away."""
    memory = ["[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."]
    plan = {"queue_s": 1.0, "run_s": 2.0, "result": "FAILED"}
    workspace.outcome({**plan, "exit_code": 137, "logs": memory}, token="*-0000-*")
    workspace.outcome({**plan, "result": "SKIPPED"}, token="*-0001-a0")
    workspace.outcome({**plan, "exit_code": 1, "logs": IMPORT_ERROR}, token="*-0002-*")
    workspace.outcome({**plan, "result": "INTERNAL_ERROR"}, token="*-0003-a0")
    retry = {"wait": "1s", "max": 3}

    row, _, trials = drive(count=4, retry=retry, limits={"identical_failures": 0})

    assert row.state is SweepState.FAILED
    ends = {trial.number: (trial.state.value, trial.attempt, trial.reason.value) for trial in trials}
    assert ends[0] == ("failed", 0, "out_of_memory")
    assert ends[2] == ("failed", 1, "error")
    assert [ends[number][:2] for number in (1, 3)] == [("succeeded", 1)] * 2
    assert [trials[number].errors for number in (1, 3)] == [0, 0]
    assert trials[0].message.startswith("It ran out of memory. torch.OutOfMemoryError: CUDA out of memory.")
    assert "not tried again: the same error twice without progress" in trials[2].message
    assert not any("\n" in trial.message for trial in trials)

"""A lost ledger rebuilt on another machine, from nothing but the file, the workspace and its MLflow."""

import shutil
from collections import Counter

import pytest

from airflows.backends.databricks import DatabricksBackend, DatabricksSettings
from airflows.engine.drive import Drive
from airflows.engine.lost import in_mlflow
from airflows.engine.rebuild import rebuilt
from airflows.engine.results import gather
from airflows.engine.site import Site
from airflows.engine.start import begin
from airflows.errors import NotFoundError
from airflows.ledger import SweepState, open_ledger
from airflows.sweepfile import sweep_from_mapping
from airflows.testing.crash import Boundaries, Died, Ticks, Watched
from airflows.testing.workspace import FakeWorkspace
from airflows.tracking import open_tracker

TREE = {
    "name": "ner",
    "base": {
        "experiment_name": "ner",
        "command": "true",
        "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
        "parameters": {"seed": 0},
    },
    "space": {"parameters.seed": [0, 1, 2, 3, 4, 5]},
    "objective": {"metric": "loss", "goal": "minimize"},
    "retry": {"wait": "1s", "max": 1},
    "limits": {"concurrent": 2},
}
TOKENS = {"0-a0", "1-a0", "2-a0", "2-a1", "3-a0", "3-a1", "4-a0", "5-a0"}


@pytest.fixture
def workspace(home, clean_env):
    """Trial 2 loses its machine once, trial 3 fails for good; the losses differ."""
    del home
    with FakeWorkspace(default={"queue_s": 2.0, "run_s": 20.0}) as made:
        for name, value in made.environment.items():
            clean_env.setenv(name, value)
        for number in range(6):
            plan = {"queue_s": 2.0, "run_s": 20.0 + number, "metrics": {"loss": [3.0, (number - 4.5) ** 2]}}
            made.outcome(plan, token=f"*-{number:04d}-a*")
        made.outcome({"run_s": 5.0, "result": "INTERNAL_ERROR"}, token="*-0002-a0")
        made.outcome(
            {"run_s": 5.0, "result": "FAILED", "exit_code": 1, "logs": ["ValueError: x"]}, token="*-0003-*"
        )
        yield made


@pytest.fixture
def open_site(home, workspace):
    """Return what a process on a machine works with."""
    opened = []

    def on(machine, boundaries=None):
        sweep = sweep_from_mapping(TREE, directory=home)
        clock = workspace.clock.now
        backend = DatabricksBackend(
            DatabricksSettings(patience=20),
            home / machine / "root",
            clock=clock,
            pause=lambda seconds: workspace.advance(max(seconds, 0.5)),
        )
        ledger = open_ledger(home / machine)
        opened.append(ledger)
        tracker = open_tracker("databricks", home, clock=clock, is_service=True)
        watched = backend if boundaries is None else Watched(backend, ("submit",), boundaries)
        return Site(home / machine, sweep, ledger, watched, tracker)

    yield on
    for ledger in opened:
        ledger.close()


def drive(site, workspace, ticks=None):
    clock = workspace.clock.now
    sweep = begin(site, now=clock(), code=site.prepare_code()).row.id
    driving = Drive(site, Ticks(), clock=clock)
    if ticks is not None:
        driving.observer = Ticks({ticks: driving.pause})
    return driving.run(sweep)


def rebuild(site, workspace):
    clock = workspace.clock.now
    row = rebuilt(site, in_mlflow(site), now=clock()).row
    return Drive(site, Ticks(), clock=clock).run(row.id)


def check_once(workspace):
    submitted = Counter(run.submission.token.rpartition("-000")[2] for run in workspace.runs)
    assert submitted == dict.fromkeys(TOKENS, 1)


def told(site, row):
    trials = [
        (t.number, t.state, t.reason, t.attempt, t.value, t.value_step, t.run_id, t.handle)
        for t in site.ledger.trials(row.id)
    ]
    attempts = [
        (a.token, a.handle, a.state, a.reason, a.signature, a.exit_code, a.started_at, a.ended_at)
        for a in site.ledger.attempts(row.id)
    ]
    return (
        row.id,
        row.state,
        row.message,
        row.parent_run_id,
        gather(site.ledger, row).winner,
        trials,
        attempts,
    )


def test_an_ended_sweep_is_the_same_on_another_machine(workspace, open_site):
    here = open_site("here")
    before = told(here, drive(here, workspace))
    assert before[1] is SweepState.FAILED
    check_once(workspace)

    there = open_site("there")
    after = told(there, rebuild(there, workspace))

    assert after == before
    check_once(workspace)


@pytest.mark.parametrize("ticks", [3, 25, 40, 60])
def test_a_sweep_that_runs_goes_on_from_another_machine(home, workspace, open_site, ticks):
    drive(open_site("here"), workspace, ticks)
    shutil.rmtree(home / "here")

    there = open_site("there")
    row = rebuild(there, workspace)

    assert row.state is SweepState.FAILED
    check_once(workspace)
    trials = there.ledger.trials(row.id)
    assert [trial.value for trial in trials] == [20.25, 12.25, 6.25, None, 0.25, 0.25]
    assert gather(there.ledger, row).winner["trial"] == f"{row.id}/4"


def test_runs_that_mlflow_does_not_know_yet_are_found_by_their_tokens(home, workspace, open_site):
    # Submitted, and nothing was written down of it.
    boundaries = Boundaries(die_if=lambda name: name == "after submit")
    with pytest.raises(Died):
        drive(open_site("here", boundaries), workspace)
    shutil.rmtree(home / "here")
    assert len(workspace.runs) == 2

    rebuild(open_site("there"), workspace)

    check_once(workspace)


def test_a_sweep_that_nobody_knows_is_not_rebuilt(workspace, open_site):
    with pytest.raises(NotFoundError, match="knows anything of sweep ner-"):
        rebuild(open_site("there"), workspace)
    assert not workspace.runs

"""Sweeps under a real Prefect server and worker: deployed, scheduled, killed, cancelled, shown."""

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from airflows.testing.prefect_case import Case
from airflows.testing.prefect_server import PrefectPlace, clean_environment, prefect_place

ROOT = Path(__file__).parents[2]
# The example of docs/prefect.md.
AUTOMATION = re.search(
    r"```yaml\n(name: [^`]*?airflows\.trial\.failed[^`]*)```",
    (ROOT / "docs" / "prefect.md").read_text(encoding="utf-8"),
)[1]
# A trial writes down that it started, waits until the gate is open, and logs its metric.
GATED = 'echo "$AIRFLOWS_TRIAL $$" >>{directory}/started; until [ -e {directory}/gate ]; do sleep 0.1; done'
LOG_LOSS = """
import os, yaml
from mlflow import MlflowClient
with open(os.environ["HYPERPARAMETERS_PATH"]) as file:
    n = yaml.safe_load(file)["n"]
MlflowClient().log_metric(os.environ["MLFLOW_RUN_ID"], "loss", (n - 1) ** 2)
"""

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def prefect(tmp_path_factory) -> Iterator[PrefectPlace]:
    """A server and a worker with this repository's deployments."""
    with prefect_place(tmp_path_factory.mktemp("prefect"), ROOT) as place:
        yield place


@pytest.fixture
def case(prefect, tmp_path) -> Iterator[Case]:
    made = Case(prefect, tmp_path)
    yield made
    made.open_gate()


def identities(deployments: list[dict]) -> dict[str, dict]:
    """Return what makes each deployment what it is, schedules included."""
    kept = (
        "id",
        "flow_id",
        "entrypoint",
        "parameters",
        "pull_steps",
        "work_pool_name",
        "parameter_openapi_schema",
    )
    return {
        found["name"]: {key: found[key] for key in kept}
        | {"schedules": [(each["schedule"], each["active"]) for each in found["schedules"]]}
        | {"limit": (found["global_concurrency_limit"] or {}).get("limit")}
        for found in deployments
    }


@contextlib.contextmanager
def plain_call(tree: dict, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Call the flow as a function, in a process of its own."""
    code = (
        "import asyncio, json, sys; from flows.sweep import sweep;"
        " print('RESULT', json.dumps(asyncio.run(sweep(json.loads(sys.argv[1])))))"
    )
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(tree)],
        cwd=ROOT,
        env=environment,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_deploying_twice_gives_the_same(prefect):
    before = identities(prefect.deployed)
    assert identities(prefect.deploy(ROOT)) == before
    assert sorted(before) == ["janitor", "nightly", "promote", "sweep"]
    assert before["nightly"]["schedules"] == [
        ({"cron": "0 2 * * *", "timezone": "Europe/Berlin", "day_or": True}, True)
    ]
    assert before["janitor"]["limit"] == 1
    step = {"prefect.deployments.steps.set_working_directory": {"directory": str(ROOT)}}
    assert before["sweep"]["pull_steps"] == [step]


def test_a_bad_value_is_refused_before_a_run_starts(case):
    prefect = case.place
    bad = case.sweep("bad", 2, "true", limits={"concurrent": 0})
    before = len(prefect.everything("flow_runs"))
    with pytest.raises(OSError, match="409") as refused:
        prefect.run("sweep/sweep", sweep=bad)
    assert "limits.concurrent" in refused.value.read().decode()
    assert len(prefect.everything("flow_runs")) == before


def test_a_scheduled_run_ends_with_the_winner_and_its_rerun_attaches(case):
    prefect = case.place
    script = case.directory / "train.py"
    script.write_text(LOG_LOSS)
    tree = case.sweep(
        "nightly_One", 3, f"echo $AIRFLOWS_TRIAL $$ >>{{directory}}/started; {sys.executable} {script}"
    )
    del tree["tracking"]
    tree["objective"] = {"metric": "loss", "goal": "minimize"}
    run = prefect.run("sweep/sweep", sweep=tree)
    ended = prefect.ended(run)
    assert ended["state_type"] == "COMPLETED", ended["state"]
    ((sweep, state, instance),) = case.sweeps("nightly_One")
    assert state == "succeeded"
    assert instance == case.instance_of(run)
    assert f"airflows:{sweep}" in ended["tags"]
    found = prefect.artifacts(run)
    assert sorted(found) == [f"nightly-one-{each}" for each in ("mlflow", "progress", "trials", "winner")]
    assert found["nightly-one-progress"]["data"] == 100
    assert [row["rank"] for row in json.loads(found["nightly-one-trials"]["data"])] == [1, 2, 3]
    assert "--override parameters.n=1\n" in found["nightly-one-winner"]["data"]
    assert f"| trial | {sweep}/1 |" in found["nightly-one-winner"]["data"]
    prefect.wait_for(lambda: len(prefect.trial_events(sweep, "succeeded")) == 3, "the events")

    prefect.set_state(run, "SCHEDULED")
    prefect.wait_for(lambda: prefect.flow_run(run)["run_count"] == 2, "the rerun")
    assert prefect.ended(run)["state_type"] == "COMPLETED"
    assert len(case.started()) == 3
    assert [each[0] for each in case.sweeps("nightly_One")] == [sweep]
    assert {a["id"] for a in prefect.artifacts(run).values()} == {a["id"] for a in found.values()}

    night_after = prefect.run("sweep/sweep", sweep=tree)
    assert prefect.ended(night_after)["state_type"] == "COMPLETED"
    assert len(case.sweeps("nightly_One")) == 2
    assert len(case.started()) == 6


def test_a_killed_flow_process_is_retried_and_no_trial_runs_twice(case):
    prefect = case.place
    tree = case.sweep("killed", 5, GATED, limits={"concurrent": 2})
    run = prefect.run("sweep/sweep", retries=1, sweep=tree)
    case.wait_until_started(2)
    killed = case.driver("killed")
    os.kill(killed, signal.SIGKILL)
    assert prefect.ended(run)["state_type"] == "CRASHED"
    ((sweep, *_),) = case.sweeps("killed")
    prefect.wait_for(lambda: len(prefect.runs_of(sweep)) == 2, "the retry")
    (retry,) = prefect.runs_of(sweep) - {run}
    prefect.wait_for(lambda: case.driver("killed") not in {0, killed}, "the retry to drive")
    assert all(psutil.pid_exists(pid) for pid in case.pids())
    assert len(case.started()) == 2
    case.open_gate()
    ended = prefect.ended(retry)
    assert ended["state_type"] == "COMPLETED", ended["state"]
    assert ended["empirical_policy"]["retries"] == 0
    assert case.sweeps("killed") == [(sweep, "succeeded", case.instance_of(run))]
    assert sorted(case.started()) == [str(n) for n in range(5)]


def test_with_no_retry_left_the_janitor_finishes_the_sweep(case):
    prefect = case.place
    tree = case.sweep("left", 4, GATED, limits={"concurrent": 2})
    run = prefect.run("sweep/sweep", retries=0, sweep=tree)
    case.wait_until_started(2)
    os.kill(case.driver("left"), signal.SIGKILL)
    assert prefect.ended(run)["state_type"] == "CRASHED"
    ((sweep, *_),) = case.sweeps("left")
    assert prefect.runs_of(sweep) == {run}
    case.open_gate()
    janitor = prefect.run("janitor/janitor")
    assert prefect.ended(janitor)["state_type"] == "COMPLETED"
    ((_, state, _),) = case.sweeps("left")
    assert state == "succeeded"
    assert len(case.started()) == len(set(case.started())) == 4
    report = json.loads(prefect.artifacts(janitor)["janitor"]["data"])
    assert [(row["sweep"], row["state"]) for row in report] == [(sweep, "succeeded")]


def test_a_retry_that_is_cancelled_while_it_waits_cancels_the_trials(case):
    prefect = case.place
    tree = case.sweep("waiting", 4, GATED, limits={"concurrent": 2})
    run = prefect.run("sweep/sweep", retries=1, retry_delay_s=3600, sweep=tree)
    case.wait_until_started(2)
    os.kill(case.driver("waiting"), signal.SIGKILL)
    assert prefect.ended(run)["state_type"] == "CRASHED"
    ((sweep, *_),) = case.sweeps("waiting")
    prefect.wait_for(lambda: len(prefect.runs_of(sweep)) == 2, "the retry")
    (retry,) = prefect.runs_of(sweep) - {run}
    prefect.set_state(retry, "CANCELLING")
    assert prefect.ended(retry)["state_type"] == "CANCELLED"
    janitor = prefect.run("janitor/janitor")
    assert prefect.ended(janitor)["state_type"] == "COMPLETED"
    report = json.loads(prefect.artifacts(janitor)["janitor"]["data"])
    assert [(row["sweep"], row["state"]) for row in report] == [(sweep, "cancelled")]
    assert not any(psutil.pid_exists(pid) for pid in case.pids())
    assert len(case.started()) == 2


def test_cancelling_the_flow_run_cancels_the_trials_everywhere(case):
    prefect = case.place
    tree = case.sweep("stopped", 4, GATED, limits={"concurrent": 2})
    del tree["tracking"]
    run = prefect.run("sweep/sweep", sweep=tree, show_trials=True)
    case.wait_until_started(2)
    asked = time.monotonic()
    prefect.set_state(run, "CANCELLING")
    ended = prefect.ended(run)
    took = time.monotonic() - asked
    assert ended["state_type"] == "CANCELLED"
    assert not any(psutil.pid_exists(pid) for pid in case.pids())
    assert took < 60, took
    assert case.states("stopped") == {"cancelled": 4}
    ((sweep, state, _),) = case.sweeps("stopped")
    assert state == "cancelled"
    assert prefect.task_states(run) == {f"{sweep}/{n}": "CANCELLED" for n in range(4)}
    home = Path(prefect.environment["AIRFLOWS_HOME"])
    with contextlib.closing(sqlite3.connect(home / "mlflow.db")) as mlflow:
        runs = mlflow.execute(
            "SELECT r.status, t.value FROM runs r JOIN tags s ON s.run_uuid = r.run_uuid"
            " AND s.key = 'airflows.sweep' JOIN tags t ON t.run_uuid = r.run_uuid"
            " AND t.key = 'airflows.state' WHERE s.value = ?",
            (sweep,),
        ).fetchall()
    assert set(runs) == {("KILLED", "cancelled")}
    assert len(runs) >= 3


def test_the_promote_flow_moves_the_alias_to_the_winner_and_says_why(case):
    prefect = case.place
    script = case.directory / "train.py"
    script.write_text(
        f"{LOG_LOSS}MlflowClient().log_text(os.environ['MLFLOW_RUN_ID'], 'flavors: {{}}', 'model/MLmodel')"
    )
    tree = case.sweep("promoted", 2, f"{sys.executable} {script}")
    del tree["tracking"]
    tree["objective"] = {"metric": "loss", "goal": "minimize"}
    run = prefect.run("promote/promote", sweep=tree, model="net")
    assert prefect.ended(run)["state_type"] == "COMPLETED"
    said = "net@champion points at version 1 now. Nothing has the alias yet."
    assert prefect.artifacts(run)["net-champion"]["data"] == said
    ((sweep, *_),) = case.sweeps("promoted")
    again = prefect.run("promote/promote", sweep=sweep, model="net")
    assert prefect.ended(again)["state_type"] == "COMPLETED"
    said = "net@champion stays at version 1. It points at the winner already."
    assert prefect.artifacts(again)["net-champion"]["data"] == said


def test_five_failed_trials_may_cancel_the_sweep_by_an_automation(case):
    prefect = case.place
    path = case.directory / "automation.yaml"
    path.write_text(AUTOMATION)
    prefect.command("prefect", "automation", "create", "--from-file", path)
    fails_or_waits = f'if grep -q "[0-4]$" "$HYPERPARAMETERS_PATH"; then exit 1; fi; {GATED}'
    limits = {"concurrent": 8, "identical_failures": 0}
    run = prefect.run("sweep/sweep", sweep=case.sweep("hopeless", 9, fails_or_waits, limits=limits))
    ended = prefect.ended(run)
    # The other tests fail trials too.
    prefect.command("prefect", "--no-prompt", "automation", "delete", "--all")
    assert ended["state_type"] == "CANCELLED", ended["state"]
    assert case.states("hopeless") == {"failed": 5, "cancelled": 4}


def test_a_run_keeps_its_ledger_in_postgres_when_its_environment_says_so(case, postgres_url):
    prefect = case.place
    variables = {"env": {"AIRFLOWS_LEDGER_URL": postgres_url}}
    tree = case.sweep("elsewhere", 2, GATED)
    run = prefect.run("sweep/sweep", job_variables=variables, sweep=tree)
    case.wait_until_started(2)
    prefect.set_state(run, "CANCELLING")
    assert prefect.ended(run)["state_type"] == "CANCELLED"
    assert not any(psutil.pid_exists(pid) for pid in case.pids())
    (tag,) = prefect.flow_run(run)["tags"]
    with contextlib.closing(psycopg.connect(postgres_url.replace("+psycopg", ""))) as ledger:
        found = ledger.execute("SELECT id, state FROM sweeps WHERE name = 'elsewhere'").fetchall()
    assert found == [(tag.removeprefix("airflows:"), "cancelled")]
    assert case.sweeps("elsewhere") == []


def test_a_thousand_trials_are_mirrored_each_in_its_right_final_state(case):
    prefect = case.place
    # Every tenth one fails.
    command = 'if grep -q "9$" "$HYPERPARAMETERS_PATH"; then exit 1; fi'
    tree = case.sweep("mirrored", 1000, command, limits={"concurrent": 8})
    run = prefect.run("sweep/sweep", sweep=tree, show_trials=True)
    ended = prefect.ended(run, patience_s=600)
    of_ledger = {"succeeded": "COMPLETED", "failed": "FAILED"}
    wanted = {
        f"{sweep}/{number}": of_ledger[state]
        for sweep, number, state in case.rows(
            "SELECT t.sweep, t.number, t.state FROM trials t JOIN sweeps s ON s.id = t.sweep WHERE s.name = ?",
            "mirrored",
        )
    }
    assert Counter(wanted.values()) == {"COMPLETED": 900, "FAILED": 100}
    assert prefect.task_states(run) == wanted
    assert ended["state_type"] == "FAILED"
    assert "100 of 1000 trials failed" in ended["state"]["message"]


def test_more_than_a_thousand_trials_are_not_mirrored_and_nothing_starts(case):
    run = case.place.run("sweep/sweep", sweep=case.sweep("many", 1001, "true"), show_trials=True)
    ended = case.place.ended(run)
    assert ended["state_type"] == "FAILED"
    assert "up to 1,000 trials" in ended["state"]["message"]
    assert "artifacts show" in ended["state"]["message"]
    assert case.sweeps("many") == []
    assert ended["run_count"] == 1


def test_the_flow_costs_little_more_than_the_command(case):
    prefect = case.place
    tree = case.sweep("timed_flow", 200, "true", limits={"concurrent": 8})
    path = case.directory / "sweep.yaml"
    path.write_text(json.dumps({**tree, "name": "timed_command"}))
    # 15 s where nobody else computes; where the machine is busy, everything takes that much longer.
    busy = max(1.0, os.getloadavg()[0] / os.cpu_count())
    began = time.monotonic()
    prefect.command("airflows", "sweep", path, "--yes")
    by_command = time.monotonic() - began
    run = prefect.run("sweep/sweep", sweep=tree)
    assert prefect.ended(run)["state_type"] == "COMPLETED"
    by_flow = time.monotonic() - began - by_command
    assert by_flow - by_command <= 15 * busy, f"command {by_command:.1f} s, flow {by_flow:.1f} s, {busy=:.1f}"


def test_a_flow_that_no_worker_watches_is_cancelled_too(case):
    prefect = case.place
    tree = case.sweep("unwatched", 2, GATED)
    with plain_call(tree, prefect.environment) as process:
        case.wait_until_started(2)
        ((sweep, *_),) = case.sweeps("unwatched")
        (run,) = prefect.runs_of(sweep)
        prefect.set_state(run, "CANCELLING")
        assert prefect.ended(run)["state_type"] == "CANCELLED"
        process.communicate(timeout=60)
    assert case.sweeps("unwatched")[0][1] == "cancelled"
    assert not any(psutil.pid_exists(pid) for pid in case.pids())


def test_cancelling_the_sweep_ends_the_flow_run_as_cancelled(case):
    prefect = case.place
    run = prefect.run("sweep/sweep", sweep=case.sweep("by_command", 2, GATED))
    case.wait_until_started(2)
    prefect.command("airflows", "cancel", "by_command", "--yes")
    ended = prefect.ended(run)
    assert ended["state_type"] == "CANCELLED"
    assert "It was cancelled by a person." in ended["state"]["message"]


def test_without_a_server_a_plain_call_works(case):
    tree = case.sweep("plain", 2, "echo $AIRFLOWS_TRIAL $$ >>{directory}/started")
    with plain_call(tree, clean_environment(case.directory)) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    (line,) = [line for line in out.splitlines() if line.startswith("RESULT ")]
    result = json.loads(line.removeprefix("RESULT "))
    assert result["state"] == "succeeded"
    assert result["trials"]["succeeded"] == 2
    assert len(case.started()) == 2

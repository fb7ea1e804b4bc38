"""`airflows rehearse` and `sweep --rehearse`, on programs that do well and on programs that do not."""

import json
import os
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflows.cli.rehearsing import play
from airflows.cli.terminal import Session
from airflows.engine import rehearsals
from airflows.engine.rehearsals import AsRehearsed, Rehearsed, Request
from airflows.errors import ConflictError
from airflows.ledger import open_ledger
from airflows.rehearsal.casting import Cast
from airflows.rehearsal.rows import Mark, Row

# As MLflow's client would log it, without the seconds that importing it takes.
PROGRAM = """\
import json, os, pathlib, signal, sqlite3, sys, threading, time
import yaml

HOW = {
    "metric": "loss", "steps": 300, "reads": True, "saves": True, "resumes": True, "heeds": True,
    "noise": False, "uses": ["lr", "wd"], "crash": "", **json.loads(os.environ["HOW"]),
}
store = sqlite3.connect(os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///x").removeprefix("sqlite:///"), timeout=60)

def log(name, value, step):
    row = (name, value, int(time.time() * 1000), os.environ["MLFLOW_RUN_ID"], step)
    with store:
        store.execute("INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES (?,?,?,?,?,0)", row)
        store.execute(
            "INSERT INTO latest_metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES (?,?,?,?,?,0)"
            " ON CONFLICT (key, run_uuid) DO UPDATE SET value=excluded.value, timestamp=excluded.timestamp,"
            " step=excluded.step WHERE excluded.step >= step", row)

asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
if HOW["crash"]:
    raise ValueError(HOW["crash"])
params = {"lr": 0.1, "wd": 0.0, "opt": "sgd"}
if HOW["reads"]:
    with open(os.environ["HYPERPARAMETERS_PATH"], encoding="utf-8") as file:
        params |= {k: v for k, v in yaml.safe_load(file).items() if k in HOW["uses"]}
folder = pathlib.Path(os.environ["AIRFLOWS_CHECKPOINT_DIR"])
resume = os.environ["AIRFLOWS_RESUME_FROM"]
first = json.loads(pathlib.Path(resume).read_text()) + 1 if resume and HOW["resumes"] else 0
for step in range(first, HOW["steps"]):
    threading.Event().wait(0.1)
    noise = time.time() % 1 if HOW["noise"] else 0
    log(HOW["metric"], params["lr"] / (step + 1) + params["wd"] + len(params["opt"]) + noise, step)
    log("clock", time.time() % 1000, step)
    if HOW["saves"]:
        aside = folder / f"step-{step}.pt.tmp"
        aside.write_text(str(step))
        aside.rename(folder / f"step-{step}.pt")
    if asked and HOW["heeds"]:
        sys.exit(143)
"""
ONE = {"parameters.lr": [0.1]}


@pytest.fixture
def rehearse(in_process):
    """Write a sweep whose program behaves so, and rehearse it."""

    def go(*words, how=None, **fields):
        return in_process("rehearse", write(in_process, how, **fields), *words, "-o", "json")

    return go


def write(cli, how=None, **fields):
    program = cli.write("train.py", PROGRAM)
    base = {
        "experiment_name": "demo",
        "command": f'exec "{sys.executable}" "{program}"',
        "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
        "env_variables": {"HOW": json.dumps(how or {})},
        "parameters": {"lr": 0.1, "wd": 0.0, "opt": "sgd"},
    }
    tree = {
        "name": "demo",
        "base": base,
        "space": {"parameters.lr": [0.1, 0.2]},
        "objective": {"metric": "loss", "goal": "minimize"},
        "backend": {"type": "local", "grace": "1s", "slots": 4},
    }
    return cli.write("sweep.yaml", tree | fields)


def checks(done, name):
    return {row["check"]: row for row in done.document["checks"]}[name]


def results(done):
    return {row["check"]: row["result"] for row in done.document["checks"]}


def failed(done):
    return [row["check"] for row in done.document["checks"] if row["result"] == "fail"]


def ids(home):
    with closing(open_ledger(home)) as ledger:
        return {row.name: row for row in ledger.sweeps()}


def test_a_good_program_is_go(rehearse):
    done = rehearse("--full-steps", "1000")

    assert (done.status, done.document["go"]) == (0, True), done.out
    assert results(done) == {
        "runs": "ok",
        "metric loss": "ok",
        "resumes": "ok",
        "ends on SIGTERM": "ok",
        "runs again": "ok",
        "parameters file": "ok",
        "key parameters.lr": "ok",
        "memory": "info",
        "speed": "info",
        "whole sweep": "info",
    }
    assert "-> " in checks(done, "key parameters.lr")["message"]
    assert done.document["host_bytes"] > 2**20
    # Two trials of a thousand steps, a tenth of a second each at least.
    assert done.document["accelerator_hours"] > 2 * 100 / 3600


def test_a_rehearsal_is_a_sweep_of_its_own_and_says_so_in_mlflow(cli):
    done = cli("rehearse", write(cli, space=ONE), "-o", "json")

    (row,) = ids(cli.home).values()
    assert (row.id, row.name, row.state) == (done.document["rehearsal"], "demo-rehearsal", "succeeded")
    with closing(sqlite3.connect(cli.home / "mlflow.db")) as store:
        tagged = store.execute("SELECT count(*) FROM tags WHERE key = 'airflows.rehearsal'").fetchone()
        runs = store.execute("SELECT count(*) FROM runs").fetchone()
    # The trial, and its parent.
    assert tagged == runs == (2,)
    assert "checkpoints" not in done.document["kept"]
    assert not (cli.home / "checkpoints" / row.id).exists()
    assert cli("list").out == ""


def test_a_program_that_ignores_its_parameters_is_no_go(rehearse):
    done = rehearse(how={"reads": False})

    assert (done.status, done.document["go"]) == (1, False)
    assert failed(done) == ["parameters file", "key parameters.lr"]
    assert "0.1 -> 0.2: loss has not changed" in checks(done, "key parameters.lr")["message"]


def test_each_key_is_tried_by_itself_in_each_branch_it_belongs_to(rehearse):
    space = {
        "parameters.lr": [0.1, 0.2],
        "parameters.opt": ["sgd", "adamw"],
        "parameters.wd": {"values": [0.1, 0.3], "when": {"parameters.opt": "adamw"}},
    }

    done = rehearse("--steps", "2", how={"uses": ["lr", "opt"]}, space=space)

    assert failed(done) == ["key parameters.wd"]
    assert checks(done, "key parameters.lr")["result"] == "ok"
    # The other optimizer has a key more.
    assert checks(done, "key parameters.opt")["result"] == "warn"
    assert "changed together with parameters.wd" in checks(done, "key parameters.opt")["message"]
    branches = [row["branch"] for row in done.document["checks"] if row["check"] == "resumes"]
    assert branches == ["parameters.opt: sgd", "parameters.opt: adamw"]
    # Two branches, both of them again, two keys; the other optimizer is a branch already.
    assert done.document["trials"] == 6


def test_a_key_may_be_excused(rehearse):
    done = rehearse("--no-effect-yet", "lr", how={"uses": ["wd"]})

    assert done.status == 0
    assert checks(done, "key parameters.lr")["result"] == "info"


def test_a_key_that_is_not_swept_cannot_be_excused(rehearse):
    done = rehearse("--no-effect-yet", "parameters.wd", how={"uses": ["wd"]})

    assert (done.status, "no key that is swept" in done.err) == (2, True), done


def test_what_a_constraint_looks_at_must_be_logged(rehearse):
    bounded = {"metric": "loss", "goal": "minimize", "constraints": ["latency_ms <= 20"]}

    done = rehearse("--timeout", "4s", space=ONE, objective=bounded)

    assert (done.status, failed(done)) == (1, ["metric latency_ms"])


def test_what_differs_between_any_two_runs_proves_nothing(rehearse):
    done = rehearse(how={"noise": True, "uses": ["wd"]})

    assert (done.status, checks(done, "key parameters.lr")["result"]) == (0, "warn")
    assert "cannot be told" in checks(done, "key parameters.lr")["message"]


def test_a_metric_of_another_name_is_no_go_and_the_nearest_is_named(rehearse):
    done = rehearse(how={"metric": "Loss"}, space=ONE)

    assert failed(done) == ["metric loss"]
    assert "not seen; logged: 'Loss', 'clock'" in checks(done, "metric loss")["message"]


def test_a_program_that_begins_again_from_0_is_no_go(rehearse):
    done = rehearse(how={"resumes": False}, space=ONE)

    assert (done.status, failed(done)) == (1, ["resumes"])
    assert "began again at step 0" in checks(done, "resumes")["message"]


def test_a_program_that_ignores_sigterm_is_killed_and_told_of(rehearse):
    done = rehearse(how={"heeds": False}, space=ONE)

    assert (done.status, checks(done, "resumes")["result"]) == (0, "ok"), done.out
    assert checks(done, "ends on SIGTERM")["result"] == "warn"
    assert "was killed after" in checks(done, "ends on SIGTERM")["message"]


def test_a_program_that_is_too_short_shows_nothing_about_resuming(rehearse):
    short = {"steps": 1}

    done = rehearse(how=short, space=ONE)
    strict = rehearse("--require-checkpoint", how=short, space=ONE)

    assert (done.status, checks(done, "resumes")["result"]) == (0, "warn")
    assert "ended by itself" in checks(done, "resumes")["message"]
    assert (strict.status, failed(strict)) == (1, ["resumes"])


def test_a_program_without_checkpoints_is_a_warning_and_time_is_limited(rehearse):
    done = rehearse("--timeout", "4s", how={"saves": False}, space=ONE)

    assert (done.status, checks(done, "resumes")["result"]) == (0, "warn")
    assert "a preempted trial starts from 0" in checks(done, "resumes")["message"]


def test_a_program_that_crashes_is_no_go_with_its_error(rehearse):
    done = rehearse(how={"crash": "bad fold"}, space=ONE)

    assert (done.status, checks(done, "runs")["result"]) == (1, "fail")
    assert "ValueError: bad fold" in checks(done, "runs")["message"]


def test_without_mlflow_a_rehearsal_still_sees_the_checkpoint(rehearse):
    without = {
        "command": "touch $AIRFLOWS_CHECKPOINT_DIR/step-$AIRFLOWS_ATTEMPT.pt.tmp; "
        "cd $AIRFLOWS_CHECKPOINT_DIR; echo 1 >step-$AIRFLOWS_ATTEMPT.pt; sleep 100"
    }
    base = {
        "experiment_name": "demo",
        "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
        **without,
    }

    done = rehearse(base=base, space={"env_variables.X": ["1"]}, tracking={"uri": "none"})

    assert (done.status, checks(done, "metric")["result"]) == (0, "warn")
    assert checks(done, "resumes")["message"].startswith("started from step-0.pt")


def test_sweep_rehearse_starts_nothing_of_a_sweep_that_does_not_pass(cli):
    done = cli("sweep", write(cli, {"crash": "bad fold"}, space=ONE), "--rehearse", "-o", "json")

    assert (done.status, done.document["go"]) == (1, False)
    assert list(ids(cli.home)) == ["demo-rehearsal"]


def test_sweep_rehearse_starts_a_sweep_that_passes(cli):
    path = write(cli, {"steps": 4}, space=ONE)

    done = cli("sweep", path, "--rehearse", "-o", "json")
    again = cli("sweep", path, "--rehearse", "-o", "json")

    assert (done.status, done.document["state"]) == (0, "succeeded")
    assert "GO  nothing speaks against the sweep" in done.err
    assert {name: row.state.value for name, row in ids(cli.home).items()} == {
        "demo-rehearsal": "succeeded",
        "demo": "succeeded",
    }
    # What is there already is not rehearsed again.
    assert (again.status, "is not rehearsed" in again.err) == (0, True)


def test_sweep_rehearse_does_not_start_code_that_was_not_rehearsed():
    row = SimpleNamespace(id="demo-rehearsal-0", code="a" * 64)
    site = SimpleNamespace(code_changes=lambda _before, _now: "train.py was changed")
    wanted = AsRehearsed("", row=row)

    assert wanted.require(site, "a" * 64) == ""
    with pytest.raises(ConflictError, match="not that of demo-rehearsal-0: train"):
        wanted.require(site, "b" * 64)


def test_ctrl_c_when_a_rehearsal_is_just_over_starts_nothing(monkeypatch):
    site = SimpleNamespace(notes=[])
    driving = SimpleNamespace(pause=lambda: None, site=site)
    row = SimpleNamespace(id="demo-rehearsal-0")

    def over(*_args, on_begun, **_given):
        on_begun(None, driving)
        os.kill(os.getpid(), signal.SIGINT)
        return Rehearsed(row, Cast(), [Row("runs", Mark.OK, "")])

    monkeypatch.setattr("airflows.engine.rehearsals.rehearse", over)
    monkeypatch.setattr("airflows.cli.driving.begun_lines", lambda *_args, **_given: [])

    done, status = play(Session("json"), None, None, Request())

    assert (done.is_go, status) == (True, 130)


def test_a_place_that_no_trial_has_been_to_is_told():
    trials = [SimpleNamespace(backend="a"), SimpleNamespace(backend="a")]
    ledger = SimpleNamespace(trials=lambda _sweep: trials)
    names = [SimpleNamespace(name="a"), SimpleNamespace(name="b")]

    (found,) = rehearsals._places(SimpleNamespace(ledger=ledger, places=names), SimpleNamespace(id="x"))

    assert (found.mark, found.words) == (Mark.WARN, "only a was rehearsed, not b")


def is_pending(pid: int, sign: int) -> bool:
    """Whether a process has not yet taken a signal: another one of the kind would be lost meanwhile."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask >> (sign - 1) & 1 for mask in masks)


@pytest.mark.parametrize("times", [1, 3])
def test_ctrl_c_cancels_the_rehearsal_however_impatiently(cli, times):
    process = cli.start("rehearse", write(cli, space=ONE), "-o", "json")
    cli.wait_for(lambda: cli.states().get("running"), "a trial that runs")
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        cli.wait_for(lambda: not is_pending(process.pid, signal.SIGINT), "the signal to be taken")
    out, _ = process.communicate(timeout=60)

    assert process.returncode == 130
    assert json.loads(out)["message"] == "the rehearsal was cancelled before it was over."
    assert cli.states() == {"cancelled": 1}


def test_a_rehearsal_killed_at_any_moment_is_taken_up_and_ends_well(cli):
    path = write(cli)
    for state in ("running", "stopping"):
        process = cli.start("rehearse", path)
        cli.wait_for(lambda state=state: cli.states().get(state), f"a trial that is {state}")
        process.send_signal(signal.SIGKILL)
        process.communicate()
    seen = cli("list", "-o", "json").document["sweeps"]

    done = cli("rehearse", path, "-o", "json")

    assert [row["name"] for row in seen] == ["demo-rehearsal"]
    assert (done.status, checks(done, "resumes")["result"]) == (0, "ok"), done.out
    assert done.document["rehearsal"] == seen[0]["sweep"]


def test_a_rehearsal_of_another_file_ends_the_one_that_was_left(cli):
    process = cli.start("rehearse", write(cli, space=ONE))
    cli.wait_for(lambda: cli.states().get("running"), "a trial that runs")
    process.send_signal(signal.SIGKILL)
    process.communicate()

    done = cli("rehearse", write(cli, {"crash": "bad fold"}, space=ONE), "-o", "json")

    with closing(open_ledger(cli.home)) as ledger:
        states = [row.state.value for row in ledger.sweeps()]
    assert (done.status, states) == (1, ["failed", "cancelled"]), done

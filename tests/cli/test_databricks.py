"""The command on a fake Databricks workspace."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from airflows.testing.workspace import FakeWorkspace

GUIDE = Path(__file__).parents[1] / "data" / "guide" / "train.yaml"


@pytest.fixture
def workspace(home, clean_env):
    del home
    plan = {"queue_s": 1.0, "run_s": 10.0, "logs": ["epoch 1", "epoch 2"]}
    with FakeWorkspace(clock_scale=20.0, default=plan) as made:
        for name, value in made.environment.items():
            clean_env.setenv(name, value)
        yield made


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.yaml").write_bytes(GUIDE.read_bytes())
    (folder / "fit.py").write_text("print('fit')\n")
    return folder


def airflows(*words, cwd, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "airflows.cli", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def test_the_guide_s_file_runs_unchanged(workspace, folder):
    done = airflows("run", "-f", "train.yaml", "--backend", "databricks", "-o", "json", cwd=folder)

    assert json.loads(done.stdout)["state"] == "succeeded"
    (run,) = workspace.runs
    assert run.compute == ("GPU_8xH100", 16)
    assert run.timeout_s == 7200
    assert run.ai_task["code_source_path"].endswith(".tar.gz")
    beside = run.ai_task["deployments"][0]["command_path"].removesuffix("command.sh")
    config = workspace.world.files.read(f"{beside}training_config.yaml").decode()
    assert "num_accelerators: 16" in config
    assert workspace.token not in done.stdout + done.stderr


def test_a_run_known_only_to_the_workspace_is_told_of_followed_and_cancelled(workspace, folder):
    workspace.outcome({"run_s": 400.0, "logs": ["epoch 1", "epoch 2"]})
    body = {"run_name": "by-hand", "tasks": [{"task_key": "by-hand"}]}
    compute = {"accelerator_type": "GPU_1xA10", "accelerator_count": 1}
    deployment = {"command_path": "/Workspace/x/command.sh", "compute": compute}
    body["tasks"][0]["ai_runtime_task"] = {"experiment": "by-hand", "deployments": [deployment]}
    run = workspace.world.jobs.submit(workspace.world.tokens[workspace.token], body)
    name = f"databricks:{run.id}"

    listed = json.loads(airflows("list", "--remote", "-o", "json", cwd=folder).stdout)
    followed = airflows("logs", name, cwd=folder).stdout
    story = json.loads(airflows("get", name, "-o", "json", cwd=folder).stdout)
    cancelled = json.loads(airflows("cancel", name, "--yes", "-o", "json", cwd=folder).stdout)

    assert [each["handle"] for each in listed["remote"]] == [str(run.id)]
    assert followed.splitlines() == ["epoch 1", "epoch 2"]
    assert (story["run_id"], story["status"], story["run_name"]) == (str(run.id), "SUCCESS", "by-hand")
    assert cancelled["cancelled"] == [name]


def test_the_log_of_a_failed_run_fails_even_when_no_mlflow_run_is_ever_told(workspace, folder):
    workspace.outcome({"run_s": 1.0, "result": "FAILED", "logs": ["no data"]})
    workspace.fault("not_found", route="jobs/runs/get-output")
    deployment = {"command_path": "/Workspace/x/command.sh", "compute": {"accelerator_type": "GPU_1xA10"}}
    deployment["compute"]["accelerator_count"] = 1
    task = {"task_key": "by-hand", "ai_runtime_task": {"experiment": "e", "deployments": [deployment]}}
    person = workspace.world.tokens[workspace.token]
    run = workspace.world.jobs.submit(person, {"run_name": "by-hand", "tasks": [task]})

    done = airflows("logs", f"databricks:{run.id}", cwd=folder, code=1)

    assert done.stdout.splitlines() == ["no data"]


def test_a_run_that_nobody_knows_is_an_error(workspace, folder):
    del workspace
    for words in (("get", "databricks:99"), ("logs", "databricks:99"), ("cancel", "databricks:99", "--yes")):
        done = airflows(*words, cwd=folder, code=2)
        assert "knows no run 99" in done.stderr


def test_a_profile_leads_to_the_workspace_and_is_kept_with_the_sweep(workspace, folder, home, clean_env):
    for name in workspace.environment:
        clean_env.delenv(name)
    config = home.parent / "databrickscfg"
    config.write_text(f"[lab]\nhost = {workspace.host}\ntoken = {workspace.token}\n")
    clean_env.setenv("DATABRICKS_CONFIG_FILE", str(config))

    away = airflows("run", "-f", "train.yaml", "--backend", "databricks", cwd=folder, code=3)
    airflows("run", "-f", "train.yaml", "-p", "lab", cwd=folder)
    shown = airflows("logs", "ner-sft", cwd=folder).stdout

    assert "no Databricks credentials were found" in away.stderr
    assert shown.splitlines() == ["epoch 1", "epoch 2"]
    assert len(workspace.runs) == 1
    assert workspace.token.encode() not in (home / "ledger.db").read_bytes()


def test_a_profile_is_for_databricks_alone(folder):
    done = airflows("run", "-f", "train.yaml", "-p", "lab", "--backend", "slurm", cwd=folder, code=2)

    assert "--profile is for Databricks" in done.stderr


def test_without_the_extra_the_error_names_what_to_install(home, folder):
    del home
    code = (
        "import sys; sys.modules['databricks.sdk'] = None; from airflows.cli import main; "
        "sys.argv = ['airflows', 'run', '-f', 'train.yaml', '--backend', 'databricks']; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert 'pip install "airflows[databricks]"' in done.stderr


def test_the_sdk_is_imported_only_when_the_workspace_is_asked(folder):
    code = "import sys, airflows, airflows.cli.app, airflows.backends.registry; print('databricks' in sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )

    assert shown.stdout == "False\n"

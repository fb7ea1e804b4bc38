"""The fake workspace really running commands, as `execute` says."""

import io
import json
import os
import signal
import tarfile
import time
from pathlib import Path

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.config import Config

from airflows.testing.workspace import FakeWorkspace, launch, submission

SUBMIT, OUTPUT = "/api/2.2/jobs/runs/submit", "/api/2.2/jobs/runs/get-output"
TRAIN = """
python - <<'PYTHON'
import os
import mlflow

with mlflow.start_run(run_id=os.environ["MLFLOW_RUN_ID"]):
    mlflow.log_param("lr", "0.1")
    for step in range(3):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
PYTHON
"""


@pytest.fixture
def workspace():
    settings = {
        "secrets": {"nlp": {"hf": "s3cret"}},
        "nodes": {"local_world_size": 1, "grace_s": 5},
        "default": {"queue_s": 0, "retry_s": 0},
    }
    with FakeWorkspace(execute=True, clock_scale=1.0, **settings) as workspace:
        yield workspace


@pytest.fixture
def client(workspace):
    config = Config(host=workspace.host, token=workspace.token, retry_timeout_seconds=1)
    return WorkspaceClient(config=config)


def submit(client, path, **changes):
    return client.api_client.do("POST", SUBMIT, body=submission(path, **changes))["run_id"]


def ended(workspace, run_id):
    run = workspace.world.jobs.runs[run_id]
    workspace.wait_for(lambda: run.ended_at is not None, "the end")
    return run.result, run.message


def logs(client, run_id, node=0):
    path = f"/api/2.0/ai-training/workflows/by-run-id/{run_id}/logs"
    query = {"ascending": True, "filter": {"node_index": node}}
    answer = client.api_client.do("GET", path, query=query)
    return [record["body"] for record in answer["log_records"]]


def test_each_node_runs_the_command_with_its_variables(workspace, client):
    path = launch(
        workspace,
        'echo "$NODE_RANK/$NUM_NODES $LOCAL_WORLD_SIZE $WORLD_SIZE $MASTER_ADDR $SEED $HF"\n'
        'cat "$HYPERPARAMETERS_PATH"\n'
        '[ -n "$MASTER_PORT" ] && [ -n "$MLFLOW_RUN_ID" ]\n'
        'echo "${RANK-no rank} ${CODE_SOURCE_PATH-no code} ${AIRFLOWS_SECRET_OF_MINE-clean}"\n',
        env={"SEED": "3"},
        secrets={"HF": "nlp/hf"},
        parameters={"lr": 0.1},
    )
    run_id = submit(client, path, compute=("GPU_8xH100", 16))

    assert ended(workspace, run_id) == ("SUCCESS", "")
    for node in (0, 1):
        first, *rest = logs(client, run_id, node)
        assert first == f"{node}/2 1 2 127.0.0.1 3 s3cret"
        assert rest == ["lr: 0.1", "no rank no code clean"]


def test_the_code_is_unpacked_and_mounted_paths_lead_to_the_workspace_s_files(workspace, client):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        entry = tarfile.TarInfo("repo/hello.py")
        entry.size = len(b"print('hello from the code')\n")
        tar.addfile(entry, io.BytesIO(b"print('hello from the code')\n"))
    workspace.put_file("/Volumes/main/ml/data/repo.tar.gz", archive.getvalue())
    workspace.put_file("/Volumes/main/ml/data/in.txt", b"from the volume\n")
    path = launch(
        workspace,
        "cat /Volumes/main/ml/data/in.txt\n"
        'python "$CODE_SOURCE_PATH/hello.py"\n'
        "python /databricks/code_source/repo/hello.py\n"
        'echo saved > "$CHECKPOINTS/last"\n'
        ". /Workspace/Users/kim@example.com/.air/launch/env_check.sh\n",
        env={"CHECKPOINTS": "/Volumes/main/ml/data"},
    )
    workspace.put_file(path.replace("command.sh", "env_check.sh"), b'basename "$PWD"\n')
    run_id = submit(client, path, ai_task={"code_source_path": "/Volumes/main/ml/data/repo.tar.gz"})

    assert ended(workspace, run_id) == ("SUCCESS", "")
    assert logs(client, run_id) == ["from the volume", *["hello from the code"] * 2, "launch"]
    assert client.files.download("/Volumes/main/ml/data/last").contents.read() == b"saved\n"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("exit 3", "exit code 3"),
        ("false; echo never", "exit code 1"),
        ("echo $UNSET_NAME", "exit code 1"),
        ("false | true", "exit code 1"),
        ("kill -9 $$", "exit code 137"),
    ],
)
def test_the_command_s_exit_code_is_the_run_s(workspace, client, command, message):
    run_id = submit(client, launch(workspace, command))

    assert ended(workspace, run_id) == ("FAILED", message)
    assert client.jobs.get_run(run_id).state.state_message == message


def test_runs_that_share_a_directory_see_what_they_name(workspace, client):
    first = launch(workspace, "ls; . ./common.sh")
    for name, content in {
        "common.sh": b". ./inner.sh",
        "inner.sh": b"echo in",
        "other.sh": b"exit 1",
    }.items():
        workspace.put_file(first.replace("command.sh", name), content)
    run_id = submit(client, first)

    assert ended(workspace, run_id) == ("SUCCESS", "")
    assert logs(client, run_id) == ["command.sh", "common.sh", "inner.sh", "in"]


def test_a_failing_node_takes_the_others_along(workspace, client):
    path = launch(workspace, 'if [ "$NODE_RANK" = 1 ]; then exit 7; fi; sleep 600')
    run_id = submit(client, path, compute=("GPU_8xH100", 16))

    assert ended(workspace, run_id) == ("FAILED", "exit code 7")


def test_what_a_submission_names_must_be_there(workspace, client):
    ids = [
        submit(client, "/Workspace/Users/kim@example.com/no/command.sh"),
        submit(client, launch(workspace, "true", name="s", secrets={"A": "nlp/other"})),
        submit(client, launch(workspace, "true"), ai_task={"code_source_path": "/Volumes/a/b/c/x.tar.gz"}),
    ]
    messages = [ended(workspace, run_id)[1] for run_id in ids]

    assert "command.sh does not exist" in messages[0]
    assert messages[1] == "Secret does not exist with scope: nlp and key: other"
    assert "x.tar.gz does not exist" in messages[2]


def test_a_retry_runs_the_command_anew_with_an_mlflow_run_of_its_own(workspace, client):
    path = launch(
        workspace,
        'echo "$MLFLOW_RUN_ID"; mark=/Volumes/main/ml/data/was-here; [ -e $mark ] || { touch $mark; exit 1; }\n',
    )
    workspace.put_file("/Volumes/main/ml/data/x", b"")
    run_id = submit(client, path, task={"max_retries": 2})

    assert ended(workspace, run_id) == ("SUCCESS", "")
    run = workspace.world.jobs.runs[run_id]
    printed = [attempt.logs.lines(0, time.time())[0].body for attempt in run.attempts]
    assert [attempt.result for attempt in run.attempts] == ["FAILED", "SUCCESS"]
    assert printed == [attempt.mlflow_run_id for attempt in run.attempts]
    assert len(set(printed)) == 2


def test_cancelling_lets_the_command_save_and_ends_it(workspace, client):
    path = launch(
        workspace,
        "trap 'echo saving; exit 0' TERM; echo ready; sleep 600 & wait\n",
    )
    run_id = submit(client, path)
    workspace.wait_for(lambda: logs(client, run_id) == ["ready"], "the first line")
    client.jobs.cancel_run(run_id)

    assert ended(workspace, run_id) == ("CANCELED", "Run cancelled.")
    assert logs(client, run_id) == ["ready", "saving"]


def test_a_command_that_does_not_care_is_killed_with_all_it_started():
    with FakeWorkspace(execute=True, default={"queue_s": 0}, nodes={"grace_s": 0.1}) as workspace:
        client = WorkspaceClient(config=Config(host=workspace.host, token=workspace.token))
        path = launch(workspace, "trap '' TERM; sleep 600 & echo $!; wait; wait\n")
        run_id = submit(client, path)
        (child,) = workspace.wait_for(lambda: logs(client, run_id), "the pid")
        client.jobs.cancel_run(run_id)

        assert ended(workspace, run_id)[0] == "CANCELED"
        assert not is_alive(int(child))


def test_a_process_that_left_the_group_holds_no_run_open():
    settings = {"default": {"queue_s": 0}, "nodes": {"last_words_s": 0.1}}
    with FakeWorkspace(execute=True, **settings) as workspace:
        client = WorkspaceClient(config=Config(host=workspace.host, token=workspace.token))
        path = launch(
            workspace,
            "setsid sh -c 'echo $$ > \"$HOME/pid\"; exec sleep 600' &\n"
            'until [ -s "$HOME/pid" ]; do :; done; cat "$HOME/pid"\n',
        )
        run_id = submit(client, path)
        (pid,) = workspace.wait_for(lambda: logs(client, run_id), "the pid")
        result = ended(workspace, run_id)
        was_alive = is_alive(int(pid))
        os.kill(int(pid), signal.SIGKILL)

    assert result == ("SUCCESS", "")
    assert was_alive


def test_no_command_starts_after_closing():
    plan = {"queue_s": 0, "retry_s": 0}
    with FakeWorkspace(execute=True, clock_scale=1.0, default=plan) as workspace:
        client = WorkspaceClient(config=Config(host=workspace.host, token=workspace.token))
        path = launch(workspace, "echo $$; sleep 600")
        run_id = submit(client, path, task={"max_retries": 50})
        workspace.wait_for(lambda: logs(client, run_id), "the pid")

    run = workspace.world.jobs.runs[run_id]
    assert len(run.attempts) <= 2
    assert [line for attempt in run.attempts[1:] for line in attempt.logs.lines(0, float("inf"))] == []


def test_the_time_limit_ends_the_command_by_the_workspace_s_clock():
    with FakeWorkspace(execute=True, default={"queue_s": 0}) as workspace:
        client = WorkspaceClient(config=Config(host=workspace.host, token=workspace.token))
        run_id = submit(client, launch(workspace, "echo ready; sleep 600"), timeout_seconds=3600)
        workspace.wait_for(lambda: logs(client, run_id), "the first line")
        workspace.advance(3599)
        before = client.jobs.get_run(run_id).state.life_cycle_state.value
        workspace.advance(1)

        assert before == "RUNNING"
        assert ended(workspace, run_id) == ("TIMEDOUT", "Run timed out after 3600 seconds.")


def test_the_time_limit_comes_by_itself_when_the_clock_runs(workspace, client):
    run_id = submit(client, launch(workspace, "sleep 600"), timeout_seconds=1)

    assert ended(workspace, run_id)[0] == "TIMEDOUT"


def test_many_lines_are_there_though_the_clock_stands():
    with FakeWorkspace(execute=True, default={"queue_s": 0}, logs={"layout": "old"}) as workspace:
        client = WorkspaceClient(config=Config(host=workspace.host, token=workspace.token))
        run_id = submit(client, launch(workspace, "seq 900"))
        result = ended(workspace, run_id)
        attempt = workspace.world.jobs.runs[run_id].last
        times = [line.nano for line in attempt.logs.lines(0, workspace.clock.now())]

        assert result == ("SUCCESS", "")
        assert logs(client, run_id) == [str(number) for number in range(1, 901)]
        assert len(set(times)) == 900
        assert attempt.logs.text(0, workspace.clock.now()).count(b"\n") == 900


def test_closing_ends_what_runs():
    with FakeWorkspace(execute=True, default={"queue_s": 0}) as workspace:
        client = WorkspaceClient(config=Config(host=workspace.host, token=workspace.token))
        run_id = submit(client, launch(workspace, "echo $$; sleep 600"))
        (pid,) = workspace.wait_for(lambda: logs(client, run_id), "the pid")
        assert is_alive(int(pid))

    assert not is_alive(int(pid))


@pytest.mark.slow
def test_training_logs_its_metrics_to_the_workspace_s_mlflow(workspace, client):
    run_id = submit(client, launch(workspace, TRAIN))

    result = ended(workspace, run_id)
    task = client.jobs.get_run(run_id).tasks[0]
    output = client.api_client.do("GET", OUTPUT, query={"run_id": task.run_id})
    run = client.experiments.get_run(output["ai_runtime_task_output"]["mlflow_run_id"]).run
    asked = workspace.recorder

    assert result == ("SUCCESS", ""), logs(client, run_id)
    assert run.info.status.value == "FINISHED"
    assert [(metric.key, metric.step) for metric in run.data.metrics] == [("loss", 2)]
    assert asked.job_counts["mlflow/runs/log-metric"] == 3
    assert asked.counts["mlflow/runs/log-metric"] == 0


def test_a_job_s_token_ends_with_the_job(workspace, client):
    run_id = submit(client, launch(workspace, 'echo "$DATABRICKS_TOKEN"'))
    ended(workspace, run_id)

    assert logs(client, run_id)[0] not in workspace.world.tokens
    assert "s3cret" not in json.dumps([entry.as_dict() for entry in workspace.recorder.requests])


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"

"""The fake workspace's logs, artifacts and MLflow, as databricks-sdk, MLflow's client and plain HTTP see them."""

import http.client
import math
from pathlib import Path
from urllib.parse import quote, urlsplit

import mlflow
import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.config import Config
from databricks.sdk.errors import InvalidParameterValue, NotFound, PermissionDenied, ResourceDoesNotExist
from mlflow.entities import Metric, Param, RunTag

from airflows.testing.workspace import FakeWorkspace, submission
from airflows.testing.workspace import launch as put_launch

SUBMIT, OUTPUT = "/api/2.2/jobs/runs/submit", "/api/2.2/jobs/runs/get-output"
READ = "/api/2.0/mlflow/artifacts/credentials-for-read"
LINES = [f"step {number}" for number in range(10)]
START = 1_800_000_000.0
TALKATIVE = {"queue_s": 0, "run_s": 110, "logs": {0: LINES, 1: ["from node 1"]}}


@pytest.fixture
def workspace():
    with FakeWorkspace(clock_start=START, default=TALKATIVE) as workspace:
        yield workspace


@pytest.fixture
def client(workspace):
    return client_of(workspace)


def client_of(workspace, token=None):
    config = Config(host=workspace.host, token=token or workspace.token, retry_timeout_seconds=1)
    return WorkspaceClient(config=config)


def started(client, **changes):
    """Submit a run; return its id and the MLflow run's of its newest attempt."""
    run_id = client.api_client.do("POST", SUBMIT, body=submission(**changes))["run_id"]
    return run_id, mlflow_run(client, run_id)


def mlflow_run(client, run_id):
    task = client.jobs.get_run(run_id).tasks[-1]
    output = client.api_client.do("GET", OUTPUT, query={"run_id": task.run_id})
    return output["ai_runtime_task_output"]["mlflow_run_id"]


def records(client, run_id, **query):
    query = {"ascending": True, "filter": {"node_index": 0}, **query}
    path = f"/api/2.0/ai-training/workflows/by-run-id/{run_id}/logs"
    return client.api_client.do("GET", path, query=query)


def bodies(answer):
    return [record["body"] for record in answer["log_records"]]


def fetch(address, method="GET", body=None, **headers):
    """Ask a signed address; return (status, body)."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    try:
        connection.request(method, f"{parts.path}?{parts.query}", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def signed(client, run_id, path):
    query = {"run_id": run_id, "path": path}
    (info,) = client.api_client.do("GET", READ, query=query)["credential_infos"]
    return info["signed_uri"], {header["name"]: header["value"] for header in info["headers"]}


def test_log_lines_come_as_time_goes_by(workspace, client):
    run_id, _ = started(client)
    seen = [bodies(records(client, run_id))]
    for _ in range(2):
        workspace.advance(45)
        seen.append(bodies(records(client, run_id)))
    workspace.advance(100)

    assert seen == [[], LINES[:4], LINES[:9]]
    assert bodies(records(client, run_id)) == LINES
    assert bodies(records(client, run_id, filter={"node_index": 1})) == ["from node 1"]
    assert bodies(records(client, run_id, filter={"node_index": 2})) == []


def test_logs_are_read_from_either_end_in_pages_and_between_times(workspace, client):
    run_id, _ = started(client)
    workspace.advance(200)
    tail = records(client, run_id, ascending=False, page_size=4)
    more = records(client, run_id, ascending=False, page_size=4, page_token=tail["next_page_token"])
    between = records(client, run_id, **{"from": int(START) + 30, "to": int(START) + 50})

    assert bodies(tail) + bodies(more) == LINES[:1:-1]
    assert bodies(between) == ["step 2", "step 3", "step 4"]
    assert between["log_records"][0]["time_unix_nano"] == (int(START) + 30) * 10**9


def test_logs_are_those_of_the_newest_attempt_unless_asked(workspace, client):
    workspace.outcome(
        {
            "attempts": [
                {**TALKATIVE, "logs": ["first"], "result": "FAILED", "retry_s": 0},
                {**TALKATIVE, "logs": ["second"]},
            ]
        }
    )
    run_id, _ = started(client, task={"max_retries": 1})
    workspace.advance(300)

    assert bodies(records(client, run_id)) == ["second"]
    assert bodies(records(client, run_id, ref={"attempt_number": 0})) == ["first"]
    with pytest.raises(InvalidParameterValue):
        records(client, run_id, ref={"attempt_number": 2})


def test_a_run_that_is_cancelled_prints_no_more(workspace, client):
    run_id, _ = started(client)
    workspace.advance(35)
    client.jobs.cancel_run(run_id)
    workspace.advance(500)

    assert bodies(records(client, run_id)) == LINES[:3]


def test_others_see_no_logs_and_unknown_runs_have_none(workspace, client):
    run_id, _ = started(client)

    with pytest.raises(PermissionDenied):
        records(client_of(workspace, "other-token"), run_id)
    with pytest.raises(InvalidParameterValue, match="does not exist"):
        records(client, 5)


def test_records_come_late_and_twice_where_the_service_does_so():
    manners = {"record_ids": True, "times_as_text": True, "late_every": 3, "late_s": 60, "duplicate_every": 5}
    with FakeWorkspace(clock_start=START, default=TALKATIVE, logs=manners) as workspace:
        client = client_of(workspace)
        run_id, _ = started(client)
        workspace.advance(111)
        early = records(client, run_id)["log_records"]
        workspace.advance(60)
        late = records(client, run_id)["log_records"]

        assert isinstance(early[0]["time_unix_nano"], str)
        assert [record["record_id"] for record in early][:4] == ["0-0", "0-0", "0-1", "0-2"]
        assert "0-8" not in {record["record_id"] for record in early}
        assert len({record["record_id"] for record in late}) == 10


def test_an_empty_log_service_stays_empty():
    with FakeWorkspace(clock_start=START, default=TALKATIVE, logs={"is_empty": True}) as workspace:
        client = client_of(workspace)
        run_id, _ = started(client)
        workspace.advance(200)

        assert records(client, run_id) == {"log_records": [], "next_page_token": ""}


@pytest.mark.parametrize(("layout", "directory"), [("old", "logs/node_0"), ("new", "logs/attempt_0/node_0")])
def test_chunks_of_the_log_are_artifacts(layout, directory):
    manners = {"layout": layout, "chunk_bytes": 20}
    with FakeWorkspace(clock_start=START, default=TALKATIVE, logs=manners) as workspace:
        client = client_of(workspace)
        _, run = started(client)
        workspace.advance(200)
        listed = [file.path for file in client.experiments.list_artifacts(run_id=run, path=directory)]
        chunks = []
        for path in listed:
            address, headers = signed(client, run, path)
            chunks.append(fetch(address, **headers))

        parents = [file.path for file in client.experiments.list_artifacts(run_id=run, path="logs")]
        assert parents[0] == "/".join(directory.split("/")[:2])
        assert len(listed) == 4
        assert {status for status, _ in chunks} == {200}
        assert b"".join(body for _, body in chunks).decode().splitlines() == LINES


def test_a_signed_address_takes_no_token_and_nothing_made_up(workspace, client):
    _, run = started(client)
    workspace.advance(200)
    address, headers = signed(client, run, "logs/attempt_0/node_0/logs-0.chunk.txt")
    other, _ = signed(client, run, "no/such/file")
    with_token = fetch(address, Authorization=f"Bearer {workspace.token}", **headers)
    answers = [
        fetch(address, **headers)[0],
        fetch(address)[0],
        fetch(address.replace("node_0", "node_1"), **headers)[0],
        fetch(other, **headers)[0],
    ]
    workspace.advance(901)

    assert with_token[0] == 400
    assert b"Only one auth mechanism" in with_token[1]
    assert answers == [200, 403, 403, 404]
    assert fetch(address, **headers)[0] == 403
    assert [entry.has_authorization for entry in workspace.recorder.of("storage/get")].count(True) == 1


def test_credentials_are_for_runs_that_are_there(client):
    with pytest.raises(NotFound):
        signed(client, "0" * 32, "logs")


def test_the_service_makes_the_run_in_mlflow_and_ends_it(workspace, client):
    workspace.outcome(
        {
            **TALKATIVE,
            "metrics": {"loss": [3.0, 2.0, 1.0], "odd": [math.inf, math.nan]},
        }
    )
    ai_task = {
        "experiment": "ner",
        "mlflow_run": "try-4",
        "mlflow_experiment_directory": "/Workspace/Shared/n",
    }
    _, run = started(client, ai_task=ai_task)
    at_start = client.experiments.get_run(run).run
    workspace.advance(200)
    at_end = client.experiments.get_run(run).run
    history = list(client.experiments.get_history(metric_key="loss", run_id=run))
    experiment = client.experiments.get_experiment(at_end.info.experiment_id).experiment

    assert at_start.info.status.value == "RUNNING"
    assert at_start.info.run_name == "try-4"
    assert at_end.info.status.value == "FINISHED"
    assert at_end.info.end_time == int(START + 110) * 1000
    assert experiment.name == "/Shared/n/ner"
    assert at_end.info.artifact_uri.startswith(f"{experiment.artifact_location}/{run}")
    assert [(point.step, point.value) for point in history] == [(0, 3.0), (1, 2.0), (2, 1.0)]
    assert {metric.key for metric in at_end.data.metrics} == {"loss", "odd"}


@pytest.mark.parametrize(
    ("result", "status"), [("FAILED", "FAILED"), ("CANCELED", "KILLED"), ("TIMEDOUT", "FAILED")]
)
def test_a_bad_end_shows_in_mlflow(workspace, client, result, status):
    workspace.outcome({**TALKATIVE, "result": result})
    _, run = started(client)
    workspace.advance(200)

    assert client.experiments.get_run(run).run.info.status.value == status


def quadratic(seen):
    return {"loss": [(seen.parameters["lr"] - 0.3) ** 2 + seen.attempt]}


def test_metrics_are_computed_from_what_was_submitted(workspace, client):
    workspace.outcome({**TALKATIVE, "metrics": quadratic})
    path = put_launch(workspace, "true", parameters={"lr": 0.5}, env={"A": "1"})
    _, run = started(client, command_path=path)
    workspace.advance(200)

    (metric,) = client.experiments.get_run(run).run.data.metrics
    assert metric.value == pytest.approx(0.04)


def test_the_sdk_makes_runs_and_finds_them(client):
    experiment = client.experiments.create_experiment("/Users/kim@example.com/own").experiment_id
    parent = client.experiments.create_run(experiment_id=experiment, run_name="parent").run.info.run_id
    child = client.experiments.create_run(experiment_id=experiment, run_name="child").run.info.run_id
    client.experiments.set_tag("mlflow.parentRunId", parent, run_id=child)
    client.experiments.log_batch(run_id=child)
    client.experiments.log_metric("loss", 0.5, 1, run_id=child, step=3)
    client.experiments.log_param("lr", "0.1", run_id=child)
    found = list(
        client.experiments.search_runs(
            experiment_ids=[experiment], filter=f"tags.mlflow.parentRunId = '{parent}'", max_results=1
        )
    )
    client.experiments.delete_run(child)

    assert [run.info.run_id for run in found] == [child]
    assert [(metric.key, metric.value, metric.step) for metric in found[0].data.metrics] == [("loss", 0.5, 3)]
    left = client.experiments.search_runs(experiment_ids=[experiment])
    assert [run.info.run_id for run in left] == [parent]


def test_experiments_are_paths_of_the_workspace(client):
    with pytest.raises(InvalidParameterValue, match="absolute path"):
        client.experiments.create_experiment("just-a-name")
    made = client.experiments.create_experiment("/Workspace/Shared/x").experiment_id

    assert client.experiments.get_by_name("/Shared/x").experiment.experiment_id == made
    with pytest.raises(ResourceDoesNotExist):
        client.experiments.get_by_name("/Shared/unknown")
    with pytest.raises(NotFound):
        client.experiments.get_run("0" * 32)


def test_mlflow_s_own_client_works_with_it(workspace, clean_env, tmp_path):
    for name, value in workspace.environment.items():
        clean_env.setenv(name, value)
    store = mlflow.MlflowClient("databricks")
    (tmp_path / "note.txt").write_bytes(b"hello")
    experiment = store.create_experiment("/Users/kim@example.com/by-mlflow")
    run = store.create_run(experiment, run_name="one").info.run_id
    store.log_batch(run, [Metric("loss", 0.25, 1, 0)], [Param("lr", "0.1")], [RunTag("team", "nlp")])
    store.log_artifact(run, str(tmp_path / "note.txt"), "notes")
    store.set_terminated(run)
    (found,) = store.search_runs([experiment], "metrics.loss < 1 and tags.team = 'nlp'")
    fetched = store.download_artifacts(run, "notes/note.txt", str(tmp_path))
    model = store.create_logged_model(experiment, name="net", source_run_id=run)
    store.log_model_artifact(model.model_id, str(tmp_path / "note.txt"))
    store.finalize_logged_model(model.model_id, "READY")
    kept = store.get_logged_model(model.model_id)

    assert found.info.status == "FINISHED"
    assert found.data.params == {"lr": "0.1"}
    assert [file.path for file in store.list_artifacts(run, "notes")] == ["notes/note.txt"]
    assert kept.status == "READY"
    assert kept.artifact_location.endswith(f"{experiment}/logged_models/{model.model_id}")
    assert [file.path for file in store.list_logged_model_artifacts(model.model_id)] == ["note.txt"]
    assert Path(fetched).read_bytes() == b"hello"
    assert workspace.recorder.broken == []


def test_artifacts_do_not_lead_out(client):
    _, run = started(client)
    address, headers = signed(client, run, "../../secret")

    assert quote("../../secret", safe="/") in address
    assert fetch(address, **headers)[0] == 400

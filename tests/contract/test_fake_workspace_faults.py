"""Faults of the fake workspace, what it records, and how it is steered while it serves."""

import http.client
import json
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from databricks.sdk import WorkspaceClient
from databricks.sdk.config import Config
from databricks.sdk.errors import DatabricksError, PermissionDenied, Unauthenticated
from pydantic import ValidationError

from airflows.testing.workspace import KINDS, FakeWorkspace, Settings, load_settings, submission

DATA = Path(__file__).parents[1] / "data" / "workspace"
SUBMIT, GET, ME = "/api/2.2/jobs/runs/submit", "/api/2.2/jobs/runs/get", "/api/2.0/preview/scim/v2/Me"


@pytest.fixture
def workspace():
    with FakeWorkspace(seed=7) as workspace:
        yield workspace


def ask(workspace, method, path, body=None, token=None, timeout=10):
    """Return (status, headers, body), whatever they are."""
    connection = http.client.HTTPConnection(workspace.host.removeprefix("http://"), timeout=timeout)
    headers = {"Authorization": f"Bearer {token or workspace.token}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def client_of(workspace, **options):
    return WorkspaceClient(
        config=Config(host=workspace.host, token=workspace.token, **{"retry_timeout_seconds": 1, **options})
    )


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("rate_limited", 429, "REQUEST_LIMIT_EXCEEDED"),
        ("unavailable", 503, "TEMPORARILY_UNAVAILABLE"),
        ("internal", 500, "INTERNAL_ERROR"),
        ("forbidden", 403, "PERMISSION_DENIED"),
        ("not_found", 404, "ENDPOINT_NOT_FOUND"),
        ("feature_disabled", 403, "FEATURE_DISABLED"),
        ("expired_token", 401, "UNAUTHENTICATED"),
    ],
)
def test_known_faults_are_answered_so_many_times(workspace, kind, status, code):
    workspace.fault(kind, route="me", times=2)

    answers = [ask(workspace, "GET", ME) for _ in range(3)]

    assert [answer[0] for answer in answers] == [status, status, 200]
    assert json.loads(answers[0][2])["error_code"] == code
    assert (answers[0][1]["Retry-After"] == "1") == (status == 429)


def test_a_bad_gateway_speaks_html(workspace):
    workspace.fault("bad_gateway", route="me")
    status, headers, body = ask(workspace, "GET", ME)

    assert (status, headers["Content-Type"]) == (502, "text/html")
    assert b"502" in body
    with pytest.raises(DatabricksError, match="502"):
        client_of(workspace).current_user.me()


def test_the_sdk_tells_a_disabled_feature_and_an_expired_token(workspace):
    workspace.fault("feature_disabled", route="me", times=1)
    client = client_of(workspace)
    with pytest.raises(PermissionDenied) as caught:
        client.current_user.me()
    assert caught.value.error_code == "FEATURE_DISABLED"

    workspace.world.expired.add(workspace.token)
    with pytest.raises(Unauthenticated):
        client.current_user.me()


def test_the_sdk_repeats_what_is_refused_with_a_time_to_wait(workspace):
    workspace.fault("rate_limited", route="me", times=1, retry_after=0)

    assert client_of(workspace, retry_timeout_seconds=20).current_user.me().active
    assert [recorded.status for recorded in workspace.recorder.of("me")] == [429, 200]
    assert [name for name in workspace.recorder.routes() if name == "me"] == ["me", "me"]


def test_a_reply_that_is_dropped_after_the_effect_leaves_one_run(workspace):
    workspace.fault("dropped_reply", route="jobs/runs/submit", times=1)
    with pytest.raises(http.client.RemoteDisconnected):
        ask(workspace, "POST", SUBMIT, submission(token="t"))
    stored = [run.id for run in workspace.runs]
    status, _, body = ask(workspace, "POST", SUBMIT, submission(token="t"))

    assert len(stored) == 1
    assert (status, json.loads(body)["run_id"]) == (200, stored[0])
    assert len(workspace.runs) == 1
    assert [recorded.status for recorded in workspace.recorder.of("jobs/runs/submit")] == [0, 200]


def test_the_sdk_s_own_repetition_of_a_dropped_submission_finds_the_run(workspace):
    workspace.fault("dropped_reply", route="jobs/runs/submit", times=1)
    client = client_of(workspace, retry_timeout_seconds=20)
    run_id = client.api_client.do("POST", SUBMIT, body=submission(token="t"))["run_id"]

    assert [run.id for run in workspace.runs] == [run_id]
    assert [recorded.status for recorded in workspace.recorder.of("jobs/runs/submit")] == [0, 200]


def test_a_request_that_is_dropped_has_no_effect(workspace):
    workspace.fault("dropped_request", route="jobs/runs/submit")
    with pytest.raises(http.client.RemoteDisconnected):
        ask(workspace, "POST", SUBMIT, submission())

    assert workspace.runs == []


def test_an_error_after_the_effect_hides_it(workspace):
    workspace.fault("unavailable", route="jobs/runs/submit", when="after")

    assert ask(workspace, "POST", SUBMIT, submission())[0] == 503
    assert len(workspace.runs) == 1
    assert workspace.recorder.of("jobs/runs/submit")[0].fault == "unavailable after"


def test_a_reply_can_be_cut(workspace):
    workspace.fault("cut_reply", route="me")

    with pytest.raises(http.client.IncompleteRead):
        ask(workspace, "GET", ME)


def test_a_slow_answer_outlasts_patience(workspace):
    workspace.fault("slow", route="me", delay_s=30)

    with pytest.raises(TimeoutError):
        ask(workspace, "GET", ME, timeout=0.2)


def test_faults_are_chosen_by_what_a_request_holds(workspace):
    workspace.fault("forbidden", route="jobs/runs/*", contains="poison")

    good, bad = submission(run_name="good"), submission(run_name="poisoned")
    assert [ask(workspace, "POST", SUBMIT, body)[0] for body in (good, bad)] == [200, 403]


def test_faults_let_some_requests_through_first_and_can_be_taken_back(workspace):
    workspace.fault("internal", route="me", skip=2)
    before = [ask(workspace, "GET", ME)[0] for _ in range(4)]
    workspace.mend()

    assert before == [200, 200, 500, 500]
    assert ask(workspace, "GET", ME)[0] == 200


def test_chance_is_seeded():
    drawn = []
    for seed in (7, 7, 8):
        with FakeWorkspace(seed=seed, faults=[{"kind": "unavailable", "probability": 0.3}]) as workspace:
            drawn.append([ask(workspace, "GET", ME)[0] for _ in range(60)])

    assert drawn[0] == drawn[1] != drawn[2]
    assert 5 < drawn[0].count(503) < 35


def test_too_many_at_once_are_refused_and_counted(workspace):
    workspace.fault("rate_limited", at_once_over=4)
    workspace.fault(route="me", delay_s=0.3)
    with ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(lambda _: ask(workspace, "GET", ME)[0], range(12)))

    assert 429 in statuses
    assert 200 in statuses
    assert workspace.recorder.most_at_once > 4
    assert workspace.recorder.most_at_once_by_route["me"] == workspace.recorder.most_at_once


def test_requests_are_recorded_in_order_with_what_they_asked(workspace):
    ask(workspace, "GET", ME)
    ask(workspace, "POST", SUBMIT, submission(token="t"))
    ask(workspace, "GET", f"{GET}?run_id=5")
    ask(workspace, "GET", ME, token="wrong")

    recorded = list(workspace.recorder.requests)

    assert [request.route for request in recorded] == ["me", "jobs/runs/submit", "jobs/runs/get", "me"]
    assert [request.status for request in recorded] == [200, 200, 400, 401]
    assert recorded[1].body["idempotency_token"] == "t"
    assert recorded[2].query == {"run_id": "5"}
    assert [request.user for request in recorded] == ["kim@example.com"] * 3 + [""]
    assert workspace.recorder.summary()["by_route"] == {"me": 2, "jobs/runs/submit": 1, "jobs/runs/get": 1}
    assert workspace.token not in json.dumps([request.as_dict() for request in recorded])


def test_one_connection_serves_many_requests(workspace):
    connection = http.client.HTTPConnection(workspace.host.removeprefix("http://"), timeout=10)
    headers = {"Authorization": f"Bearer {workspace.token}"}
    connection.request("GET", ME, headers=headers)
    connection.getresponse().read()
    socket = connection.sock
    statuses = []
    for _ in range(50):
        connection.request("GET", ME, headers=headers)
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)

    assert statuses == [200] * 50
    assert connection.sock is socket
    connection.close()


def test_eight_clients_at_once_get_their_own_answers(workspace):
    ids = [json.loads(ask(workspace, "POST", SUBMIT, submission())[2])["run_id"] for _ in range(8)]
    client = client_of(workspace)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda run_id: client.jobs.get_run(run_id).run_id, ids * 25))

    assert found == ids * 25
    assert workspace.recorder.broken == []


def test_it_is_steered_over_http(workspace):
    outcome = {"token": "t*", "plan": {"queue_s": 0, "run_s": 60, "result": "FAILED"}}
    assert ask(workspace, "POST", "/__fake__/outcomes", outcome)[0] == 200
    assert ask(workspace, "POST", "/__fake__/faults", {"kind": "internal", "route": "me"})[0] == 200
    assert ask(workspace, "POST", "/__fake__/capacity", {"GPU_1xA10": 1})[0] == 200
    ids = [json.loads(ask(workspace, "POST", SUBMIT, submission(token=f"t{n}"))[2])["run_id"] for n in (1, 2)]
    refused = ask(workspace, "GET", ME)[0]
    ask(workspace, "POST", "/__fake__/advance", {"seconds": 61})
    runs = json.loads(ask(workspace, "GET", "/__fake__/runs")[2])["runs"]
    ask(workspace, "POST", "/__fake__/end", {"run_id": ids[1], "result": "TIMEDOUT"})
    state = json.loads(ask(workspace, "GET", "/__fake__/state")[2])
    counts = json.loads(ask(workspace, "GET", "/__fake__/counts")[2])

    assert refused == 500
    assert [run["ended"] for run in runs] == [True, False]
    assert runs[0]["attempts"][0]["message"] == "exit code 1"
    assert (state["runs"], state["active"]) == (2, 0)
    assert counts["by_route"] == {"jobs/runs/submit": 2, "me": 1}
    assert counts["faults"] == [1]
    assert ask(workspace, "POST", "/__fake__/faults", {"kind": "nonsense"})[0] == 400


def test_a_script_says_it_all():
    settings = load_settings(DATA / "script.yaml", seed=8)
    with FakeWorkspace(settings) as workspace:
        names = set(workspace.router.names())

        assert workspace.settings.seed == 8
        assert workspace.token == "kim-token"
        assert len(workspace.runs) == 4
        assert {fault.route.partition("*")[0].rstrip("/") for fault in settings.faults} <= names | {
            "jobs/runs",
            "",
        }


def test_the_page_about_it_names_what_there_is(workspace):
    routes = json.loads(ask(workspace, "GET", "/__fake__/routes")[2])["routes"]
    page = (Path(__file__).parents[2] / "docs" / "fake-workspace.md").read_text()
    listed = page.split("short names, such as ")[1].split("`GET")[0]
    kinds = page.split("Kinds of faults: ")[1].split("Any field")[0]
    (script,) = [block for block in page.split("```") if block.startswith("yaml")]

    assert set(re.findall(r"`([^`]+)`", listed)) <= set(routes)
    assert set(re.findall(r"`([^`]+)`", kinds)) == set(KINDS)
    assert len(Settings.model_validate(yaml.safe_load(script.removeprefix("yaml"))).faults) == 3


def test_what_makes_no_sense_in_a_script_is_refused(tmp_path):
    for bad in ({"faults": [{"route": "me"}]}, {"outcomes": [{}]}, {"nonsense": 1}):
        with pytest.raises(ValidationError):
            Settings.model_validate(bad)
    script = tmp_path / "script.yaml"
    script.write_text("outcomes: [{plan: {run: 5}}]\n")
    with pytest.raises(ValueError, match=r"script.yaml: outcomes.0.plan.run: Extra"):
        load_settings(script)
    script.write_text("- a\n")
    with pytest.raises(TypeError, match="mapping"):
        load_settings(script)


def test_the_command_prints_its_address_and_serves_until_it_is_told_to_end(tmp_path):
    script = tmp_path / "script.yaml"
    script.write_text(
        "default: {queue_s: 0, run_s: 5}\n"
        "outcomes:\n"
        "  - {token: 'bad-*', plan: {queue_s: 0, run_s: 5, result: INTERNAL_ERROR}}\n"
        "faults:\n"
        "  - {kind: forbidden, route: me, times: 1}\n"
    )
    command = [sys.executable, "-m", "airflows.testing.workspace", "--script", str(script), "--scale", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        host = process.stdout.readline().strip()
        served = SimpleNamespace(host=host, token="fake-token")
        answers = [ask(served, "GET", ME) for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        exports = process.stderr.read()

    assert [answer[0] for answer in answers] == [403, 200]
    assert process.returncode == 0
    assert exports.splitlines() == [
        f"export DATABRICKS_HOST={host}",
        "export DATABRICKS_TOKEN=fake-token",
    ]

"""MLflow that is away, refuses, hangs or is not MLflow: the right error, soon, and no password in it."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from airflows.errors import AirflowsError, TrackingUnavailableError
from airflows.testing.mlflow_server import free_port
from airflows.tracking import OpenedSweep, SweepRun, TrackingRefusedError, TrialRun, open_tracker

SECRET = "s3cret-p4ss"
SOON_S = 15


class Stub(BaseHTTPRequestHandler):
    """Answers everything as its server says."""

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, body = self.server.reply
        self.server.asked += 1
        self.server.gate.wait()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def stub(clean_env):
    clean_env.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    clean_env.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    server.gate, server.asked, server.reply = threading.Event(), 0, (200, b"{}")
    server.gate.set()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.gate.set()
    server.shutdown()
    server.server_close()
    thread.join()


def tracker_of(server, tmp_path):
    uri = f"http://ada:{SECRET}@127.0.0.1:{server.server_port}"
    return open_tracker(uri, tmp_path, environment={})


def error_of(call) -> AirflowsError:
    with pytest.raises(AirflowsError) as caught:
        call()
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "http://ada:***@127.0.0.1" in str(caught.value)
    return caught.value


def mlflow_error(code: str, message: str) -> bytes:
    return json.dumps({"error_code": code, "message": message}).encode()


@pytest.mark.usefixtures("clean_env")
def test_nobody_listening_is_told_soon(tmp_path):
    """With the patience a driver has when the user has not chosen another."""
    tracker = open_tracker(f"http://ada:{SECRET}@127.0.0.1:{free_port()}", tmp_path, environment={})
    began = time.monotonic()
    error = error_of(tracker.check)
    assert type(error) is TrackingUnavailableError
    assert time.monotonic() - began < SOON_S


def test_a_server_that_hangs_is_away(stub, tmp_path):
    stub.gate.clear()
    began = time.monotonic()
    assert type(error_of(tracker_of(stub, tmp_path).check)) is TrackingUnavailableError
    assert 1 <= time.monotonic() - began < SOON_S
    assert stub.asked == 1


@pytest.mark.parametrize(
    "reply",
    [
        (503, b"over capacity"),
        (500, mlflow_error("INTERNAL_ERROR", "oops")),
        (429, mlflow_error("REQUEST_LIMIT_EXCEEDED", "slow down")),
        (503, mlflow_error("TEMPORARILY_UNAVAILABLE", "(sqlite3.OperationalError) database is locked")),
        (200, b"<html>log in</html>"),
    ],
)
def test_an_answer_that_may_pass_is_no_answer(stub, tmp_path, reply):
    stub.reply = reply
    assert type(error_of(tracker_of(stub, tmp_path).check)) is TrackingUnavailableError


@pytest.mark.parametrize(
    ("reply", "hint"),
    [
        ((404, b"no such page"), "Check that the address is an MLflow server's."),
        ((401, b"who are you"), "MLFLOW_TRACKING_USERNAME"),
        ((403, mlflow_error("PERMISSION_DENIED", "not yours")), "MLFLOW_TRACKING_USERNAME"),
    ],
)
def test_an_answer_that_will_not_change_is_a_refusal(stub, tmp_path, reply, hint):
    stub.reply = reply
    error = error_of(tracker_of(stub, tmp_path).check)
    assert type(error) is TrackingRefusedError
    assert hint in error.hint
    assert error.exit_code == 3


def test_a_failing_server_is_never_a_trial_without_a_metric(stub, tmp_path):
    tracker = tracker_of(stub, tmp_path)
    stub.reply = (200, b"{}")
    tracker.open_sweep(SweepRun("s-123456", "x"), OpenedSweep("1", "a" * 32))
    stub.reply = (503, b"")
    objective = type("Objective", (), {"metric": "loss", "goal": "minimize", "take": "last"})
    calls = [
        lambda: tracker.read(["b" * 32], objective),
        tracker.count_runs,
        lambda: tracker.create_runs([TrialRun(0, "a", {}), TrialRun(1, "b", {})], uncertain=False),
    ]
    for call in calls:
        assert type(error_of(call)) is TrackingUnavailableError


def test_a_kind_of_store_that_mlflow_does_not_know_is_told(tmp_path):
    with pytest.raises(AirflowsError, match="gopher"):
        open_tracker("gopher://host", tmp_path, environment={}).check()

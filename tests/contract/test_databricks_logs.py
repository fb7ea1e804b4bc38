"""Logs of runs on a fake Databricks workspace: the log service, and the chunks among the MLflow artifacts."""

import itertools

import pytest

from airflows.backends.databricks import DatabricksBackend, DatabricksSettings
from airflows.backends.databricks.client import Workspace
from airflows.backends.databricks.logs import LogReader
from airflows.errors import BackendUnavailableError
from airflows.testing.jobs import MakeJob
from airflows.testing.workspace import FakeWorkspace

LINES = [f"line {number}" for number in range(40)]


@pytest.fixture
def start(clean_env, tmp_path):
    """Start one run on a workspace with these settings; return (workspace, backend, handle)."""
    opened = []

    def go(*, nodes=1, retries="airflows", **settings):
        plan = {"queue_s": 1.0, "run_s": 20.0, "logs": LINES}
        workspace = FakeWorkspace(**{"default": plan, **settings})
        opened.append(workspace.__enter__())
        for name, value in workspace.environment.items():
            clean_env.setenv(name, value)
        backend = DatabricksBackend(
            DatabricksSettings(patience=1, retries=retries),
            tmp_path / "home",
            clock=workspace.clock.now,
            pause=workspace.advance,
        )
        (handle,) = backend.submit([MakeJob(backend)("true", nodes=nodes)])
        return workspace, backend, handle

    yield go
    for workspace in opened:
        workspace.__exit__(None, None, None)


def read(backend, handle, *, node=0, follow=False, lines=None, **more):
    return list(backend.logs_of(handle, **{"attempt": None, **more}, node=node, follow=follow, lines=lines))


SOURCES = pytest.mark.parametrize("fault", [None, {"kind": "feature_disabled"}, {"kind": "not_found"}])


def spoil(workspace, fault):
    if fault is not None:
        workspace.fault(route="*logs*", contains="by-run-id", **fault)


@SOURCES
@pytest.mark.parametrize("lines", [None, 1, 7, 39, 40, 100])
def test_a_whole_log_or_its_end_is_read(start, fault, lines):
    workspace, backend, handle = start(logs={"page_size": 9, "chunk_bytes": 64})
    workspace.advance(60)
    spoil(workspace, fault)

    assert read(backend, handle, lines=lines) == LINES[-lines if lines else 0 :]


@SOURCES
def test_nothing_is_asked_for_no_lines(start, fault):
    workspace, backend, handle = start()
    workspace.advance(60)
    spoil(workspace, fault)
    workspace.recorder.forget()

    assert read(backend, handle, lines=0) == []
    assert workspace.recorder.counts.total() == 0


@SOURCES
def test_a_log_is_followed_to_its_end(start, fault):
    workspace, backend, handle = start(logs={"chunk_bytes": 64})
    spoil(workspace, fault)

    assert read(backend, handle, follow=True) == LINES


@pytest.mark.parametrize(
    "manners",
    [
        {"record_ids": True},
        {"times_as_text": True},
        {"duplicate_every": 3},
        {"duplicate_every": 2, "record_ids": True},
        {"late_every": 5, "late_s": 2.5},
        {"page_size": 1},
    ],
)
def test_ill_mannered_records_are_told_once_each(start, manners):
    workspace, backend, handle = start(logs=manners)

    followed = read(backend, handle, follow=True)

    assert sorted(followed) == sorted(LINES)
    workspace.advance(60)
    assert read(backend, handle) == LINES
    assert read(backend, handle, lines=5) == LINES[-5:]


def test_following_begins_with_the_last_lines_that_are_asked_for(start):
    workspace, backend, handle = start()
    workspace.advance(11)

    followed = read(backend, handle, follow=True, lines=2)

    first = int(followed[0].split()[1])
    assert 10 < first < 30
    assert followed == LINES[first:]


def test_what_is_there_of_an_active_run_is_read_without_waiting(start):
    workspace, backend, handle = start()
    assert read(backend, handle) == []
    workspace.advance(11)

    shown = read(backend, handle)

    assert 0 < len(shown) < len(LINES)
    assert shown == LINES[: len(shown)]


def test_each_node_has_its_own_log(start):
    plan = {"run_s": 5.0, "logs": {0: ["zero"], 1: ["one"]}}
    workspace, backend, handle = start(nodes=2, default=plan)
    workspace.advance(60)

    assert [read(backend, handle, node=node) for node in (0, 1)] == [["zero"], ["one"]]


@SOURCES
@pytest.mark.parametrize("layout", ["old", "new"])
def test_each_attempt_that_the_service_made_has_its_own_log(start, fault, layout):
    attempts = [{"result": "FAILED", "run_s": 2.0, "logs": ["first"]}, {"run_s": 2.0, "logs": ["second"]}]
    workspace, backend, handle = start(
        retries="native", default={"attempts": attempts}, logs={"layout": layout}
    )
    workspace.advance(60)
    spoil(workspace, fault)

    assert read(backend, handle) == ["second"]
    assert [read(backend, handle, attempt=number) for number in (0, 1)] == [["first"], ["second"]]


def test_a_log_service_that_fails_is_asked_again_and_then_given_up(start):
    workspace, backend, handle = start()
    workspace.advance(60)
    workspace.fault("internal", contains="by-run-id", times=2)
    assert read(backend, handle) == LINES

    workspace.fault("internal", contains="by-run-id")
    assert read(backend, handle) == LINES
    assert sum("credentials-for-read" in each.path for each in workspace.recorder.requests) == 1


def test_an_empty_log_service_is_no_proof(start):
    workspace, backend, handle = start(logs={"is_empty": True})
    workspace.advance(60)

    assert read(backend, handle) == LINES
    assert read(backend, handle, follow=True, lines=3) == LINES[-3:]


def test_signed_addresses_are_fetched_without_the_token(start):
    workspace, backend, handle = start(logs={"is_empty": True})
    workspace.advance(60)

    read(backend, handle)

    signed = [each for each in workspace.recorder.requests if each.path.startswith("/__storage__")]
    assert signed
    assert not any(each.has_authorization for each in signed)


def test_chunks_are_read_in_the_order_of_their_numbers(start):
    lines = [f"line {number:03d} {'x' * 50}" for number in range(60)]
    plan = {"run_s": 5.0, "logs": lines}
    workspace, backend, handle = start(default=plan, logs={"is_empty": True, "chunk_bytes": 200})
    workspace.advance(60)

    assert read(backend, handle) == lines
    assert read(backend, handle, lines=4) == lines[-4:]


def test_a_chunk_that_is_missing_leaves_no_gap(start):
    workspace, backend, handle = start(logs={"is_empty": True, "chunk_bytes": 64})
    workspace.advance(60)
    workspace.fault("not_found", contains="logs-2.chunk.txt", route="mlflow/artifacts/credentials-for-read")

    shown = read(backend, handle, lines=39)

    assert shown
    assert shown[1:] == LINES[len(LINES) - len(shown) + 1 :]


def test_a_chunk_that_arrives_cut_ends_what_is_shown(start):
    workspace, backend, handle = start(logs={"is_empty": True})
    workspace.advance(60)
    workspace.fault("cut_reply", route="storage/get", times=1)

    assert read(backend, handle) == []
    assert read(backend, handle) == LINES


def test_the_log_of_an_attempt_can_be_asked_for_before_there_is_any(start):
    workspace, _, handle = start()
    workspace.advance(60)
    run = {"run_id": int(handle), "state": {"life_cycle_state": "PENDING"}}
    reader = LogReader(Workspace(None, 1), lambda: run, int(handle), 0, workspace.advance, 0)

    assert list(reader.lines(follow=False, lines=None)) == LINES


def test_a_run_that_never_started_has_no_log(start):
    workspace, backend, handle = start()
    backend.cancel([handle])
    workspace.advance(60)

    assert read(backend, handle) == []


def test_a_run_that_is_not_there_is_an_error(start):
    _, backend, _ = start()

    with pytest.raises(BackendUnavailableError, match="knows no run 99"):
        read(backend, "99")


def test_progress_bars_are_shown_as_a_terminal_leaves_them(start):
    plan = {"run_s": 5.0, "logs": ["1 %\r50 %\r100 %", "done\r"]}
    workspace, backend, handle = start(default=plan)
    workspace.advance(60)

    assert read(backend, handle) == ["100 %", "done"]


def test_a_driver_that_looks_late_follows_what_came_meanwhile(start):
    workspace, backend, handle = start()
    followed = backend.logs(handle, node=0, follow=True)
    first = list(itertools.islice(followed, 3))
    workspace.advance(60)

    assert [*first, *followed] == LINES

"""What the workspace's words mean."""

import pytest

from airflows.backends.base import Phase
from airflows.backends.databricks import states
from airflows.backends.databricks.states import MlflowIds
from airflows.failures import classify
from airflows.planner import CANCELLED
from airflows.trial import Reason

IDS = MlflowIds("1", "abc")


def run(life="RUNNING", result=None, message="", *, tasks=None, **fields):
    state = {"life_cycle_state": life, "state_message": message} | (
        {"result_state": result} if result else {}
    )
    task = {"run_id": 7002, "attempt_number": 0, "state": state, "start_time": 2000, "end_time": 5000}
    listed = [{**task, "ai_runtime_task": {"experiment": "e"}}] if tasks is None else tasks
    return {"run_id": 7001, "state": state, "tasks": listed, **fields}


def newer(state, kind=None, code=None, message=""):
    details = {"code": code, "type": kind, "message": message}
    return {"status": {"state": state} | ({"termination_details": details} if code else {})}


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (run(), "RUNNING"),
        (run("TERMINATED", "SUCCESS"), "SUCCESS"),
        (run("TERMINATED", "NEW_WORD"), "NEW_WORD"),
        (run("SLEEPING"), "SLEEPING"),
        ({}, "UNKNOWN"),
        (newer("WAITING"), "WAITING_FOR_RETRY"),
        (newer("TERMINATED", "SUCCESS", "SUCCESS"), "SUCCESS"),
        (newer("TERMINATED", "SUCCESS", "USER_CANCELED"), "CANCELED"),
        (newer("TERMINATED", "SUCCESS", "SKIPPED"), "SKIPPED"),
        (newer("TERMINATED", "CLIENT_ERROR", "RUN_EXECUTION_ERROR"), "FAILED"),
        (newer("TERMINATED", "CLOUD_FAILURE", "CLOUD"), "FAILED"),
        (newer("TERMINATED", "INTERNAL_ERROR", "X"), "INTERNAL_ERROR"),
        ({**run("RUNNING"), **newer("TERMINATED", "SUCCESS", "SUCCESS")}, "RUNNING"),
    ],
)
def test_a_run_has_one_word(seen, word):
    assert states.word_of(seen) == word


@pytest.mark.parametrize(
    ("seen", "phase"),
    [
        (run("QUEUED"), Phase.QUEUED),
        (run("BLOCKED"), Phase.QUEUED),
        (run("WAITING_FOR_RETRY"), Phase.QUEUED),
        (run("RUNNING"), Phase.RUNNING),
        (run("TERMINATING"), Phase.RUNNING),
        (run("RUNNING", tasks=[{"state": {"life_cycle_state": "PENDING"}}]), Phase.QUEUED),
        (run("TERMINATED", "TIMEDOUT"), Phase.ENDED),
        (run("RUNNING", "TIMEDOUT"), Phase.ENDED),
        (run("TERMINATED", "NEW_WORD"), Phase.ENDED),
        (run("SKIPPED"), Phase.ENDED),
        (run("INTERNAL_ERROR"), Phase.ENDED),
        (run("SLEEPING"), Phase.UNKNOWN),
        (newer("RUNNING"), Phase.RUNNING),
        (newer("QUEUED"), Phase.QUEUED),
        ({}, Phase.UNKNOWN),
    ],
)
def test_a_run_is_somewhere(seen, phase):
    assert states.phase_of(seen) is phase


@pytest.mark.parametrize(
    ("seen", "code", "reason"),
    [
        (run("TERMINATED", "FAILED", "exit code 3"), 3, Reason.ERROR),
        (run("TERMINATED", "FAILED", "Workload failed, exited with status 137."), 137, Reason.ERROR),
        (run("TERMINATED", "FAILED", "something else"), 1, Reason.ERROR),
        (run("TERMINATED", "TIMEDOUT", "after 60 seconds"), None, Reason.TIMED_OUT),
        (run("INTERNAL_ERROR", "FAILED", "no machine"), None, Reason.NODE_FAILED),
        (run("SKIPPED"), None, Reason.PREEMPTED),
        (run("TERMINATED", "MAXIMUM_CONCURRENT_RUNS_REACHED"), None, Reason.PREEMPTED),
        (run("TERMINATED", "NEW_WORD", "because"), 1, Reason.ERROR),
        (newer("TERMINATED", "CLOUD_FAILURE", "CLOUD", "lost"), None, Reason.NODE_FAILED),
        (newer("TERMINATED", "CLIENT_ERROR", "RUN_EXECUTION_ERROR", "exit code 2"), 2, Reason.ERROR),
        (newer("TERMINATED", "INTERNAL_ERROR", "INTERNAL_ERROR"), None, Reason.NODE_FAILED),
    ],
)
def test_an_end_has_a_reason(seen, code, reason):
    observation = states.observation_of(seen, IDS)

    assert (observation.phase, observation.exit_code) == (Phase.ENDED, code)
    assert classify(observation, ()).reason is reason


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("Task failed with exit code 137.", 137),
        ("exit status: 2", 2),
        ("The command exited with 3", 3),
        ("exited with exit code of 4 on node 1", 4),
        ("Exit code is 255", 255),
        ("exit_code=9", 9),
        ("exited with status 0", None),
        ("exit code 256", None),
        ("exited: 2 nodes lost", None),
        ("The job exited after 2 nodes were lost", None),
        ("HTTP status 200 from the registry", None),
        ("status of 3 replicas is unknown", None),
        ("no capacity", None),
    ],
)
def test_an_exit_code_is_one_that_is_called_so(message, code):
    assert states.exit_code_in(message) == code


def test_a_success_is_clean_and_nothing_else_is():
    assert states.observation_of(run("TERMINATED", "SUCCESS"), IDS).exit_code == 0
    other = states.observation_of(run("TERMINATED", "SUCCESS_WITH_FAILURES"), IDS)

    assert other.exit_code != 0
    assert "SUCCESS_WITH_FAILURES" in other.detail


def test_a_run_that_a_person_cancelled_says_so():
    assert states.observation_of(run("TERMINATED", "CANCELED"), IDS).word == CANCELLED


def test_a_word_nobody_knows_is_shown():
    seen = states.observation_of(run("SLEEPING"), IDS)

    assert (seen.phase, seen.detail) == (Phase.UNKNOWN, "Databricks says SLEEPING")
    ended = states.observation_of(run("TERMINATED", "NEW_WORD", "because"), IDS)
    assert ended.detail == "Databricks says NEW_WORD: because"


def test_the_newest_attempt_counts_whatever_the_order():
    failed = {
        "run_id": 1,
        "attempt_number": 0,
        "state": {"life_cycle_state": "TERMINATED"},
        "start_time": 1000,
    }
    second = {"run_id": 2, "attempt_number": 1, "state": {"life_cycle_state": "RUNNING"}, "start_time": 9000}
    seen = run("RUNNING", tasks=[second, failed])

    assert [task["run_id"] for task in states.attempts_of(seen)] == [1, 2]
    assert states.observation_of(seen, IDS).started_at == 9.0


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("STATUS:waiting for GPUs", "waiting for GPUs..."),
        ("status: getting a node ...", "getting a node..."),
        ("DEBUG:x", "in line"),
        ("", "in line"),
    ],
)
def test_waiting_is_explained(message, text):
    assert states.waiting_text(run("QUEUED", message="in line"), MlflowIds(message=message)) == text


def test_waiting_has_a_fixed_text_when_nothing_is_said():
    assert states.waiting_text(run("PENDING"), MlflowIds()) == "waiting for compute"


@pytest.mark.parametrize("missing", ["mlflow_experiment_id", "mlflow_run_id"])
def test_half_an_mlflow_run_is_none_yet(missing):
    output = {"mlflow_experiment_id": "1", "mlflow_run_id": "abc", missing: ""}

    assert MlflowIds.of({"ai_runtime_task_output": output}).run == ""
    assert MlflowIds.of({}) == MlflowIds()


def test_runs_of_older_clients_are_ai_runs_too():
    older = {"gen_ai_compute_task": {"training_script_path": "/x", "mlflow_experiment_name": "/Users/k/e"}}
    looped = {"for_each_task": {"task": {"ai_runtime_task": {"experiment": "e"}}}}

    assert states.ai_task(run(tasks=[older]))["experiment"] == "/Users/k/e"
    assert states.ai_task(run(tasks=[looped]))["experiment"] == "e"
    assert states.ai_task(run(tasks=[{"notebook_task": {}}])) is None

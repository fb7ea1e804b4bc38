"""The fake workspace's jobs, as databricks-sdk and plain HTTP see them."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.config import Config
from databricks.sdk.errors import (
    BadRequest,
    InvalidParameterValue,
    NotFound,
    PermissionDenied,
    ResourceDoesNotExist,
)
from databricks.sdk.service import compute, jobs

from airflows.testing.workspace import FakeWorkspace, RunPlan, submission

SUBMIT, GET, OUTPUT = "/api/2.2/jobs/runs/submit", "/api/2.2/jobs/runs/get", "/api/2.2/jobs/runs/get-output"
LIST, CANCEL, INDEX = (
    "/api/2.2/jobs/runs/list",
    "/api/2.2/jobs/runs/cancel",
    "/api/2.0/ai-training/workflows",
)
QUICK = {"queue_s": 1, "run_s": 10}


@pytest.fixture
def workspace():
    with FakeWorkspace(default=QUICK) as workspace:
        yield workspace


@pytest.fixture
def client(workspace):
    return client_of(workspace)


def client_of(workspace, token=None):
    config = Config(host=workspace.host, token=token or workspace.token, retry_timeout_seconds=1)
    return WorkspaceClient(config=config)


def submit(client, body):
    return client.api_client.do("POST", SUBMIT, body=body)["run_id"]


def seen(client, run_id):
    return client.api_client.do("GET", GET, query={"run_id": run_id})


def words(client, run_id):
    state = seen(client, run_id)["state"]
    return state["life_cycle_state"], state.get("result_state", "")


def test_the_sdk_submits_and_reads_a_run(client):
    waiter = client.jobs.submit(
        run_name="ner-base",
        idempotency_token="n-4",
        timeout_seconds=5400,
        environments=[jobs.JobEnvironment("default", spec=compute.Environment(environment_version="5"))],
        tasks=[
            jobs.SubmitTask(
                task_key="ner-base",
                run_if=jobs.RunIf.ALL_SUCCESS,
                environment_key="default",
                max_retries=0,
                ai_runtime_task=jobs.AiRuntimeTask(
                    experiment="ner-base",
                    deployments=[
                        jobs.DeploymentSpec(
                            command_path="/Workspace/Users/kim@example.com/command.sh",
                            compute=jobs.ComputeSpec(jobs.ComputeSpecAcceleratorType.GPU_8X_H100, 16),
                        )
                    ],
                ),
            )
        ],
    )

    run = client.jobs.get_run(waiter.run_id)
    listed = list(client.jobs.list_runs(run_type=jobs.RunType.SUBMIT_RUN, expand_tasks=True, limit=25))

    assert run.creator_user_name == "kim@example.com"
    assert run.tasks[0].attempt_number == 0
    assert run.tasks[0].ai_runtime_task.deployments[0].compute.accelerator_count == 16
    assert run.state.life_cycle_state is jobs.RunLifeCycleState.PENDING
    assert [found.run_id for found in listed] == [waiter.run_id]


def test_a_run_waits_runs_and_ends_by_the_clock(workspace, client):
    run_id = submit(client, submission())
    task_id = seen(client, run_id)["tasks"][0]["run_id"]
    waiting = words(client, run_id), client.api_client.do("GET", OUTPUT, query={"run_id": task_id})
    workspace.advance(1)
    running = words(client, run_id), client.api_client.do("GET", OUTPUT, query={"run_id": task_id})
    workspace.advance(9.9)
    still = words(client, run_id)
    workspace.advance(0.1)
    ended = seen(client, run_id)

    assert waiting[0] == ("PENDING", "")
    assert waiting[1]["ai_runtime_task_output"] == {"status_message": "STATUS:waiting for GPUs"}
    assert running[0] == still == ("RUNNING", "")
    assert set(running[1]["ai_runtime_task_output"]) == {"mlflow_experiment_id", "mlflow_run_id"}
    assert ended["state"]["result_state"] == "SUCCESS"
    assert ended["status"]["termination_details"]["code"] == "SUCCESS"
    assert ended["tasks"][0]["end_time"] - ended["tasks"][0]["start_time"] == 10_000


@pytest.mark.parametrize(
    ("plan", "life", "result", "code"),
    [
        ({"result": "FAILED", "exit_code": 3}, "TERMINATED", "FAILED", "RUN_EXECUTION_ERROR"),
        ({"result": "INTERNAL_ERROR"}, "INTERNAL_ERROR", "FAILED", "INTERNAL_ERROR"),
        ({"result": "TIMEDOUT"}, "TERMINATED", "TIMEDOUT", "RUN_EXECUTION_ERROR"),
        ({"result": "CANCELED"}, "TERMINATED", "CANCELED", "USER_CANCELED"),
        ({"result": "SKIPPED"}, "SKIPPED", "", "SKIPPED"),
        ({"result": "EATEN_BY_A_GRUE"}, "TERMINATED", "EATEN_BY_A_GRUE", "RUN_EXECUTION_ERROR"),
    ],
)
def test_runs_end_as_scripted(workspace, client, plan, life, result, code):
    workspace.outcome({**QUICK, **plan})
    run_id = submit(client, submission())
    workspace.advance(20)

    assert words(client, run_id) == (life, result)
    assert seen(client, run_id)["status"]["termination_details"]["code"] == code


def test_rules_choose_by_name_token_and_place_in_the_order(workspace, client):
    workspace.outcome({**QUICK, "result": "INTERNAL_ERROR"}, nth=[2])
    workspace.outcome({**QUICK, "result": "TIMEDOUT"}, token="*-0003-a0")
    workspace.outcome({**QUICK, "result": "FAILED"}, experiment="bad-*", times=1)
    bodies = [
        submission(ai_task={"experiment": "bad-one"}),
        submission(token="s-aa-0003-a0"),
        submission(),
        submission(ai_task={"experiment": "bad-two"}),
    ]
    ids = [submit(client, body) for body in bodies]
    workspace.advance(20)

    results = [workspace.world.jobs.runs[run_id].result for run_id in ids]

    assert results == ["FAILED", "TIMEDOUT", "INTERNAL_ERROR", "SUCCESS"]


def test_a_failed_attempt_is_followed_by_another_with_ids_of_its_own(workspace, client):
    workspace.outcome({"attempts": [{**QUICK, "result": "FAILED", "retry_s": 30}, QUICK]})
    run_id = submit(client, submission(task={"max_retries": 2}))
    workspace.advance(12)
    between = words(client, run_id), len(seen(client, run_id)["tasks"])
    workspace.advance(45)
    tasks = seen(client, run_id)["tasks"]
    outputs = [client.api_client.do("GET", OUTPUT, query={"run_id": task["run_id"]}) for task in tasks]

    assert between == (("WAITING_FOR_RETRY", ""), 1)
    assert words(client, run_id) == ("TERMINATED", "SUCCESS")
    assert [task["attempt_number"] for task in tasks] == [0, 1]
    assert [task["state"]["result_state"] for task in tasks] == ["FAILED", "SUCCESS"]
    assert len({output["ai_runtime_task_output"]["mlflow_run_id"] for output in outputs}) == 2


def test_retries_are_used_up_and_no_more(workspace, client):
    workspace.outcome({**QUICK, "result": "FAILED", "retry_s": 0})
    ids = [submit(client, submission(task={"max_retries": most})) for most in (0, 2)]
    workspace.advance(100)

    assert [len(seen(client, run_id)["tasks"]) for run_id in ids] == [1, 3]
    assert [words(client, run_id)[1] for run_id in ids] == ["FAILED", "FAILED"]


def test_a_time_limit_ends_an_attempt_and_counts_as_failure_only_when_asked(workspace, client):
    workspace.outcome({"queue_s": 0, "run_s": None, "retry_s": 0})
    plain = submit(client, submission(task={"max_retries": 1}, timeout_seconds=60))
    retried = submit(
        client, submission(task={"max_retries": 1, "retry_on_timeout": True}, timeout_seconds=60)
    )
    workspace.advance(59)
    before = words(client, plain)
    workspace.advance(1)
    after = words(client, plain), words(client, retried)
    workspace.advance(60)

    assert before == ("RUNNING", "")
    assert after == (("TERMINATED", "TIMEDOUT"), ("RUNNING", ""))
    assert words(client, retried) == ("TERMINATED", "TIMEDOUT")
    assert len(seen(client, retried)["tasks"]) == 2


def test_a_time_limit_can_bound_all_attempts_together():
    plan = {"queue_s": 0, "run_s": 40, "result": "FAILED", "retry_s": 0}
    with FakeWorkspace(jobs={"timeout_bounds": "run"}, default=plan) as workspace:
        client = client_of(workspace)
        run_id = submit(client, submission(task={"max_retries": 5}, timeout_seconds=60))
        workspace.advance(100)

        assert words(client, run_id) == ("TERMINATED", "TIMEDOUT")
        tasks = seen(client, run_id)["tasks"]
        assert [task["state"]["result_state"] for task in tasks] == ["FAILED", "TIMEDOUT"]


def test_runs_wait_for_capacity_in_their_order(workspace, client):
    workspace.set_capacity(GPU_8xH100=16)
    ids = [submit(client, submission(compute=("GPU_8xH100", 8))) for _ in range(3)]
    other = submit(client, submission(compute=("GPU_1xA10", 1)))
    workspace.advance(5)
    first = [words(client, run_id)[0] for run_id in (*ids, other)]
    workspace.advance(6.5)
    second = [words(client, run_id)[0] for run_id in ids]
    workspace.advance(10)

    assert first == ["RUNNING", "RUNNING", "PENDING", "RUNNING"]
    assert second == ["TERMINATED", "TERMINATED", "RUNNING"]
    assert words(client, ids[2]) == ("TERMINATED", "SUCCESS")


def test_cancelling_takes_a_while_and_leaves_ended_runs_alone(workspace, client):
    ended = submit(client, submission())
    workspace.advance(20)
    running, waiting = submit(client, submission()), submit(client, submission())
    workspace.set_capacity(GPU_1xA10=1)
    workspace.advance(2)
    for run_id in (ended, running, waiting, running):
        client.jobs.cancel_run(run_id)
    at_once = [words(client, run_id) for run_id in (running, waiting)]
    workspace.advance(1)
    later = [words(client, run_id) for run_id in (ended, running, waiting)]

    assert at_once == [("TERMINATING", ""), ("TERMINATING", "")]
    assert later == [("TERMINATED", "SUCCESS"), ("TERMINATED", "CANCELED"), ("TERMINATED", "CANCELED")]


def test_a_run_cancelled_between_attempts_is_not_tried_again(workspace, client):
    workspace.outcome({**QUICK, "result": "FAILED", "retry_s": 30})
    run_id = submit(client, submission(task={"max_retries": 3}))
    workspace.advance(12)
    client.jobs.cancel_run(run_id)
    workspace.advance(100)

    assert words(client, run_id) == ("TERMINATED", "CANCELED")
    assert [task["state"]["result_state"] for task in seen(client, run_id)["tasks"]] == ["FAILED"]


def test_a_token_stands_for_one_run_however_often_it_comes(workspace, client):
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: submit(client, submission(token="t")), range(16)))
    workspace.advance(100)
    ids.append(submit(client, submission(token="t", run_name="another")))
    ids.append(submit(client, submission(token="u")))

    assert len(set(ids[:-1])) == 1
    assert ids[-1] != ids[0]
    assert len(workspace.runs) == 2


def test_submissions_without_a_token_are_runs_each(client):
    assert submit(client, submission()) != submit(client, submission())


def test_another_user_s_token_is_his_own(workspace, client):
    mine = submit(client, submission(token="t"))
    theirs = submit(client_of(workspace, "other-token"), submission(token="t"))

    assert mine != theirs


def test_the_token_of_a_deleted_run_is_refused(workspace, client):
    run_id = submit(client, submission(token="t"))
    workspace.advance(100)
    client.jobs.delete_run(run_id)

    with pytest.raises(InvalidParameterValue, match="deleted"):
        submit(client, submission(token="t"))
    with pytest.raises(ResourceDoesNotExist):
        client.jobs.get_run(run_id)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (submission(token="é" * 33), "64"),
        (submission(compute=("GPU_9xZ1", 9)), "GPU_9xZ1"),
        (submission(compute=("GPU_8xH100", 12)), "multiple of 8"),
        (submission(compute=("GPU_8xH100", 0)), "multiple of 8"),
        (submission(environments=[]), "environment_key 'default'"),
        (submission(tasks=[]), "tasks"),
        (submission(ai_task={"deployments": []}), "exactly one deployment"),
        (submission(ai_task={"experiment": ""}, task={"task_key": "t"}), "experiment is required"),
        (submission(timeout_seconds=-1), "negative"),
    ],
)
def test_what_cannot_be_a_run_is_refused(workspace, client, body, word):
    with pytest.raises(InvalidParameterValue, match=word):
        submit(client, body)
    assert workspace.runs == []


def test_unknown_runs_are_missing_where_the_sdk_knows_it_and_invalid_where_not(client):
    with pytest.raises(ResourceDoesNotExist, match="Run 5 does not exist"):
        client.jobs.get_run(5)
    with pytest.raises(ResourceDoesNotExist):
        client.api_client.do("GET", OUTPUT, query={"run_id": 5})
    with pytest.raises(BadRequest) as caught:
        client.jobs.cancel_run(5)
    assert not isinstance(caught.value, NotFound)


def test_unknown_runs_can_be_a_404():
    with FakeWorkspace(jobs={"unknown_run_status": 404}) as workspace:
        client = client_of(workspace)
        for ask in (client.jobs.get_run, client.jobs.cancel_run):
            with pytest.raises(NotFound):
                ask(5)


def test_a_foreign_run_is_forbidden(workspace, client):
    run_id = submit(client_of(workspace, "other-token"), submission())

    for ask in (client.jobs.get_run, client.jobs.cancel_run):
        with pytest.raises(PermissionDenied):
            ask(run_id)


def test_the_output_is_the_task_s_and_never_the_run_s(client):
    run_id = submit(client, submission())

    with pytest.raises(InvalidParameterValue, match="individual task run"):
        client.api_client.do("GET", OUTPUT, query={"run_id": run_id})


def test_listing_goes_on_below_the_last_run_while_new_ones_come(workspace, client):
    ids = [submit(client, submission()) for _ in range(7)]
    query = {"run_type": "SUBMIT_RUN", "limit": 3, "active_only": True}
    first = client.api_client.do("GET", LIST, query=query)
    submit(client, submission())
    second = client.api_client.do("GET", LIST, query={**query, "page_token": first["next_page_token"]})
    third = client.api_client.do("GET", LIST, query={**query, "page_token": second["next_page_token"]})

    pages = [[run["run_id"] for run in page["runs"]] for page in (first, second, third)]

    assert [run_id for page in pages for run_id in page] == ids[::-1]
    assert [page["has_more"] for page in (first, second, third)] == [True, True, False]
    assert "next_page_token" not in third
    assert "tasks" not in first["runs"][0]
    assert workspace.recorder.counts["jobs/runs/list"] == 3


def test_a_page_holds_at_most_25(client):
    with pytest.raises(InvalidParameterValue, match="limit"):
        client.api_client.do("GET", LIST, query={"limit": 26})


def test_listing_can_leave_out_ended_runs(workspace, client):
    ended = submit(client, submission())
    workspace.advance(100)
    active = submit(client, submission())

    found = {
        flag: [run.run_id for run in client.jobs.list_runs(**{flag: True})]
        for flag in ("active_only", "completed_only")
    }

    assert found == {"active_only": [active], "completed_only": [ended]}


def test_a_crowd_is_listed_and_not_in_the_own_index():
    with FakeWorkspace(crowd=6) as workspace:
        client = client_of(workspace)
        own = submit(client, submission())
        listed = list(client.jobs.list_runs(expand_tasks=True))
        index = client.api_client.do("GET", INDEX)

        assert len(listed) == 7
        assert {run.creator_user_name for run in listed} == {"kim@example.com", "lee@example.com"}
        assert sum(run.tasks[0].ai_runtime_task is not None for run in listed) == 3
        assert [entry["job_run_id"] for entry in index["training_workflows"]] == [str(own)]


def test_the_index_is_paged_and_can_be_quirky():
    with FakeWorkspace(jobs={"quirky_index": True}) as workspace:
        client = client_of(workspace)
        ids = [str(submit(client, submission())) for _ in range(5)]
        tokens, found = [""], []
        while tokens.count(tokens[-1]) == 1:
            query = {"page_size": 2, "page_token": tokens[-1]}
            answer = client.api_client.do("GET", INDEX, query=query)
            found += [str(entry["job_run_id"]) for entry in answer["training_workflows"]]
            tokens.append(answer["next_page_token"])

        assert tokens == ["", "2", "4", "4"]
        assert len(found) > len(ids)
        assert sorted(set(found)) == ids


def test_only_the_newest_attempt_is_listed_where_the_service_does_so():
    manners = {"lists_attempts": "newest", "between_attempts": "RUNNING", "states": "status"}
    with FakeWorkspace(jobs=manners, default={**QUICK, "result": "FAILED", "retry_s": 9}) as workspace:
        client = client_of(workspace)
        run_id = submit(client, submission(task={"max_retries": 1}))
        workspace.advance(12)
        between = seen(client, run_id)
        workspace.advance(12)

        assert between["status"] == {"state": "RUNNING"}
        assert "state" not in between
        assert [task["attempt_number"] for task in seen(client, run_id)["tasks"]] == [1]


def test_words_of_waiting_are_scripted(workspace, client):
    workspace.outcome({"queue_s": 60, "waiting_word": "BLOCKED", "run_waiting_word": "RUNNING"})
    run = seen(client, submit(client, submission()))

    assert run["state"]["life_cycle_state"] == "RUNNING"
    assert run["tasks"][0]["state"]["life_cycle_state"] == "BLOCKED"


def test_a_test_can_end_a_run_that_has_no_end(workspace, client):
    workspace.outcome(RunPlan(queue_s=0, run_s=None))
    run_id = submit(client, submission())
    workspace.advance(10_000)
    before = words(client, run_id)
    workspace.end(run_id, "FAILED", "out of patience")

    assert before == ("RUNNING", "")
    assert seen(client, run_id)["state"]["state_message"] == "out of patience"


def test_more_than_a_hundred_attempts_come_in_pages(workspace, client):
    workspace.outcome({"queue_s": 0, "run_s": 1, "result": "FAILED", "retry_s": 0})
    run_id = submit(client, submission(task={"max_retries": 104}))
    workspace.advance(200)
    raw = seen(client, run_id)

    assert len(raw["tasks"]) == 100
    assert len(client.jobs.get_run(run_id).tasks) == 105

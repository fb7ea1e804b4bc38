"""Submitting to a fake Databricks workspace: what is sent, once, and what errors mean."""

import io
import tarfile
from collections import Counter
from dataclasses import replace

import pytest

from airflows.backends.base import Phase
from airflows.backends.databricks import DatabricksBackend, DatabricksSettings
from airflows.backends.databricks.client import Workspace
from airflows.errors import (
    BackendUnavailableError,
    SpecError,
    SubmitAmbiguousError,
    SubmitRejectedError,
    SubmitUnreachedError,
    SubmitUnsentError,
)
from airflows.testing.jobs import MakeJob
from airflows.testing.workspace import FakeWorkspace
from airflows.train import decode
from airflows.yamlio import dump

CONFIG = {
    "experiment_name": "ner",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
}
LAUNCH = "/Workspace/Users/kim@example.com/.air/cli_launch/ner"


@pytest.fixture
def make_workspace(clean_env):
    opened = []

    def make(**settings):
        workspace = FakeWorkspace(**{"default": {"queue_s": 1.0, "run_s": 5.0}, **settings})
        opened.append(workspace.__enter__())
        for name, value in workspace.environment.items():
            clean_env.setenv(name, value)
        return workspace

    yield make
    for workspace in opened:
        workspace.__exit__(None, None, None)


@pytest.fixture
def workspace(make_workspace):
    return make_workspace()


@pytest.fixture
def opened(tmp_path):
    def make(workspace, **settings):
        return DatabricksBackend(
            DatabricksSettings(**{"patience": 1, **settings}),
            tmp_path / "home",
            clock=workspace.clock.now,
            pause=workspace.advance,
        )

    return make


@pytest.fixture
def backend(workspace, opened):
    return opened(workspace)


@pytest.fixture
def make_job(backend):
    return jobs_for(backend)


def jobs_for(backend):
    make = MakeJob(backend)

    def job(*, files=None, **changes):
        made = make("true")
        config = dump({**CONFIG, **changes}).encode()
        return replace(made, files={**made.files, "training_config.yaml": config, **(files or {})})

    return job


def files_under(workspace, path):
    place = workspace.world.files.place(path)
    return sorted(str(file.relative_to(place)) for file in place.rglob("*") if file.is_file())


# Once


@pytest.mark.parametrize(
    "fault",
    [{"kind": "dropped_reply"}, *({"kind": k, "retry_after": 0} for k in ("rate_limited", "unavailable"))],
)
def test_what_the_sdk_repeats_is_one_run(workspace, opened, make_job, fault):
    workspace.fault(when="after", route="jobs/runs/submit", times=1, **fault)
    backend = opened(workspace, patience=10)

    (answer,) = backend.submit([make_job()])

    assert len(workspace.recorder.of("jobs/runs/submit")) == 2
    assert [str(run.id) for run in workspace.runs] == [answer]


@pytest.mark.parametrize("refusal", ["forbidden", "expired_token", "not_found"])
def test_a_refusal_of_what_the_sdk_repeats_says_nothing_of_the_first_try(
    workspace, opened, make_job, refusal
):
    workspace.fault("unavailable", when="after", retry_after=0, route="jobs/runs/submit", times=1)
    workspace.fault(refusal, route="jobs/runs/submit", times=1)
    backend = opened(workspace, patience=10)
    job = make_job()

    (answer,) = backend.submit([job])

    assert isinstance(answer, SubmitAmbiguousError)
    (run,) = workspace.runs
    assert backend.find([job.token]) == {job.token: str(run.id)}


@pytest.mark.parametrize("kind", ["bad_gateway", "gateway_timeout", "internal"])
def test_an_answer_that_was_lost_is_in_doubt_until_the_run_is_found(workspace, backend, make_job, kind):
    workspace.fault(kind, when="after", route="jobs/runs/submit", times=1)
    job = make_job()

    (answer,) = backend.submit([job])

    assert isinstance(answer, SubmitAmbiguousError)
    (run,) = workspace.runs
    assert backend.find([job.token]) == {job.token: str(run.id)}
    assert backend.submit([job]) == [str(run.id)]
    assert len(workspace.runs) == 1


def test_a_submission_that_never_got_there_is_not_found(workspace, backend, make_job):
    workspace.fault("bad_gateway", route="jobs/runs/submit", times=1)
    job = make_job()

    (answer,) = backend.submit([job])

    assert isinstance(answer, SubmitAmbiguousError)
    assert backend.find([job.token]) == {}


def test_a_run_with_its_own_launch_directory_is_found_by_it(backend, make_job):
    job = replace(make_job(mlflow_run_name="mine"), is_single=True)
    (handle,) = backend.submit([job])

    assert backend.find([job.token]) == {job.token: handle}


def test_looking_for_a_token_ends_with_runs_older_than_its_files(make_workspace, opened):
    workspace = make_workspace()
    backend = opened(workspace)
    job = jobs_for(backend)()
    for number in range(60):
        workspace.world.jobs.submit(
            workspace.world.tokens[workspace.token],
            {"run_name": f"old-{number}", "tasks": [{"task_key": "t", "notebook_task": {}}]},
        )
    for run in workspace.runs:
        run.created_at -= 3600

    assert backend.find([job.token]) == {}
    assert len(workspace.recorder.of("jobs/runs/list")) == 1


# What is sent


def test_trials_of_a_sweep_share_a_launch_directory(workspace, backend, make_job):
    rows = b'[{"name": "A", "value": "x"}]'
    jobs = [make_job(files={"env_vars.json": rows}) for _ in range(3)]

    backend.submit(jobs)

    (directory,) = {path.rpartition("/")[0] for path in files_under(workspace, LAUNCH)}
    names = {path.rpartition("/")[2] for path in files_under(workspace, LAUNCH)}
    assert directory.startswith("contract-0a1b2c_")
    assert names == {"env_vars.json", "training_config.yaml", *(f"{job.token}.sh" for job in jobs)}
    routes = [each.route for each in workspace.recorder.requests]
    assert routes.count("workspace-files/import-file") == 2 + 3
    assert routes.index("validate") < min(routes.index("workspace/mkdirs"), routes.index("jobs/runs/submit"))
    assert routes.count("validate") == routes.count("me") == 1


def test_a_run_of_its_own_has_ai_runtime_s_files(workspace, backend, make_job):
    files = {"hyperparameters.yaml": b"lr: 0.1\n", "env_vars.json": b'[{"name": "A", "value": "x"}]'}
    job = make_job(files=files)
    job = replace(job, is_single=True, env={"A": "x", "AIRFLOWS_TRIAL": "0", "MLFLOW_RUN_ID": "no"})

    backend.submit([job])

    paths = files_under(workspace, LAUNCH)
    assert [path.rpartition("/")[2] for path in paths] == [
        *("command.sh", "env_vars.json", "hyperparameters.yaml", "training_config.yaml")
    ]
    read = {path.rpartition("/")[2]: workspace.world.files.read(f"{LAUNCH}/{path}") for path in paths}
    assert read["command.sh"] == b"true"
    assert read["env_vars.json"] == (
        b'[{"name": "A", "value": "x"}, {"name": "AIRFLOWS_TRIAL", "value": "0"}]'
    )


def test_the_code_is_sent_once_for_its_content(workspace, opened, tmp_path):
    code = tmp_path / "snapshots" / ("0f" * 32) / "src"
    code.mkdir(parents=True)
    (code / "fit.py").write_text("print()\n")
    for _ in range(2):
        backend = opened(workspace)
        make_job = jobs_for(backend)
        backend.submit([replace(make_job(), code=code) for _ in range(3)])

    place = "/Workspace/Users/kim@example.com/.air/repo_snapshots/.internal"
    assert files_under(workspace, place) == ["src_0f0f0f0f0f0f0f0f.tar.gz"]
    packed = workspace.world.files.read(f"{place}/src_0f0f0f0f0f0f0f0f.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert tar.getnames() == ["src/fit.py"]
    sent = [each.path for each in workspace.recorder.of("workspace-files/import-file")]
    assert sum(path.endswith(".tar.gz") for path in sent) == 2  # the parent was missing the first time
    body = workspace.runs[0].ai_task
    assert body["code_source_path"] == f"{place}/src_0f0f0f0f0f0f0f0f.tar.gz"


def test_the_code_goes_to_a_volume_where_one_is_named(workspace, backend, make_job, tmp_path):
    code = tmp_path / "snapshots" / ("0f" * 32) / "src"
    code.mkdir(parents=True)
    (code / "fit.py").write_text("print()\n")
    source = {"type": "snapshot", "snapshot": {"root_path": ".", "remote_volume": "/Volumes/main/ml/code"}}

    (answer,) = backend.submit([replace(make_job(code_source=source), code=code)])

    assert answer == str(workspace.runs[0].id)
    assert files_under(workspace, "/Volumes/main/ml/code") == [".internal/src_0f0f0f0f0f0f0f0f.tar.gz"]


def test_retries_are_left_to_the_service_only_when_asked(workspace, opened):
    for settings in ({}, {"retries": "native"}):
        backend = opened(workspace, **settings)
        backend.submit([replace(jobs_for(backend)(max_retries=2), token=f"t-0a1b2c-0001-a{len(settings)}")])

    own, native = (run.task for run in workspace.runs)
    assert (own["max_retries"], "retry_on_timeout" in own) == (0, False)
    assert (native["max_retries"], native["retry_on_timeout"]) == (2, True)


def test_permissions_are_granted_after_the_submission(workspace, backend, make_job):
    permissions = [{"group_name": "lab", "level": "CAN_VIEW"}]

    (answer,) = backend.submit([make_job(permissions=permissions)])

    (run,) = workspace.runs
    assert answer == str(run.id)
    granted = [
        each for each in workspace.recorder.requests if each.path.startswith("/api/2.0/permissions/jobs/")
    ]
    assert [each.path.rpartition("/")[2] for each in granted] == [str(run.job_id)]


# Policies and images


def test_a_policy_is_found_by_its_name(make_workspace, opened):
    policies = [
        {"policy_id": "a" * 36, "policy_name": "lab budget"},
        {"policy_id": "b" * 36, "policy_name": "lab budget 2"},
    ]
    workspace = make_workspace(policies=policies)
    backend = opened(workspace)
    make_job = jobs_for(backend)

    backend.submit([make_job(usage_policy_name=" Lab Budget ") for _ in range(2)])

    assert [run.body["budget_policy_id"] for run in workspace.runs] == ["a" * 36] * 2
    assert sum("serverless-policies" in each.path for each in workspace.recorder.requests) == 1


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([("a", "other lab budgets")], "There are: other lab budgets"),
        ([("a", "lab budget"), ("b", "LAB BUDGET")], "several usage policies"),
        ([(None, "lab budget")], "no id"),
        ([], "no usage policy"),
    ],
)
def test_a_policy_that_is_not_clear_is_an_error(make_workspace, opened, names, words):
    policies = [{"policy_id": number, "policy_name": name} for number, name in names]
    backend = opened(make_workspace(policies=policies))

    with pytest.raises(SpecError, match=words):
        backend.check(decode({**CONFIG, "usage_policy_name": "lab budget"}))


@pytest.mark.parametrize(
    ("states", "kind"),
    [(["AVAILABLE"], None), (["FAILED"], SubmitRejectedError), (["IMPORTING"], SubmitUnreachedError)],
)
def test_an_image_must_be_there(make_workspace, opened, states, kind):
    image = {"docker_image_url": "docker.io/lab/train:latest", "states": states}
    workspace = make_workspace(images=[image])
    backend = opened(workspace)
    job = jobs_for(backend)(environment={"docker_image": {"url": "lab/train"}})

    (answer,) = backend.submit([job])

    assert type(answer) is (kind or str)
    if kind is None:
        assert workspace.runs[0].ai_task["docker_image_url"] == "docker.io/lab/train:latest"


def test_an_image_that_is_being_imported_is_worth_a_note_and_no_obstacle(make_workspace, opened):
    image = {"docker_image_url": "docker.io/lab/train:latest", "states": ["IMPORTING"]}
    backend = opened(make_workspace(images=[image]))

    (note,) = backend.check(decode({**CONFIG, "environment": {"docker_image": {"url": "lab/train"}}}))

    assert "not there yet: IMPORTING. Trials wait" in note


def test_the_latest_image_is_registered_once_for_the_first_run_and_waited_for(make_workspace, opened):
    image = {"docker_image_url": "docker.io/lab/train:v1", "states": ["IMPORTING", "IMPORTING", "AVAILABLE"]}
    workspace = make_workspace(images=[image])
    backend = opened(workspace)
    environment = {"docker_image": {"url": "lab/train:v1", "tag_policy": "latest"}}

    assert backend.check(decode({**CONFIG, "environment": environment})) == ()
    assert workspace.recorder.counts["images"] == 0

    job = jobs_for(backend)(environment=environment)
    answers = [backend.submit([job])[0] for _ in range(3)]

    assert [type(answer) for answer in answers] == [SubmitUnreachedError, SubmitUnreachedError, str]
    assert workspace.recorder.counts["images"] == 1


def test_an_image_nobody_registered_is_an_error(backend):
    with pytest.raises(SpecError, match="not registered"):
        backend.check(decode({**CONFIG, "environment": {"docker_image": {"url": "lab/train"}}}))


# Errors


def test_what_the_workspace_refuses_beforehand_is_said_before_anything_is_written(make_workspace, opened):
    wrong = {"path": "compute.num_accelerators", "message": "too many", "code": "X"}
    workspace = make_workspace(validation_errors=[wrong])
    backend = opened(workspace)

    with pytest.raises(SpecError, match=r"compute\.num_accelerators: too many"):
        backend.check(decode(CONFIG))
    (answer,) = backend.submit([jobs_for(backend)()])

    assert isinstance(answer, SubmitRejectedError)
    assert not [
        each for each in workspace.recorder.requests if each.method == "PUT" or "import" in each.route
    ]
    assert workspace.runs == []


def test_a_check_writes_nothing_and_the_first_run_makes_its_directory(workspace, backend, make_job):
    directory = "/Workspace/Shared/ner"

    assert backend.check(decode({**CONFIG, "mlflow_experiment_directory": directory})) == ()
    assert workspace.recorder.counts["workspace/mkdirs"] == 0

    answers = backend.submit([make_job(mlflow_experiment_directory=directory) for _ in range(2)])

    assert sorted(answers) == sorted(str(run.id) for run in workspace.runs)
    made = [each.body["path"] for each in workspace.recorder.of("workspace/mkdirs")]
    assert made.count(directory) == 1


def test_no_directory_is_made_for_a_run_whose_policy_is_not_there(workspace, backend, make_job):
    job = make_job(mlflow_experiment_directory="/Workspace/Shared/ner", usage_policy_name="lab budget")

    (answer,) = backend.submit([job])

    assert isinstance(answer, SubmitRejectedError)
    assert workspace.recorder.counts["workspace/mkdirs"] == 0


@pytest.mark.parametrize("kind", ["feature_disabled", "not_found", "internal", "bad_gateway"])
def test_a_workspace_without_the_preflight_check_is_none_the_worse(workspace, backend, make_job, kind):
    workspace.fault(kind, route="validate")

    (answer,) = backend.submit([make_job()])

    assert answer == str(workspace.runs[0].id)


@pytest.mark.parametrize(
    ("route", "fault", "kind"),
    [
        ("validate", {"kind": "forbidden"}, SubmitRejectedError),
        ("jobs/runs/submit", {"kind": "forbidden"}, SubmitRejectedError),
        ("jobs/runs/submit", {"kind": "feature_disabled"}, SubmitRejectedError),
        ("jobs/runs/submit", {"kind": "expired_token"}, SubmitUnreachedError),
        ("jobs/runs/submit", {"status": 400, "error_code": "QUOTA_EXCEEDED"}, SubmitUnsentError),
        ("jobs/runs/submit", {"status": 400, "error_code": "INVALID_PARAMETER_VALUE"}, SubmitRejectedError),
        ("workspace-files/*", {"kind": "internal"}, SubmitUnsentError),
        ("workspace-files/*", {"kind": "forbidden"}, SubmitRejectedError),
    ],
)
def test_each_error_is_of_one_of_three_kinds(workspace, backend, make_job, route, fault, kind):
    workspace.fault(route=route, **fault)

    (answer,) = backend.submit([make_job()])

    assert type(answer) is kind
    assert workspace.runs == []


def test_a_workspace_that_is_away_leaves_a_job_unsent(make_workspace, opened):
    workspace = make_workspace()
    backend = opened(workspace)
    job = jobs_for(backend)()
    workspace.fault("unavailable", retry_after=0)

    (answer,) = backend.submit([job])

    assert isinstance(answer, SubmitUnsentError)
    assert workspace.runs == []


def test_no_error_tells_the_token(workspace, backend, make_job):
    workspace.fault("expired_token")

    (answer,) = backend.submit([make_job()])
    reach = backend.reach()

    assert not reach.available
    assert "expired" in reach.why_not
    assert workspace.token not in f"{answer}{reach}"


def test_a_service_principal_s_secret_opens_the_workspace_and_is_told_nowhere(
    make_workspace, opened, clean_env, tmp_path
):
    workspace = make_workspace()
    clean_env.delenv("DATABRICKS_TOKEN")
    clean_env.setenv("DATABRICKS_CLIENT_ID", "fake-client")
    clean_env.setenv("DATABRICKS_CLIENT_SECRET", "fake-secret")
    backend = opened(workspace)

    reach = backend.reach()
    (answer,) = backend.submit([jobs_for(backend)()])

    assert reach.available, reach.why_not
    assert answer == str(workspace.runs[0].id)
    written = [
        path.read_bytes()
        for root in (tmp_path, workspace.directory)
        for path in root.rglob("*.*")
        if path.is_file()
    ]
    assert not any(b"fake-secret" in content for content in written)


def test_credentials_that_are_not_there_are_said_in_a_sentence(tmp_path, clean_env):
    clean_env.setenv("DATABRICKS_CONFIG_FILE", str(tmp_path / "none"))
    backend = DatabricksBackend(DatabricksSettings(patience=1), tmp_path)

    reach = backend.reach()

    assert not reach.available
    assert reach.why_not.startswith("no Databricks credentials were found in the environment and")


def test_a_profile_that_the_environment_leads_elsewhere_is_an_error(workspace, opened, clean_env, tmp_path):
    config = tmp_path / "databrickscfg"
    config.write_text("[DEFAULT]\nhost = x\n[lab]\nhost = https://Lab.example.com/\n[same]\n")
    clean_env.setenv("DATABRICKS_CONFIG_FILE", str(config))

    reach = opened(workspace, profile="lab").reach()

    assert not reach.available
    assert f"lab is for lab.example.com, but DATABRICKS_HOST is {workspace.host[7:]}" in reach.why_not
    assert opened(workspace, profile="same").reach().available
    config.write_text(f"[lab]\nhost = {workspace.host}/\n")
    assert opened(workspace, profile="lab").reach().available


def test_a_silent_workspace_is_waited_for_no_longer_than_asked(workspace):
    workspace.fault(delay_s=0.4, route="me")

    with pytest.raises(BackendUnavailableError):
        Workspace(None, 1, timeout_s=0.05).me()


# Looking and ending


def test_ended_runs_keep_being_told_without_asking(workspace, backend, make_job):
    handles = list(backend.submit([make_job() for _ in range(5)]))
    workspace.advance(60)
    first = backend.poll(handles)
    asked = len(workspace.recorder.requests)

    workspace.advance(60)

    assert backend.poll(handles) == first
    assert {seen.phase for seen in first.values()} == {Phase.ENDED}
    assert len(workspace.recorder.requests) == asked


def test_many_active_runs_are_seen_by_the_page(make_workspace, opened):
    workspace = make_workspace(default={"queue_s": 0.0, "run_s": None}, crowd=60)
    backend = opened(workspace)
    make_job = jobs_for(backend)
    handles = list(backend.submit([make_job() for _ in range(20)]))
    workspace.recorder.forget()

    seen = backend.poll(handles)

    assert {one.phase for one in seen.values()} == {Phase.RUNNING}
    assert workspace.recorder.counts["jobs/runs/list"] + workspace.recorder.counts["jobs/runs/get"] <= 20
    assert workspace.recorder.most_at_once <= 8


def test_an_ended_run_waits_for_its_mlflow_run(workspace, backend, make_job):
    (handle,) = backend.submit([make_job()])
    workspace.advance(60)
    workspace.fault("internal", route="jobs/runs/get-output", times=1)

    assert backend.poll([handle]) == {}
    workspace.advance(2)
    assert backend.poll([handle])[handle].mlflow_run_id == workspace.runs[0].last.mlflow_run_id


def test_a_run_that_cannot_be_looked_at_does_not_hide_the_others(workspace, backend, make_job):
    handles = list(backend.submit([make_job() for _ in range(2)]))
    workspace.advance(60)
    workspace.fault("internal", route="jobs/runs/get", contains=handles[0])

    assert list(backend.poll(handles)) == [handles[1]]


@pytest.mark.parametrize("looks", [1, 5])
def test_an_attempt_without_an_mlflow_run_while_it_ran_may_still_get_one(make_workspace, opened, looks):
    workspace = make_workspace(default={"queue_s": 0.0, "run_s": 1000.0})
    backend = opened(workspace)
    (handle,) = backend.submit([jobs_for(backend)()])
    workspace.fault("not_found", route="jobs/runs/get-output", times=looks + 1)
    for _ in range(looks):
        assert backend.poll([handle])[handle].mlflow_run_id == ""
        workspace.advance(100)
    workspace.advance(1000)

    assert backend.poll([handle]) == {}
    workspace.advance(2)
    assert backend.poll([handle])[handle].mlflow_run_id == workspace.runs[0].last.mlflow_run_id


def test_a_run_is_not_lost_for_one_answer_and_a_request_that_failed_later(make_workspace, opened):
    workspace = make_workspace(default={"queue_s": 0.0, "run_s": None})
    backend = opened(workspace)
    make_job = jobs_for(backend)
    handles = list(backend.submit([make_job() for _ in range(2)]))
    workspace.fault("not_found", route="jobs/runs/get", contains=handles[0], times=1)
    assert list(backend.poll(handles)) == [handles[1]]
    workspace.advance(200)
    workspace.fault("internal", route="jobs/runs/get", contains=handles[0], times=1)

    assert list(backend.poll(handles)) == [handles[1]]
    assert backend.poll(handles)[handles[0]].phase is Phase.RUNNING


def test_a_run_that_was_seen_in_a_page_was_not_gone(make_workspace, opened):
    workspace = make_workspace(default={"queue_s": 0.0, "run_s": None})
    backend = opened(workspace)
    make_job = jobs_for(backend)
    handles = list(backend.submit([make_job() for _ in range(3)]))
    workspace.fault("not_found", route="jobs/runs/get", contains=handles[0], times=2)
    assert list(backend.poll(handles[:2])) == [handles[1]]
    assert len(backend.poll(handles)) == 3
    workspace.advance(200)

    assert list(backend.poll(handles[:2])) == [handles[1]]


@pytest.mark.parametrize("status", [400, 404])
def test_a_run_that_is_gone_is_lost_after_a_while(make_workspace, opened, status):
    workspace = make_workspace(jobs={"unknown_run_status": status})
    backend = opened(workspace)

    assert backend.poll(["99"]) == {}
    workspace.advance(200)
    assert backend.poll(["99"])["99"].word == "LOST"


def test_a_workspace_that_does_not_answer_says_nothing_of_any_run(workspace, backend, make_job):
    handles = list(backend.submit([make_job() for _ in range(4)]))
    workspace.fault("internal", route="jobs/runs/*")

    with pytest.raises(BackendUnavailableError):
        backend.poll(handles)


def test_words_nobody_knows_are_shown(make_workspace, opened):
    workspace = make_workspace(default={"queue_s": 0.0, "running_word": "SLEEPING"})
    backend = opened(workspace)
    (handle,) = backend.submit([jobs_for(backend)()])

    seen = backend.poll([handle])[handle]

    assert (seen.phase, seen.detail) == (Phase.UNKNOWN, "Databricks says SLEEPING")


@pytest.mark.parametrize("words", ["state", "status"])
def test_either_of_the_two_state_objects_is_enough(make_workspace, opened, words):
    workspace = make_workspace(jobs={"states": words})
    backend = opened(workspace)
    (handle,) = backend.submit([jobs_for(backend)()])

    phases = [backend.poll([handle])[handle].phase]
    for _ in range(2):
        workspace.advance(3)
        phases.append(backend.poll([handle])[handle].phase)

    assert phases == [Phase.QUEUED, Phase.RUNNING, Phase.ENDED]


def test_native_attempts_are_one(make_workspace, opened):
    attempts = [
        {"result": "FAILED", "queue_s": 1.0, "run_s": 1.0, "retry_s": 5.0},
        {"queue_s": 1.0, "run_s": 1.0},
    ]
    workspace = make_workspace(default={"attempts": attempts})
    backend = opened(workspace, retries="native")
    (handle,) = backend.submit([jobs_for(backend)(max_retries=1)])
    seen = []
    for _ in range(30):
        observation = backend.poll([handle])[handle]
        if not seen or seen[-1] is not observation.phase:
            seen.append(observation.phase)
        workspace.advance(1)

    assert seen == [Phase.QUEUED, Phase.RUNNING, Phase.QUEUED, Phase.RUNNING, Phase.ENDED]
    assert observation.exit_code == 0
    assert observation.mlflow_run_id == workspace.runs[0].attempts[1].mlflow_run_id


def test_cancelling_asks_for_each_run_and_forgives_those_that_are_gone(workspace, backend, make_job):
    handles = list(backend.submit([make_job() for _ in range(3)]))

    backend.cancel([*handles, "99"])
    workspace.advance(10)

    assert {seen.word for seen in backend.poll(handles).values()} == {"CANCELLED"}


def test_cancelling_says_when_nobody_was_asked(workspace, backend, make_job):
    handles = list(backend.submit([make_job()]))
    workspace.fault("internal", route="jobs/runs/cancel")

    with pytest.raises(BackendUnavailableError):
        backend.cancel(handles)


@pytest.mark.parametrize("status", [400, 403, 404])
def test_a_volume_that_may_not_be_read_from_here_has_no_checkpoints(workspace, backend, status, caplog):
    workspace.fault(route="fs/directories/get", status=status, error_code="", message="no")

    assert backend.newest_checkpoint("/Volumes/main/ml/runs", "") is None
    assert ("/Volumes/main/ml/runs cannot be looked at" in caplog.text) == (status != 404)


def test_a_volume_of_which_nothing_is_known_is_asked_again(workspace, backend):
    workspace.fault("internal", route="fs/directories/get", times=1)

    with pytest.raises(BackendUnavailableError):
        backend.newest_checkpoint("/Volumes/main/ml/runs", "")
    assert backend.newest_checkpoint("/Volumes/main/ml/runs", "") is None


def test_why_runs_wait_is_asked_of_a_few_at_a_time_and_in_the_end_of_all(make_workspace, opened):
    plan = {"queue_s": 1e6, "waits": "STATUS:no GPU is free", "run_s": 1.0}
    workspace = make_workspace(default=plan)
    backend = opened(workspace)
    make_job = jobs_for(backend)
    handles = list(backend.submit([make_job() for _ in range(20)]))
    told = []
    for _ in range(3):
        workspace.recorder.forget()
        told.append(Counter(seen.detail for seen in backend.poll(handles).values())["no GPU is free..."])
        assert workspace.recorder.counts["jobs/runs/get-output"] <= 8
        workspace.advance(60)

    assert told == [8, 16, 20]
    assert backend.describe(handles[0])["message"] == "no GPU is free..."
    assert Counter(run.detail for run in opened(workspace).remote_runs())["no GPU is free..."] == 8


# What else is there


def test_active_runs_are_listed_whoever_submitted_them(make_workspace, opened):
    workspace = make_workspace()
    backend = opened(workspace)
    jobs = [jobs_for(backend)() for _ in range(2)]
    backend.submit(jobs[:1])
    task = {
        "experiment": "by-hand",
        "deployments": [{"command_path": "/x/command.sh", "compute": CONFIG_COMPUTE}],
    }
    body = {"run_name": "by-hand", "tasks": [{"task_key": "by-hand", "ai_runtime_task": task}]}
    workspace.world.jobs.submit(workspace.world.tokens[workspace.token], body)

    shown = {run.name: run for run in backend.remote_runs()}

    assert set(shown) == {"ner", "by-hand"}
    assert (shown["ner"].token, shown["by-hand"].token) == (jobs[0].token, "")
    assert shown["ner"].phase is Phase.QUEUED


CONFIG_COMPUTE = {"accelerator_type": "GPU_1xA10", "accelerator_count": 1}


def test_a_run_is_described_as_the_workspace_has_it(workspace, backend, make_job):
    (handle,) = backend.submit([make_job()])
    workspace.advance(60)

    shown = backend.describe(handle)

    run = workspace.runs[0]
    assert shown["run_id"] == handle
    assert (shown["status"], shown["duration_seconds"], shown["attempt_number"]) == ("SUCCESS", 5, 0)
    assert shown["dashboard_url"] == f"{workspace.host}/jobs/runs/{handle}?o=900"
    assert shown["mlflow_url"].endswith(f"/runs/{run.last.mlflow_run_id}/artifacts/logs/node_0")
    assert shown["accelerators"] == "1x A10"

"""What is sent to Databricks: the payload cases, and what they leave open."""

import re
import uuid
from pathlib import Path, PurePosixPath

import pytest
import yaml

from airflows.backends.base import Job
from airflows.backends.databricks import payload
from airflows.backends.databricks.submitting import Variables
from airflows.errors import SpecError
from airflows.launch import Launcher
from airflows.spec import Checkpoint
from airflows.sweepfile import sweep_from_mapping
from airflows.train import decode, load_train, read_train
from airflows.trial import Trial

DATA = Path(__file__).parents[1] / "data"
HOME = "/Workspace/Users/kim@example.com"
CASES = yaml.safe_load((DATA / "ai-runtime" / "payloads.yaml").read_text())
CASE = pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])


def filled(value, **places):
    """Return a case's value with its placeholders filled in."""
    if isinstance(value, dict):
        return {key: filled(item, **places) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, **places) for item in value]
    if isinstance(value, str):
        for name, text in places.items():
            value = value.replace(f"<{name}>", text)
    return value


def effective(case):
    return read_train(case["config"], file="train.yaml", overrides=case["overrides"])


def directory_of(config):
    name = config.mlflow_run_name or config.experiment_name
    return payload.launch_dir(HOME, config, name, payload.hex_of("token"))


@CASE
def test_the_launch_directory_has_the_name_of_the_run_and_sixteen_hex_digits(case):
    pattern = case["launch_dir_pattern"].replace("<HOME>", HOME)

    assert re.fullmatch(pattern, directory_of(effective(case).config))


@CASE
def test_the_submission_is_that_of_the_case(case):
    config = effective(case).config
    # Names as the commands make them; the archive is named after its content, so that it is sent once.
    code = payload.archive_path(HOME, config, "src", "0f" * 32) if config.code_source else ""
    token = case["idempotency_key"] or config.idempotency_token or str(uuid.uuid4())
    policies = {each["policy_name"]: each["policy_id"] for each in case.get("server_policies", [])}
    minutes = config.timeout_minutes
    wanted = payload.Submission(
        token=token,
        command_path=f"{directory_of(config)}/command.sh",
        max_retries=payload.native_retries(config),
        code_source_path=code,
        policy_id=config.usage_policy_id or policies.get(config.usage_policy_name, ""),
        timeout_s=None if minutes is None else 60.0 * minutes,
    )

    body = payload.submit_body(config, wanted, {})

    places = {"LAUNCH_DIR": directory_of(config), "UUID4": token, "CODE_SOURCE_PATH": code}
    assert filled(case["submit"], **places) == body


@CASE
def test_the_preflight_check_has_only_what_the_file_sets(case):
    config = effective(case).config

    body = payload.validate_body(config, f"{directory_of(config)}/command.sh")

    assert filled(case["validate"], LAUNCH_DIR=directory_of(config)) == body


@CASE
def test_the_launch_files_are_those_of_the_case(case, tmp_path):
    base = effective(case)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "fit.py").write_text("print()\n")
    tree = {**base.tree}
    if base.config.code_source:
        tree["code_source"] = {"type": "snapshot", "snapshot": {"root_path": "code"}}
    job = job_of(base, tree, tmp_path)

    files = dict(job.files)
    shared = Variables.of(job).shared
    expected = dict(case["artifacts"])

    # The configuration that takes effect, overrides applied, rather than the file as it was.
    assert decode(yaml.safe_load(files.pop("training_config.yaml"))) == decode(tree)
    assert expected.pop("training_config.yaml") == "<CONFIG_FILE_BYTES>"
    assert files.pop("command.sh").decode() == expected.pop("command.sh")
    assert {name: yaml.safe_load(content) for name, content in files.items()} == expected
    assert shared == {row["name"]: row["value"] for row in expected.get("env_vars.json", [])}


def job_of(base, tree, tmp_path, **fields) -> Job:
    class Backend:
        root = tmp_path / "home"

    launcher = Launcher.open(
        sweep="lr-0a1b2c",
        base=base,
        backend=Backend(),
        tracker_env={"MLFLOW_TRACKING_URI": "databricks"},
        experiment_id="7",
        base_dir=tmp_path,
        checkpoint_root=Path("/Volumes/main/ml/runs/checkpoints"),
        path_hint=payload.volume_hint,
        **fields,
    )
    return launcher.job(Trial("lr-0a1b2c", 3, 3, 0), tree, "")


def test_a_job_that_is_uploaded_has_no_path_of_this_machine(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "fit.py").write_text("print()\n")
    text = CASES[6]["config"].replace("root_path: .", "root_path: src")
    base = read_train(text, file="train.yaml")

    job = job_of(base, base.tree, tmp_path)

    assert not [value for value in job.env.values() if str(tmp_path) in value]
    assert job.checkpoint_dir == "/Volumes/main/ml/runs/checkpoints/lr-0a1b2c/3"
    assert not Path("/Volumes").exists()
    assert (job.code.name, (job.code / "fit.py").exists()) == ("src", True)
    assert Variables.of(job).shared == {}
    assert sorted(Variables.of(job).own) == [
        *("AIRFLOWS_ATTEMPT", "AIRFLOWS_CHECKPOINT_DIR", "AIRFLOWS_SWEEP", "AIRFLOWS_TRIAL")
    ]


@pytest.mark.parametrize("directory", ["/data/runs", "/Volumes/main/ml", "/Volumes/main//runs"])
def test_checkpoints_are_kept_in_a_volume_or_not_at_all(tmp_path, directory):
    base = read_train(CASES[0]["config"], file="train.yaml")
    checkpoint = Checkpoint(dir=directory)

    with pytest.raises(SpecError, match="/Volumes/CATALOG/SCHEMA/VOLUME"):
        job_of(base, base.tree, tmp_path, checkpoint=checkpoint)


def test_a_volume_itself_may_keep_checkpoints(tmp_path):
    base = read_train(CASES[0]["config"], file="train.yaml")

    job = job_of(base, base.tree, tmp_path, checkpoint=Checkpoint(dir="/Volumes/main/ml/runs"))

    assert job.checkpoint_dir.startswith("/Volumes/main/ml/runs/")


def test_the_directory_of_experiments_cannot_be_swept(tmp_path):
    base = {"experiment_name": "ner", "command": "true"}
    base["compute"] = {"accelerator_type": "GPU_1xA10", "num_accelerators": 1}
    tree = {"name": "ner", "base": base, "space": {"mlflow_experiment_directory": ["/Shared/a", "/Shared/b"]}}

    with pytest.raises(SpecError, match="mlflow_experiment_directory cannot be swept"):
        sweep_from_mapping({**tree, "objective": {"metric": "loss", "goal": "minimize"}}, directory=tmp_path)


def test_the_guide_s_file_asks_for_sixteen_accelerators_on_two_nodes():
    config = load_train(DATA / "guide" / "train.yaml").config
    wanted = payload.Submission("t", "/w/command.sh", 0, "/w/code.tar.gz", timeout_s=7200.0)

    body = payload.submit_body(config, wanted, {})

    (task,) = body["tasks"]
    compute = task["ai_runtime_task"]["deployments"][0]["compute"]
    assert compute == {"accelerator_type": "GPU_8xH100", "accelerator_count": 16}
    assert (task["max_retries"], "retry_on_timeout" in task) == (0, False)
    assert body["timeout_seconds"] == 7200
    assert body["environments"][0]["spec"] == {
        "environment_version": "4",
        "dependencies": ["transformers>=4.45", "datasets>=3.0"],
    }


CONFIG = {
    "experiment_name": "e",
    "command": "true",
    "compute": {"accelerator_type": "GPU_8xH100", "num_accelerators": 8},
}


@pytest.mark.parametrize(
    ("changes", "where", "key", "value"),
    [
        ({"compute": {**CONFIG["compute"], "pool_id": "p1"}}, "compute", "provisioned_capacity_id", "p1"),
        (
            {"compute": {**CONFIG["compute"], "pool_id": "p1", "priority_class": "CRITICAL"}},
            "task",
            "priority_class",
            "CRITICAL",
        ),
        (
            {"mlflow_artifact_location": "/Volumes/a/b/c"},
            "task",
            "mlflow_artifact_location",
            "/Volumes/a/b/c",
        ),
        ({"environment": {"unity_catalog_image": "c.s.i:1"}}, "task", "unity_catalog_image_path", "c.s.i:1"),
    ],
)
def test_newer_keys_reach_the_fields_they_are_for(changes, where, key, value):
    body = payload.submit_body(decode({**CONFIG, **changes}), payload.Submission("t", "/c", 0), {})

    task = body["tasks"][0]["ai_runtime_task"]
    assert (task if where == "task" else task["deployments"][0]["compute"])[key] == value


def test_a_docker_image_is_sent_by_its_full_address():
    config = decode({**CONFIG, "environment": {"docker_image": {"url": "lab/train"}}})
    image = payload.normalised_image(payload.image_of(config).url)

    body = payload.submit_body(config, payload.Submission("t", "/c", 0, image=image), {})

    assert body["tasks"][0]["ai_runtime_task"]["docker_image_url"] == "docker.io/lab/train:latest"


@pytest.mark.parametrize(
    ("url", "full"),
    [
        ("python", "docker.io/library/python:latest"),
        ("python:3.12", "docker.io/library/python:3.12"),
        ("lab/train", "docker.io/lab/train:latest"),
        ("ghcr.io/lab/train", "ghcr.io/lab/train:latest"),
        ("reg.example.com:5000/a/b:2", "reg.example.com:5000/a/b:2"),
        ("ghcr.io/lab/train:2@sha256:" + "0" * 64, "ghcr.io/lab/train@sha256:" + "0" * 64),
    ],
)
def test_an_image_is_named_in_full(url, full):
    assert payload.normalised_image(url) == full


@pytest.mark.parametrize(
    ("environment", "variable", "version"),
    [
        ({}, None, "4"),
        ({"dependencies": ["a"], "version": ""}, None, "4"),
        ({"dependencies": ["a"], "version": 5}, "6", "5"),
        ({}, "CLIENT-GPU-6", "6"),
        ({}, "", "4"),
    ],
)
def test_the_environment_s_version_has_a_default(environment, variable, version):
    config = decode({**CONFIG, "environment": environment})
    environ = {} if variable is None else {"DATABRICKS_DL_RUNTIME_IMAGE": variable}

    body = payload.submit_body(config, payload.Submission("t", "/c", 0), environ)

    assert body["environments"][0]["spec"]["environment_version"] == version


def test_the_home_in_the_workspace_may_be_said_by_the_environment():
    me = {"userName": "kim@example.com"}

    assert payload.home_of(me, {}) == HOME
    assert payload.home_of(me, {"DATABRICKS_INTERNAL_USER_WORKSPACE_DIR": "/Workspace/x/"}) == "/Workspace/x"


@pytest.mark.parametrize(
    ("directory", "name"),
    [(None, "/Users/kim@example.com/e"), ("/Workspace/Shared/lab/", "/Shared/lab/e")],
)
def test_the_experiment_is_the_one_that_the_service_makes(directory, name):
    changes = {} if directory is None else {"mlflow_experiment_directory": directory}

    assert payload.experiment_name(HOME, decode({**CONFIG, **changes})) == name


def test_the_archive_goes_to_the_volume_that_is_named():
    source = {"type": "snapshot", "snapshot": {"root_path": ".", "remote_volume": "/Volumes/a/b/c/"}}
    config = decode({**CONFIG, "code_source": source})

    path = PurePosixPath(payload.archive_path(HOME, config, "src", "ab" * 32))

    assert path == PurePosixPath("/Volumes/a/b/c/.internal/src_abababababababab.tar.gz")

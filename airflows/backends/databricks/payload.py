"""What is sent to start a run, as values: request bodies, names and paths. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflows.train import DockerImage, TrainConfig

Body = dict[str, Any]

DEFAULT_RETRIES = 3
"""What `max_retries` is when a train.yaml leaves it out and the service retries."""
_DEFAULT_ENVIRONMENT = "4"
_ENVIRONMENT_VARIABLE = "DATABRICKS_DL_RUNTIME_IMAGE"
_ENVIRONMENT_KEY = "default"
_HEX_CHARS = 16
_IN_VOLUME = re.compile(r"/Volumes/[^/]+/[^/]+/[^/]+")


@dataclass(frozen=True, slots=True)
class Submission:
    """What a `runs/submit` body needs besides the train.yaml.

    Attributes:
        token: the same token again is the same run.
        command_path: the script in the workspace that each node runs.
        max_retries: of the service.
        code_source_path: the archive with the code, empty for none.
        mlflow_run: name of the MLflow run in place of the train.yaml's.
        policy_id: usage policy, empty for none.
        image: address of a docker image, normalised; empty for none.
        timeout_s: limit in seconds; None for none.
    """

    token: str
    command_path: str
    max_retries: int
    code_source_path: str = ""
    mlflow_run: str = ""
    policy_id: str = ""
    image: str = ""
    timeout_s: float | None = None


# Names and paths


def home_of(me: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return the caller's workspace home.

    Args:
        me: the answer of `scim/v2/Me`.
        environ: the driver's environment.
    """
    given = environ.get("DATABRICKS_INTERNAL_USER_WORKSPACE_DIR", "").rstrip("/")
    return given or f"/Workspace/Users/{me['userName']}"


def hex_of(*parts: str) -> str:
    """Return 16 hex digits that stand for the parts, the same for the same parts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_HEX_CHARS]


def launch_dir(home: str, config: TrainConfig, name: str, hex16: str) -> str:
    """Return the directory in the workspace that holds what a run reads.

    Args:
        home: the caller's workspace home.
        config: the train.yaml.
        name: of the run, or of what several runs share.
        hex16: keeps it apart from others of that name.
    """
    return f"{home}/.air/cli_launch/{config.experiment_name}/{name}_{hex16}"


def archive_path(home: str, config: TrainConfig, root_name: str, digest: str) -> str:
    """Return where the code's archive goes; the name says what is in it."""
    wanted = config.code_source.snapshot if config.code_source is not None else None
    volume = wanted.remote_volume if wanted is not None else None
    directory = f"{volume.rstrip('/')}/.internal" if volume else f"{home}/.air/repo_snapshots/.internal"
    return f"{directory}/{root_name}_{digest[:_HEX_CHARS]}.tar.gz"


def volume_hint(path: str) -> str:
    """Return what to do about a directory that is in no volume; empty when it is in one."""
    return "" if _IN_VOLUME.match(path) else "Name one in /Volumes/CATALOG/SCHEMA/VOLUME."


def experiment_name(home: str, config: TrainConfig) -> str:
    """Return the MLflow experiment's name, which is that of a path in the workspace."""
    directory = (config.mlflow_experiment_directory or home).strip().rstrip("/")
    return f"{directory.removeprefix('/Workspace')}/{config.experiment_name}"


def normalised_image(url: str) -> str:
    """Return a docker image's full address.

    Example:
        >>> normalised_image("python"), normalised_image("ghcr.io/lab/train:2")
        ('docker.io/library/python:latest', 'ghcr.io/lab/train:2')
    """
    address = url.strip()
    host, slash, rest = address.partition("/")
    if not slash:
        address = f"docker.io/library/{address}"
    elif "." not in host and ":" not in host and host != "localhost":
        address = f"docker.io/{host}/{rest}"
    name, _, tagged = address.rpartition("/")
    if "@" in tagged:
        bare, _, digest = tagged.partition("@")
        return f"{name}/{bare.partition(':')[0]}@{digest}"
    return address if ":" in tagged else f"{address}:latest"


def image_of(config: TrainConfig) -> DockerImage | None:
    """Return the docker image that a train.yaml asks for, None for none."""
    return config.environment.docker_image if config.environment is not None else None


# Bodies


def task_body(config: TrainConfig, command_path: str) -> Body:
    """Return the task as the pre-flight check wants it, and as `runs/submit` starts from."""
    compute: Body = {
        "accelerator_type": config.compute.accelerator_type,
        "accelerator_count": config.compute.num_accelerators,
    }
    if config.compute.pool_id:
        compute["provisioned_capacity_id"] = config.compute.pool_id
    body: Body = {
        "experiment": config.experiment_name,
        "deployments": [{"command_path": command_path, "compute": compute}],
    }
    if config.mlflow_run_name is not None:
        body["mlflow_run"] = config.mlflow_run_name
    if config.mlflow_experiment_directory is not None:
        body["mlflow_experiment_directory"] = config.mlflow_experiment_directory
    return body


def validate_body(config: TrainConfig, command_path: str) -> Body:
    """Return the body of the pre-flight check: only what the train.yaml sets."""
    options: Body = {
        name: value
        for name in (
            "max_retries",
            "timeout_minutes",
            "idempotency_token",
            "usage_policy_name",
            "usage_policy_id",
        )
        if (value := getattr(config, name)) is not None
    }
    if config.env_variables:
        options["env_variables"] = dict(config.env_variables)
    if config.secrets:
        options["secrets"] = dict(config.secrets)
    body: Body = {"task": task_body(config, command_path)}
    return {**body, "run_options": options} if options else body


def submit_body(config: TrainConfig, wanted: Submission, environ: Mapping[str, str]) -> Body:
    """Return the body of `runs/submit`.

    Args:
        config: the train.yaml as it takes effect.
        wanted: what else it needs.
        environ: the driver's environment, which may name the default environment.
    """
    body: Body = {
        "run_name": config.experiment_name,
        "idempotency_token": wanted.token,
        "environments": [{"environment_key": _ENVIRONMENT_KEY, "spec": _environment(config, environ)}],
        "tasks": [_task(config, wanted)],
    }
    if wanted.timeout_s is not None:
        body["timeout_seconds"] = max(1, round(wanted.timeout_s))
    if wanted.policy_id:
        body["budget_policy_id"] = wanted.policy_id
    return body


def _task(config: TrainConfig, wanted: Submission) -> Body:
    body: Body = {
        "task_key": config.experiment_name,
        "run_if": "ALL_SUCCESS",
        "environment_key": _ENVIRONMENT_KEY,
        # Left out, the service would take a number of its own.
        "max_retries": wanted.max_retries,
        "ai_runtime_task": _ai_task(config, wanted),
    }
    if wanted.max_retries:
        body["retry_on_timeout"] = True
    return body


def _ai_task(config: TrainConfig, wanted: Submission) -> Body:
    body = task_body(config, wanted.command_path)
    image = config.environment.unity_catalog_image if config.environment is not None else None
    further = {
        "mlflow_run": wanted.mlflow_run,
        "code_source_path": wanted.code_source_path,
        "docker_image_url": wanted.image,
        "mlflow_artifact_location": config.mlflow_artifact_location,
        "priority_class": config.compute.priority_class,
        "unity_catalog_image_path": image,
    }
    return body | {name: value for name, value in further.items() if value}


def _environment(config: TrainConfig, environ: Mapping[str, str]) -> Body:
    given = config.environment
    version = (given.version if given is not None else None) or environ.get(_ENVIRONMENT_VARIABLE)
    spec: Body = {"environment_version": (version or "").removeprefix("CLIENT-GPU-") or _DEFAULT_ENVIRONMENT}
    if given is not None and given.dependencies:
        spec["dependencies"] = list(given.dependencies)
    return spec


def native_retries(config: TrainConfig) -> int:
    """Return the retries that are left to the service."""
    return DEFAULT_RETRIES if config.max_retries is None else config.max_retries

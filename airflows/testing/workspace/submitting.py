"""What a submission must be, and what rules see of it. Pure, given the files beside the command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from posixpath import dirname
from typing import TYPE_CHECKING, Any

import yaml

from airflows.backends.databricks.script import parameters_in
from airflows.testing.workspace.exchange import invalid
from airflows.testing.workspace.plans import Submission
from airflows.testing.workspace.settings import Settings

if TYPE_CHECKING:
    from airflows.testing.workspace.jobs import Launches

_MOST_TOKEN_BYTES = 64
_MOST_TASKS = 100


def checked(body: Mapping[str, Any], settings: Settings) -> None:
    """Refuse what the service would.

    Raises:
        ApiError: says which field is wrong.
    """
    token = body.get("idempotency_token")
    if token is not None and len(str(token).encode()) > _MOST_TOKEN_BYTES:
        message = f"idempotency_token must be at most {_MOST_TOKEN_BYTES} characters."
        raise invalid(message)
    tasks = body.get("tasks")
    if not isinstance(tasks, list) or not 0 < len(tasks) <= _MOST_TASKS:
        message = "One of job_cluster_key, new_cluster, or tasks must be specified."
        raise invalid(message)
    known = {environment.get("environment_key") for environment in body.get("environments") or ()}
    for task in tasks:
        key = task.get("environment_key")
        if key is not None and key not in known:
            message = f"Task {task.get('task_key')}: environment_key {key!r} is not among the environments."
            raise invalid(message)
        if not task.get("task_key"):
            message = "tasks.task_key is required."
            raise invalid(message)
        if task.get("ai_runtime_task") is not None:
            _check_task(task["ai_runtime_task"], settings)
    if int(body.get("timeout_seconds") or 0) < 0:
        message = "timeout_seconds must not be negative."
        raise invalid(message)


def _check_task(task: Mapping[str, Any], settings: Settings) -> None:
    if not task.get("experiment"):
        message = "ai_runtime_task.experiment is required."
        raise invalid(message)
    deployments = task.get("deployments") or []
    if len(deployments) != 1:
        message = "ai_runtime_task.deployments: exactly one deployment is supported."
        raise invalid(message)
    compute = deployments[0].get("compute") or {}
    problem = compute_problem(compute, settings)
    if problem:
        message = f"ai_runtime_task.deployments[0].compute: {problem}"
        raise invalid(message)
    if not deployments[0].get("command_path"):
        message = "ai_runtime_task.deployments[0].command_path is required."
        raise invalid(message)


def compute_problem(compute: Mapping[str, Any], settings: Settings) -> str:
    """Return what is wrong with a compute specification, empty for nothing."""
    kind, count = compute.get("accelerator_type"), compute.get("accelerator_count")
    if kind not in settings.accelerators:
        return f"unknown accelerator_type {kind!r}"
    each = settings.accelerators[str(kind)]
    if not isinstance(count, int) or isinstance(count, bool) or count <= 0 or count % each:
        return f"accelerator_count {count!r} is not a positive multiple of {each}"
    return ""


def submission_of(body: Mapping[str, Any], nth: int, user: str, launches: Launches) -> Submission:
    """Return a submission as rules see it."""
    task = body["tasks"][0].get("ai_runtime_task") or {}
    deployment = (task.get("deployments") or [{}])[0]
    beside = dirname(deployment.get("command_path", ""))
    parameters, env = (
        launches.read(f"{beside}/{name}") for name in ("hyperparameters.yaml", "env_vars.json")
    )
    path = deployment.get("command_path", "")
    if path and not parameters:
        script = launches.read(path) or b""
        parameters = parameters_in(script.decode("utf-8", "replace")).encode()
    return Submission(
        nth=nth,
        run_name=str(body.get("run_name", "Untitled")),
        token=str(body.get("idempotency_token") or ""),
        experiment=str(task.get("experiment", "")),
        user=user,
        accelerator_type=str((deployment.get("compute") or {}).get("accelerator_type", "")),
        parameters=yaml.safe_load(parameters) if parameters else {},
        env={item["name"]: item["value"] for item in json.loads(env)} if env else {},
    )

"""Submissions for tests that have none of their own."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflows.yamlio import dump

if TYPE_CHECKING:
    from airflows.testing.workspace.workspace import FakeWorkspace


def submission(
    command_path: str = "/Workspace/Users/kim@example.com/.air/command.sh",
    *,
    token: str = "",
    compute: tuple[str, int] = ("GPU_1xA10", 1),
    task: Mapping[str, Any] | None = None,
    ai_task: Mapping[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return the body of `runs/submit` for one AI Runtime task.

    Args:
        command_path: of its command.
        token: idempotency token, empty for none.
        compute: accelerator type and number.
        task: further fields of the task, such as `max_retries`.
        ai_task: further fields of the AI Runtime task, such as `mlflow_run`.
        fields: further fields of the body, such as `run_name`.
    """
    kind, count = compute
    hardware = {"accelerator_type": kind, "accelerator_count": count}
    deployments = [{"command_path": command_path, "compute": hardware}]
    ai: dict[str, Any] = {"experiment": "ner-base", "deployments": deployments, **(ai_task or {})}
    usual = {
        "task_key": ai["experiment"],
        "run_if": "ALL_SUCCESS",
        "environment_key": "default",
        "max_retries": 0,
    }
    body: dict[str, Any] = {
        "run_name": ai["experiment"],
        "environments": [{"environment_key": "default", "spec": {"environment_version": "4"}}],
        "tasks": [{**usual, **(task or {}), "ai_runtime_task": ai}],
    }
    return {**body, **({"idempotency_token": token} if token else {}), **fields}


def launch(
    workspace: FakeWorkspace,
    command: str,
    *,
    name: str = "launch",
    env: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> str:
    """Put a launch directory into the workspace, past its API; return the path of the command."""
    files = {"command.sh": command}
    if env:
        files["env_vars.json"] = json.dumps([{"name": key, "value": env[key]} for key in sorted(env)])
    if secrets:
        listed = [(key, *value.split("/")) for key, value in sorted(secrets.items())]
        entries = [{"name": key, "secret_scope": scope, "secret_key": item} for key, scope, item in listed]
        files["secret_env_vars.json"] = json.dumps(entries)
    if parameters:
        files["hyperparameters.yaml"] = dump(parameters)
    directory = f"/Workspace/Users/{workspace.user}/.air/{name}"
    for file, content in files.items():
        workspace.put_file(posixpath.join(directory, file), content.encode())
    return f"{directory}/command.sh"

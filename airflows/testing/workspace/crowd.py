"""Runs of others and of other kinds, for listings to be sorted out of."""

from __future__ import annotations

from typing import Any

from airflows.testing.workspace.exchange import User
from airflows.testing.workspace.plans import RunPlan
from airflows.testing.workspace.world import World

_NOTEBOOK = {"task_key": "report", "notebook_task": {"notebook_path": "/Shared/report"}}
_ENDED = RunPlan(queue_s=0, run_s=0)
_ACTIVE = RunPlan(queue_s=0, run_s=None)


def add_crowd(world: World, count: int) -> None:
    """Submit so many runs: notebooks, AI tasks of others, and AI tasks in loops; each second one goes on."""
    names = [account.name for account in world.settings.users]
    kind = next(iter(world.settings.accelerators))
    deployment = {
        "command_path": "/Workspace/Shared/command.sh",
        "compute": {"accelerator_type": kind, "accelerator_count": world.settings.accelerators[kind]},
    }
    foreign = {"task_key": "other", "ai_runtime_task": {"experiment": "other", "deployments": [deployment]}}
    loop = {"task_key": "loop", "for_each_task": {"inputs": "[1,2]", "task": foreign}}
    nodes, world.jobs.nodes = world.jobs.nodes, None
    for index in range(count):
        task: Any = (_NOTEBOOK, foreign, loop)[index % 3]
        body = {"run_name": f"crowd-{index}", "tasks": [{**task, "max_retries": 0}]}
        user = User(names[-1] if task is foreign else names[0])
        with world.lock:
            world.jobs.submit(user, body, _ENDED if index % 2 else _ACTIVE)
    world.jobs.nodes = nodes

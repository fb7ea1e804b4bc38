"""A sweep's winner and a registered model's alias, inside a flow run."""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict
from typing import Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State as RunState
from prefect.logging import get_run_logger

from airflows.documents import Document
from airflows.engine.promotion import Promotion, promote
from airflows.errors import AirflowsError
from airflows.flowruns.publishing import ArtifactBoard
from airflows.flowruns.request import SweepRequest
from airflows.flowruns.running import current_flow_run, failed, run_sweep
from airflows.flowruns.texts import Artifact, artifact_name
from airflows.home import home_directory


async def promote_winner(
    request: SweepRequest, *, model: str, alias: str, artifact: str
) -> Document | RunState[Any]:
    """Run a sweep or attach to it, and point a registered model's alias at its winner if that is better.

    Args:
        request: the sweep, or the id or name of one that ran.
        model: the registered model in MLflow; made when it is not there.
        alias: its alias.
        artifact: the name under which the training script logged the model.

    Returns:
        What `run_sweep` returns, and whether the alias moved, to which version, and why. A failed state also
        when the sweep has no winner, or the winner's run logged no such model.

    Raises:
        AirflowsError: something cannot be reached: worth a retry.
    """
    ended = await run_sweep(request)
    if isinstance(ended, RunState):
        return ended
    run, home = current_flow_run(), home_directory()
    async with get_client() as client:
        try:
            made = await asyncio.to_thread(
                promote, ended["sweep"], model=model, alias=alias, artifact=artifact, home=home
            )
        except AirflowsError as exc:
            return await failed(client, run, exc)
        get_run_logger().info(_sentence(made))
        await ArtifactBoard(client, run.id).put([_artifact(made, ended["sweep"])])
    return {**ended, "promotion": asdict(made)}


def _artifact(made: Promotion, sweep: str) -> Artifact:
    key = re.sub(r"-+", "-", f"{artifact_name(made.model)}-{artifact_name(made.alias)}")
    return Artifact(key, "markdown", _sentence(made), f"Sweep {sweep}")


def _sentence(made: Promotion) -> str:
    name = f"{made.model}@{made.alias}"
    if made.moved:
        before = f", before that at version {made.previous}" if made.previous else ""
        return f"{name} points at version {made.version} now{before}. {made.why}"
    return f"{name} stays at version {made.version}. {made.why}" if made.version else f"{name}: {made.why}"

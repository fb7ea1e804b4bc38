"""What Prefect calls when a flow run was cancelled or crashed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.flows import Flow
from prefect.logging.loggers import flow_run_logger
from prefect.states import Scheduled

from airflows.engine import operations
from airflows.engine.operations import CancelOutcome
from airflows.errors import AirflowsError, LedgerError
from airflows.flowruns.looking import recorded
from airflows.flowruns.mirroring import TrialMirror, leave_task_runs
from airflows.flowruns.publishing import ArtifactBoard, SweepArtifacts
from airflows.flowruns.running import instance_of, sweeps_of
from airflows.home import home_directory

_PAUSES_S = (1.0, 2.0, 4.0, 8.0)


async def stop_trials(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001
    """Cancel the trials of a flow run's sweep and wait until they are gone: for `on_cancellation`.

    The wish is written into the ledger first, so that it stands even if this is cut short.

    Raises:
        BackendUnavailableError: a run is not gone yet; the request stands.
        LedgerError: the ledger did not answer for some time; the request may not be in it.
    """
    logger = flow_run_logger(flow_run)
    async with get_client() as client:
        # The run that is handed over may be older than its tags.
        run = await client.read_flow_run(flow_run.id)
        for sweep in sweeps_of(run):
            outcome = await _cancel(sweep)
            if outcome is None:
                logger.info("%s had not begun.", sweep)
            elif outcome.cancelled:
                logger.info("%s is cancelled; none of its trials runs any more.", sweep)
                await _show(client, run, sweep)


async def take_up_again(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001
    """Schedule another run in place of a crashed one, as often as it has retries: for `on_crashed`.

    Prefect itself retries what fails, not what crashes. The trials go on meanwhile, and the new run attaches
    to the same sweep. Without a deployment nobody could run it: then the janitor takes over.
    """
    logger = flow_run_logger(flow_run)
    async with get_client() as client:
        run = await client.read_flow_run(flow_run.id)
        await leave_task_runs(client, run.id)
        retries = run.empirical_policy.retries or 0
        if run.deployment_id is None or not retries:
            logger.warning("The trials go on. No retry is left; the janitor flow takes the sweep over.")
            return
        again = await _schedule(client, run, retries - 1)
    logger.info("The trials go on; flow run %r takes the sweep up soon.", again.name)


async def _schedule(client: PrefectClient, run: FlowRun, retries: int) -> FlowRun:
    # Not this run once more: its worker reports the crash a second time, and would undo that.
    assert run.deployment_id is not None  # noqa: S101 - for the type checker: the caller asks
    at = datetime.now(UTC) + timedelta(seconds=run.empirical_policy.retry_delay or 0)
    instance = run.parameters.get("instance") or instance_of(run)
    again = await client.create_flow_run_from_deployment(
        run.deployment_id,
        parameters={**run.parameters, "instance": instance},
        state=Scheduled(scheduled_time=at),
        tags=run.tags,
        idempotency_key=f"{run.id}-crashed",
        work_queue_name=run.work_queue_name,
        job_variables=run.job_variables,
    )
    policy = run.empirical_policy.model_copy(update={"retries": retries})
    await client.update_flow_run(again.id, empirical_policy=policy)
    return again


async def _cancel(sweep: str) -> CancelOutcome | None:
    """Cancel a sweep, asking a ledger that does not answer again; None when it is not in the ledger.

    Raises:
        AirflowsError: it is not cancelled.
    """
    for pause in _PAUSES_S:
        try:
            return await asyncio.to_thread(_cancel_now, sweep)
        except LedgerError:
            await asyncio.sleep(pause)
    return await asyncio.to_thread(_cancel_now, sweep)


def _cancel_now(sweep: str) -> CancelOutcome | None:
    home = home_directory()
    if recorded(home, sweep) is None:
        return None
    outcome = operations.cancel([sweep], home=home)
    errors: list[AirflowsError] = [error for _, error in outcome.failed]
    if errors:
        raise errors[0]
    return outcome


async def _show(client: PrefectClient, run: FlowRun, sweep: str) -> None:
    home = home_directory()
    await SweepArtifacts(ArtifactBoard(client, run.id), home, sweep).show()
    if run.parameters.get("show_trials"):
        await TrialMirror(client, run.id, home, sweep).show()

"""A sweep inside a flow run: start it or take it up, show it, and end as it ends."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.objects import State as RunState
from prefect.context import FlowRunContext
from prefect.exceptions import PrefectException
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Failed

from airflows.documents import Document, without_passwords
from airflows.engine.results import exit_status
from airflows.errors import AirflowsError
from airflows.flowruns.driving import Driving
from airflows.flowruns.events import EventObserver
from airflows.flowruns.looking import look, look_at_counts, recorded
from airflows.flowruns.mirroring import TrialMirror, leave_task_runs
from airflows.flowruns.publishing import ArtifactBoard, SweepArtifacts
from airflows.flowruns.request import SweepRequest, Wanted, read_request, refuse_too_many
from airflows.flowruns.texts import View, failure_text, progress_line, result_of
from airflows.flowruns.timing import CancellationWatch, Logger, Shown, attend
from airflows.home import home_directory
from airflows.ledger import SweepState
from airflows.times import to_iso

_TAG = "airflows:"
_CANNOT_REACH = 3


async def run_sweep(request: SweepRequest) -> Document | RunState[Any]:
    """Run a sweep in the flow run that this is called in, or attach to it, and return what came of it.

    A retry or rerun of the flow run, and every flow run with the same `instance`, attaches to the same
    sweep. Cancelling the flow run cancels the trials; a crash leaves them running.

    Returns:
        Sweep id, state, counts and the winner. A failed state when the sweep failed, its message naming the
        causes, grouped, or when what was asked for is wrong; a cancelled one when it was cancelled.

    Raises:
        AirflowsError: a backend, MLflow or the ledger cannot be reached: worth a retry.
    """
    run, logger = current_flow_run(), get_run_logger()
    async with get_client() as client:
        try:
            wanted = await asyncio.to_thread(wanted_by, run, request, home_directory())
            await _remember(client, run, wanted.id)
            view = await _attend(client, run, wanted, request, logger)
        except AirflowsError as exc:
            return await failed(client, run, exc)
        if exit_status(view.results) and view.row.state is not SweepState.CANCELLED:
            return await _failed_for_good(client, run, failure_text(view))
    return _ended(view, logger)


async def failed(client: PrefectClient, run: FlowRun, error: AirflowsError) -> RunState[Any]:
    """Return the failed state for an error that another attempt would find again.

    Raises:
        AirflowsError: the error itself, when something could not be reached: worth a retry.
    """
    if error.exit_code == _CANNOT_REACH:
        raise error
    return await _failed_for_good(client, run, without_passwords(str(error)))


def tag_of(sweep: str) -> str:
    """Return the tag of the flow runs that drive or drove a sweep."""
    return f"{_TAG}{sweep}"


def sweeps_of(run: FlowRun) -> list[str]:
    """Return the ids of the sweeps that a flow run drives or drove."""
    return [tag.removeprefix(_TAG) for tag in run.tags if tag.startswith(_TAG)]


def instance_of(run: FlowRun) -> str:
    """Return the instance of a flow run that names none: its scheduled time, which no retry changes."""
    at = run.expected_start_time
    return (to_iso(at.timestamp()) if at is not None else None) or str(run.id)


def current_flow_run() -> FlowRun:
    """Return the flow run that this is called in.

    Raises:
        AirflowsError: outside of a flow.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        message = "run_sweep works inside a Prefect flow only."
        raise AirflowsError(message, hint="Outside of one: airflows.run(airflows.load_sweep(PATH))")
    return context.flow_run


def wanted_by(run: FlowRun, request: SweepRequest, home: Path) -> Wanted:
    """Return the sweep that a flow run is to drive: what an earlier attempt began, else what is asked for.

    Raises:
        SpecError: something is wrong with what is asked for.
        LedgerError: the ledger cannot be read.
    """
    # The file may have changed since the earlier attempt.
    begun = next((Wanted(sweep) for sweep in sweeps_of(run) if recorded(home, sweep)), None)
    wanted = begun or read_request(request, home=home, instance=instance_of(run))
    if request.show_trials and (row := recorded(home, wanted.id)) is not None:
        # It may have been extended since.
        refuse_too_many(row.total)
    return wanted


async def _remember(client: PrefectClient, run: FlowRun, sweep: str) -> None:
    """Write the sweep's id on the flow run before anything starts: retries and cancellation look there."""
    tags = [tag for tag in run.tags if not tag.startswith(_TAG)]
    await client.update_flow_run(run.id, tags=[*tags, tag_of(sweep)])


async def _attend(
    client: PrefectClient, run: FlowRun, wanted: Wanted, request: SweepRequest, logger: Logger
) -> View:
    home = home_directory()
    for notice in wanted.notices:
        logger.warning(notice)
    driving = Driving(wanted, home, EventObserver(run, logger), logger.info)
    shown: list[Shown] = [
        SweepArtifacts(ArtifactBoard(client, run.id), home, wanted.id),
        SweepTag(client, run, driving),
        CancellationWatch(client, run.id, driving.stop_trials, logger),
        ProgressLog(home, wanted.id, logger),
    ]
    if request.show_trials:
        shown.append(TrialMirror(client, run.id, home, wanted.id))
    try:
        await attend(driving, shown, logger)
    except AirflowsError:
        if request.show_trials:
            await _leave_task_runs(client, run, logger)
        raise
    return await asyncio.to_thread(look, home, driving.sweep)


async def _leave_task_runs(client: PrefectClient, run: FlowRun, logger: Logger) -> None:
    try:
        await leave_task_runs(client, run.id)
    except (httpx.HTTPError, PrefectException) as exc:
        logger.warning("Task runs still show trials as going on, and nobody updates them: %s", exc)


def _ended(view: View, logger: Logger) -> Document | RunState[Any]:
    if view.row.state is SweepState.CANCELLED:
        return Cancelled(message=without_passwords(f"{view.row.id}: {view.row.message}"))
    logger.info("%s %s. %s", view.row.id, view.row.state.value, without_passwords(view.row.message))
    return result_of(view)


async def _failed_for_good(client: PrefectClient, run: FlowRun, why: str) -> RunState[Any]:
    """Return a failed state, and make this attempt of the flow run the last one."""
    policy = run.empirical_policy.model_copy(update={"retries": 0})
    await client.update_flow_run(run.id, empirical_policy=policy)
    return Failed(message=why)


class SweepTag:
    """Corrects a flow run's tag when the sweep got another id than was foreseen: that id was taken."""

    def __init__(self, client: PrefectClient, run: FlowRun, driving: Driving) -> None:
        self._client = client
        self._run = run
        self._driving = driving
        self._tagged = driving.sweep

    async def show(self) -> None:
        """Write the tag anew if it is not the sweep's."""
        sweep = self._driving.sweep
        if sweep != self._tagged:
            await _remember(self._client, self._run, sweep)
            self._tagged = sweep


class ProgressLog:
    """Logs how a sweep stands, when that has changed."""

    def __init__(self, home: Path, sweep: str, logger: Logger) -> None:
        self._home = home
        self._sweep = sweep
        self._logger = logger
        self._last = ""

    async def show(self) -> None:
        """Log one line, or nothing."""
        try:
            line = progress_line(*await asyncio.to_thread(look_at_counts, self._home, self._sweep))
        except AirflowsError:
            return
        if line != self._last:
            self._last = line
            self._logger.log(logging.INFO, line)

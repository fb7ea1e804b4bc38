"""A sweep inside a flow run: start it or take it up, show it, and end as it ends."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from pathlib import Path
from typing import Any

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.objects import State as RunState
from prefect.context import FlowRunContext
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Failed

from airflows.documents import Document
from airflows.engine.results import exit_status
from airflows.errors import AirflowsError
from airflows.flowruns.driving import Driving
from airflows.flowruns.events import EventObserver
from airflows.flowruns.looking import is_recorded, look, look_at_counts
from airflows.flowruns.mirroring import TrialMirror
from airflows.flowruns.publishing import ArtifactBoard, SweepArtifacts
from airflows.flowruns.request import SweepRequest, Wanted, read_request
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
            wanted = await asyncio.to_thread(_wanted, request, run)
            await _remember(client, run, wanted)
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
    return await _failed_for_good(client, run, str(error))


def sweeps_of(run: FlowRun) -> list[str]:
    """Return the ids of the sweeps that a flow run drives or drove."""
    return [tag.removeprefix(_TAG) for tag in run.tags if tag.startswith(_TAG)]


def instance_of(expected: datetime | None) -> str:
    """Return the instance of a flow run that names none: its scheduled time, which no retry changes."""
    return "" if expected is None else to_iso(expected.timestamp()) or ""


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


def _wanted(request: SweepRequest, run: FlowRun) -> Wanted:
    home = home_directory()
    for sweep in sweeps_of(run):
        # An earlier attempt began this one; the file may have changed since.
        if is_recorded(home, sweep):
            return Wanted(sweep)
    return read_request(request, home=home, instance=instance_of(run.expected_start_time))


async def _remember(client: PrefectClient, run: FlowRun, wanted: Wanted) -> None:
    """Write the sweep's id on the flow run before anything starts: retries and cancellation look there."""
    tags = [tag for tag in run.tags if not tag.startswith(_TAG)]
    await client.update_flow_run(run.id, tags=[*tags, f"{_TAG}{wanted.id}"])


async def _attend(
    client: PrefectClient, run: FlowRun, wanted: Wanted, request: SweepRequest, logger: Logger
) -> View:
    home = home_directory()
    for notice in wanted.notices:
        logger.warning(notice)
    driving = Driving(wanted, home, EventObserver(run, logger), logger.info)
    shown: list[Shown] = [
        SweepArtifacts(ArtifactBoard(client, run.id), home, wanted.id),
        CancellationWatch(client, run.id, driving.stop_trials),
        ProgressLog(home, wanted.id, logger),
    ]
    if request.show_trials:
        shown.append(TrialMirror(client, run.id, home, wanted.id))
    await attend(driving, shown, logger)
    return await asyncio.to_thread(look, home, driving.sweep)


def _ended(view: View, logger: Logger) -> Document | RunState[Any]:
    if view.row.state is SweepState.CANCELLED:
        return Cancelled(message=f"{view.row.id}: {view.row.message}")
    logger.info("%s %s. %s", view.row.id, view.row.state.value, view.row.message)
    return result_of(view)


async def _failed_for_good(client: PrefectClient, run: FlowRun, why: str) -> RunState[Any]:
    """Return a failed state, and make this attempt of the flow run the last one."""
    policy = run.empirical_policy.model_copy(update={"retries": 0})
    await client.update_flow_run(run.id, empirical_policy=policy)
    return Failed(message=why)


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

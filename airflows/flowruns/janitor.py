"""Taking over sweeps that were left behind, inside a flow run."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.client.schemas.objects import State as RunState
from prefect.client.schemas.sorting import FlowRunSort
from prefect.logging import get_run_logger

from airflows.documents import Document, without_passwords
from airflows.engine import operations
from airflows.flowruns.driving import Driving
from airflows.flowruns.events import EventObserver
from airflows.flowruns.looking import look
from airflows.flowruns.publishing import ArtifactBoard, SweepArtifacts
from airflows.flowruns.request import Wanted
from airflows.flowruns.running import current_flow_run, tag_of
from airflows.flowruns.texts import Artifact, result_of
from airflows.flowruns.timing import Logger, attend
from airflows.home import home_directory
from airflows.ledger import SweepRow

_LOOK_AGAIN_S = 60.0


async def take_over(*, at_once: int) -> list[Document]:
    """Drive on every sweep that is wanted but whose driver is gone; return what became of each.

    While it drives, it looks for further ones. A sweep that cannot be driven from here is reported, and
    left as it is.

    Args:
        at_once: sweeps driven at the same time; the others wait.
    """
    home, logger = home_directory(), get_run_logger()
    async with get_client() as client:
        board = ArtifactBoard(client, current_flow_run().id)
        janitor = _Janitor(client, board, home, logger, asyncio.Semaphore(at_once))
        await janitor.work()
        if janitor.reports:
            table = json.dumps(janitor.reports)
            note = f"{len(janitor.reports)} sweeps had been left behind."
            await board.put([Artifact("janitor", "table", table, note)])
    logger.info("%d sweeps had been left behind.", len(janitor.reports))
    return janitor.reports


class _Janitor:
    def __init__(
        self,
        client: PrefectClient,
        board: ArtifactBoard,
        home: Path,
        logger: Logger,
        room: asyncio.Semaphore,
    ) -> None:
        self._client = client
        self._board = board
        self._home = home
        self._logger = logger
        self._room = room
        self._taken: dict[str, asyncio.Task[None]] = {}
        self.reports: list[Document] = []

    async def work(self) -> None:
        while True:
            for row in await self._left():
                # Each once: what cannot be driven now is for the next run of the janitor.
                if row.id not in self._taken:
                    self._taken[row.id] = asyncio.create_task(self._take(row.id))
            busy = [task for task in self._taken.values() if not task.done()]
            if not busy:
                return
            await self._wait(busy)

    async def _wait(self, busy: list[asyncio.Task[None]]) -> None:
        try:
            await asyncio.wait(busy, timeout=_LOOK_AGAIN_S, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            for task in busy:
                task.cancel()
            # Each lets go of its sweep first.
            await asyncio.wait(busy)
            raise

    async def _left(self) -> list[SweepRow]:
        return await asyncio.to_thread(operations.unattended, home=self._home, now=time.time())

    async def _take(self, sweep: str) -> None:
        async with self._room:
            try:
                # There was no room for hours perhaps: somebody may have taken it up or let go of it since.
                row = next((row for row in await self._left() if row.id == sweep), None)
                if row is None:
                    return
                report = await self._drive(row)
            except Exception as exc:  # noqa: BLE001 - one sweep's trouble is not that of the others
                why = without_passwords(str(exc) or type(exc).__name__)
                self._logger.warning("%s could not be driven on: %s", sweep, why)
                report = {"sweep": sweep, "state": "left", "message": why}
            self.reports.append(report)

    async def _drive(self, row: SweepRow) -> Document:
        self._logger.info("%s was left behind; it is driven on from here.", row.id)
        # An automation that cancels the flow run of an event must not cancel the janitor.
        observer = EventObserver(None, self._logger)
        driving = Driving(Wanted(row.id), self._home, observer, self._logger.info, looks_on=False)
        if await self._is_cancelled(row):
            self._logger.info("%s: its flow run was cancelled, so its trials are.", row.id)
            await asyncio.to_thread(driving.stop_trials)
        shown = [SweepArtifacts(self._board, self._home, row.id)]
        await attend(driving, shown, self._logger)
        ended = result_of(await asyncio.to_thread(look, self._home, row.id))
        return {key: ended[key] for key in ("sweep", "state", "message")}

    async def _is_cancelled(self, row: SweepRow) -> bool:
        """Whether the newest flow run of a sweep was cancelled while it had no process to see that."""
        tagged = FlowRunFilter(tags=FlowRunFilterTags(all_=[tag_of(row.id)]))
        newest = await self._client.read_flow_runs(
            flow_run_filter=tagged, sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=1
        )
        since = max(row.created_at, row.resumed_at or 0.0, row.lease_since or 0.0)
        return any(was_cancelled(run.state, since=since) for run in newest)


def was_cancelled(state: RunState[Any] | None, *, since: float) -> bool:
    """Whether a flow run was cancelled after its sweep was last taken up, be it by a person. Pure."""
    if state is None or not (state.is_cancelling() or state.is_cancelled()):
        return False
    return state.timestamp.timestamp() > since

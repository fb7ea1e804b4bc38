"""Taking over sweeps that were left behind, inside a flow run."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from prefect.client.orchestration import PrefectClient, get_client
from prefect.logging import get_run_logger

from airflows.documents import Document
from airflows.engine import operations
from airflows.errors import AirflowsError
from airflows.flowruns.driving import Driving
from airflows.flowruns.events import EventObserver
from airflows.flowruns.looking import look
from airflows.flowruns.publishing import ArtifactBoard, SweepArtifacts
from airflows.flowruns.request import Wanted
from airflows.flowruns.running import current_flow_run
from airflows.flowruns.texts import Artifact, result_of
from airflows.flowruns.timing import Logger, attend
from airflows.home import home_directory

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
            left = await asyncio.to_thread(operations.unattended, home=self._home, now=time.time())
            for row in left:
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

    async def _take(self, sweep: str) -> None:
        async with self._room:
            self._logger.info("%s was left behind; it is driven on from here.", sweep)
            observer = EventObserver(current_flow_run(), self._logger)
            driving = Driving(Wanted(sweep), self._home, observer, self._logger.info)
            shown = [SweepArtifacts(self._board, self._home, sweep)]
            try:
                await attend(driving, shown, self._logger)
                ended = result_of(await asyncio.to_thread(look, self._home, sweep))
                report = {key: ended[key] for key in ("sweep", "state", "message")}
            except AirflowsError as exc:
                self._logger.warning("%s could not be driven on: %s", sweep, exc)
                report = {"sweep": sweep, "state": "left", "message": str(exc)}
            self.reports.append(report)

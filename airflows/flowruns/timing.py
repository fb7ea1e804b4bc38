"""Showing a sweep again and again while it is driven, and noticing that its flow run was cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient
from prefect.exceptions import PrefectException

from airflows.errors import AirflowsError
from airflows.flowruns.driving import Driving

FIRST_AFTER_S = 1.0
EVERY_S = 5.0
# Showing a large sweep takes its time; it may take one part in so many.
_SHARE = 20
_LAST_TRIES = 5

Logger = logging.Logger | logging.LoggerAdapter[Any]


class Shown(Protocol):
    """Something that is brought up to date now and then."""

    async def show(self) -> None:
        """Bring it up to date; may be called again after a failure."""


class CancellationWatch:
    """Cancels the trials when the flow run was cancelled where no worker tells this process so."""

    def __init__(
        self, client: PrefectClient, flow_run_id: UUID, stop: Callable[[], None], logger: Logger
    ) -> None:
        self._client = client
        self._flow_run_id = flow_run_id
        self._stop = stop
        self._logger = logger
        self._trouble = ""
        self.is_cancelled = False

    async def show(self) -> None:
        """Ask Prefect for the flow run's state, until it is cancelled and that is in the ledger."""
        if self.is_cancelled:
            return
        state = (await self._client.read_flow_run(self._flow_run_id)).state
        if state is not None and (state.is_cancelling() or state.is_cancelled()):
            try:
                await asyncio.to_thread(self._stop)
            except AirflowsError as exc:
                self._tell_once(f"The trials could not be cancelled yet, and will be. {exc}")
            else:
                self.is_cancelled = True

    def _tell_once(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._logger.warning(trouble)


async def attend(driving: Driving, shown: Sequence[Shown], logger: Logger) -> None:
    """Drive a sweep in a thread and keep `shown` up to date; return at the sweep's end.

    When this coroutine is cancelled the driver lets go of the sweep first: its trials go on.

    Raises:
        AirflowsError: the sweep cannot be started or driven on.
    """
    # A thread of its own: asyncio's few are for short questions, and driving may take days.
    with ThreadPoolExecutor(1, thread_name_prefix="drive") as pool:
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        work = loop.run_in_executor(pool, lambda: context.run(driving.run))
        try:
            await _accompany(work, shown, logger)
        except asyncio.CancelledError:
            driving.let_go()
            await asyncio.wait([work])
            raise
        await work


async def _accompany(work: asyncio.Future[None], shown: Sequence[Shown], logger: Logger) -> None:
    """Keep `shown` up to date until the work is done, however it ends."""
    ended = asyncio.Event()
    work.add_done_callback(lambda _: ended.set())
    showing = [asyncio.create_task(_keep(each, ended, logger)) for each in shown]
    try:
        await asyncio.wait([work])
        await asyncio.gather(*showing)
    finally:
        for task in showing:
            task.cancel()


async def _keep(shown: Shown, ended: asyncio.Event, logger: Logger) -> None:
    """Show now and then until the end, and then once more, which has to succeed within a few tries."""
    loop, pause, failures = asyncio.get_running_loop(), FIRST_AFTER_S, 0
    # Whether the run was cancelled is asked at once, however slowly Prefect answered the last time.
    share = 0 if isinstance(shown, CancellationWatch) else _SHARE
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), pause)
        is_last, began = ended.is_set(), loop.time()
        trouble = await _trouble(shown.show())
        if trouble and not failures:
            logger.warning("Prefect could not be told, and will be again; the sweep goes on. %s", trouble)
        failures = failures + 1 if trouble else 0
        if is_last and (not trouble or failures > _LAST_TRIES):
            return
        pause = max(EVERY_S, share * (loop.time() - began))
        if is_last:
            await asyncio.sleep(FIRST_AFTER_S)


async def _trouble(work: Coroutine[Any, Any, None]) -> str:
    try:
        await work
    except (httpx.HTTPError, PrefectException, OSError) as exc:
        return f"{type(exc).__name__}: {exc}".strip()
    return ""

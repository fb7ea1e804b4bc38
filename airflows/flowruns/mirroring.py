"""Trials shown as task runs in Prefect's pages. They are pictures: Prefect neither runs nor retries them.

Each call goes to Prefect's API and is acknowledged, one after another. Task runs that a client only
reports by events are recorded late, and dropped when there are many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import State as RunState
from prefect.client.schemas.objects import StateType, TaskRun
from prefect.tasks import Task

from airflows.documents import value_of, without_passwords
from airflows.errors import AirflowsError
from airflows.flowruns.looking import look
from airflows.flowruns.texts import View
from airflows.report.words import override_words
from airflows.trial import State, Trial

_Answer = TypeVar("_Answer")

_PAGE = 200
_NAME_CHARS = 120
_KEY = "airflows-trial"
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_STATES: Mapping[State, tuple[StateType, str]] = {
    State.SUBMITTING: (StateType.PENDING, "Pending"),
    State.QUEUED: (StateType.PENDING, "Queued"),
    State.RUNNING: (StateType.RUNNING, "Running"),
    State.STOPPING: (StateType.RUNNING, "Stopping"),
    State.SUCCEEDED: (StateType.COMPLETED, "Completed"),
    State.FAILED: (StateType.FAILED, "Failed"),
    State.STOPPED: (StateType.COMPLETED, "Stopped"),
    State.CANCELLED: (StateType.CANCELLED, "Cancelled"),
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A trial as its task run shows it."""

    key: str
    name: str
    kind: StateType
    state: str
    message: str


def picture_of(trial: Trial, overrides: Mapping[str, Any]) -> Picture | None:
    """Return how a trial is shown, None for one that never ran and still waits. Pure."""
    if trial.state is State.PENDING:
        if not trial.attempt:
            return None
        kind, state = StateType.PENDING, "AwaitingRetry"
    else:
        kind, state = _STATES[trial.state]
    value = value_of(trial)
    message = trial.message or trial.reason.sentence or ("" if value is None else f"value {value}")
    words = " ".join(word.removeprefix("--override ") for word in override_words(overrides))
    name = f"{trial.number}: {words.replace('parameters.', '')}"
    # Before they are cut: the rest of an address would not be known as one.
    name, message = (without_passwords(text)[:_NAME_CHARS] for text in (name, message))
    return Picture(f"{trial.sweep}/{trial.number}", name, kind, state, message)


def _never_run() -> None:
    """Stand for a trial: a task run needs a task."""


async def leave_task_runs(client: PrefectClient, flow_run_id: UUID) -> None:
    """Mark what a flow run that is over still shows as going on: nobody brings it up to date any more."""
    message = "The flow run is over. The trial itself goes on; the run that takes over shows it."
    for run in await _task_runs(client, flow_run_id):
        if run.state is not None and not run.state.is_final():
            left: RunState[Any] = RunState(type=StateType.CRASHED, name="Crashed", message=message)
            await client.set_task_run_state(run.id, left, force=True)


async def _task_runs(client: PrefectClient, flow_run_id: UUID) -> list[TaskRun]:
    """Return the trials that a flow run shows."""
    wanted = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
    found: list[TaskRun] = []
    while True:
        page = await client.read_task_runs(flow_run_filter=wanted, limit=_PAGE, offset=len(found))
        found += page
        if len(page) < _PAGE:
            return [run for run in found if run.task_key == _KEY]


class TrialMirror:
    """Keeps one task run of a flow run for each trial of a sweep."""

    def __init__(self, client: PrefectClient, flow_run_id: UUID, home: Path, sweep: str) -> None:
        self._client = client
        self._flow_run_id = flow_run_id
        self._home = home
        self.sweep = sweep
        self._task: Task[..., None] = Task(_never_run, name="trial")
        self._task.task_key = _KEY
        self._ids: dict[str, UUID] | None = None
        self._shown: dict[str, tuple[StateType, str]] = {}

    async def show(self) -> None:
        """Bring the task runs to where the trials stand. Interrupted, it goes on where it was next time."""
        try:
            view = await asyncio.to_thread(look, self._home, self.sweep)
        except AirflowsError:
            return
        if self._ids is None:
            self._ids = await self._there()
        for picture in _pictures(view):
            if self._shown.get(picture.key) != (picture.kind, picture.state):
                await self._put(picture, self._ids)

    async def _there(self) -> dict[str, UUID]:
        """Return the task runs of an earlier attempt of this flow run."""
        runs = await _task_runs(self._client, self._flow_run_id)
        for run in runs:
            if run.state is not None:
                self._shown[run.dynamic_key] = (run.state.type, run.state.name or "")
        return {run.dynamic_key: run.id for run in runs}

    async def _put(self, picture: Picture, ids: dict[str, UUID]) -> None:
        state: RunState[Any] = RunState(type=picture.kind, name=picture.state, message=picture.message)
        there = ids.get(picture.key)
        if there is None:
            ids[picture.key] = await _patiently(lambda: self._create(picture, state))
        else:
            await _patiently(lambda: self._client.set_task_run_state(there, state, force=True))
        self._shown[picture.key] = (picture.kind, picture.state)

    async def _create(self, picture: Picture, state: RunState[Any]) -> UUID:
        made = await self._client.create_task_run(
            self._task, self._flow_run_id, picture.key, name=picture.name, state=state
        )
        return made.id


async def _patiently(call: Callable[[], Awaitable[_Answer]]) -> _Answer:
    """Return the answer of a call, asked again when the server is too busy: SQLite has one writer at a time.

    Both calls have the same effect twice as once: a task run has its key, and its state is set by force.
    """
    for pause in _PAUSES_S:
        try:
            return await call()
        except httpx.HTTPError:
            await asyncio.sleep(pause)
    return await call()


def _pictures(view: View) -> Iterable[Picture]:
    for trial, overrides in view.trials:
        picture = picture_of(trial, overrides)
        if picture is not None:
            yield picture

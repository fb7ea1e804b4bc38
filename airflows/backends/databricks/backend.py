"""The Databricks backend: jobs become serverless runs on AI Runtime. What it knows is in the workspace."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from airflows import ids
from airflows.backends.base import Capabilities, Job, Observation, Reach, RemoteRun
from airflows.backends.databricks import payload, states
from airflows.backends.databricks.client import Workspace, WorkspaceError, as_unavailable, load_sdk
from airflows.backends.databricks.finding import Finder, token_in
from airflows.backends.databricks.logs import LogReader
from airflows.backends.databricks.preparing import ImagePendingError, Preparation
from airflows.backends.databricks.remote import remote_run, story
from airflows.backends.databricks.script import SCRATCH
from airflows.backends.databricks.settings import DatabricksSettings
from airflows.backends.databricks.states import MlflowIds, Run
from airflows.backends.databricks.submitting import Submitter
from airflows.backends.databricks.volumes import newest_in_volume
from airflows.backends.databricks.watching import Watcher, number_of
from airflows.errors import AirflowsError, NotFoundError, SpecError, SubmitError
from airflows.ids import Token
from airflows.train import TrainConfig
from airflows.trial import Handle

_BATCH = 20
_SOON_S = 5.0
# How long a run that was just submitted may be missing from the list of runs.
_LAG_S = 60.0


class DatabricksBackend:
    """Runs trials on Databricks AI Runtime.

    Args:
        settings: as in sweep.yaml.
        home: `$AIRFLOWS_HOME`, which is also the root unless the settings name one.
        clock: seconds since the epoch, UTC.
        pause: sleeps for seconds.
    """

    name = "databricks"
    Settings = DatabricksSettings

    def __init__(
        self,
        settings: DatabricksSettings,
        home: Path,
        *,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        load_sdk()
        self._settings = settings
        self._root = (settings.root or home).expanduser().absolute()
        self._clock = clock
        self._pause = pause
        self._workspace = Workspace(settings.profile, settings.patience)
        self._preparation = Preparation(self._workspace, os.environ)
        self._watcher = Watcher(self._workspace, clock, self._resumed_from)
        self._finder = Finder(self._root, self._watcher.pages, self._creator)

    # What it is

    @property
    def root(self) -> Path:
        """The directory on this machine with launch files and code snapshots."""
        return self._root

    @property
    def capabilities(self) -> Capabilities:
        """What the engine needs to know."""
        return Capabilities(
            idempotent_submit=True,
            max_batch=_BATCH,
            queues_itself=False,
            visibility_lag_s=_LAG_S,
            makes_mlflow_run=True,
            slots=self._settings.slots,
            shares_host=False,
            uploads=True,
            retries_itself=self._settings.retries == "native",
        )

    @property
    def checkpoint_root(self) -> Path:
        """Where the nodes keep checkpoints: a volume, else the machine's own disk, which is lost with it."""
        volume = self._settings.volume
        return Path(SCRATCH if volume is None else f"{volume.rstrip('/')}/checkpoints")

    def path_hint(self, path: str) -> str:
        """Return what to do about a checkpoint directory that runs do not see; empty when they see it."""
        return payload.volume_hint(path)

    def newest_checkpoint(self, directory: str, pattern: str) -> tuple[str, int] | None:
        """Return (path, step) of the newest complete checkpoint in a volume; None elsewhere."""
        return newest_in_volume(self._workspace, directory, pattern)

    @property
    def tracking_uri(self) -> str:
        """The MLflow that runs log to: the workspace's."""
        return f"databricks://{self._settings.profile}" if self._settings.profile else "databricks"

    def experiment(self, config: TrainConfig) -> str:
        """Return the name of the MLflow experiment that the service uses for such a run.

        Raises:
            BackendUnavailableError: the workspace did not answer.
        """
        try:
            return payload.experiment_name(self._preparation.home, config)
        except WorkspaceError as exc:
            raise as_unavailable(exc) from None

    def reach(self) -> Reach:
        """Say whether runs can be submitted from here now; never raises."""
        try:
            # A person waits for this answer.
            me = Workspace(self._settings.profile, min(self._settings.patience, _SOON_S), _SOON_S).me()
        except WorkspaceError as exc:
            return Reach(False, str(as_unavailable(exc)))
        except AirflowsError as exc:
            return Reach(False, str(exc))
        notes = [f"{self._workspace.host} as {me.get('userName')}."]
        if self._settings.volume is None:
            notes.append("No `volume` is named: checkpoints are lost with the machine of each attempt.")
        return Reach(True, "", tuple(notes))

    def check(self, config: TrainConfig, base_dir: Path = Path()) -> tuple[str, ...]:
        """Return what people should know before runs of a train.yaml start here; nothing is written.

        Raises:
            SpecError: the workspace refuses such a run.
            BackendUnavailableError: it did not answer.
        """
        del base_dir
        notes = []
        try:
            self._preparation.check(config)
        except ImagePendingError as exc:
            notes.append(f"{exc} Trials wait for it.")
        except WorkspaceError as exc:
            if exc.is_refusal:
                message = f"Databricks refuses such a run: {exc.message}"
                raise SpecError(message) from None
            raise as_unavailable(exc) from None
        if config.max_retries and self._settings.retries == "airflows":
            notes.append(
                "Failed attempts are retried by airflows, each as a run of its own; the service gets "
                "max_retries 0 (`retries: native` leaves them to it)."
            )
        return tuple(notes)

    def room_for(self, config: TrainConfig) -> int:
        """Return how many runs go on at once: the service itself does not tell."""
        del config
        return self._settings.slots

    # Starting

    def submit(self, jobs: Sequence[Job]) -> Sequence[Handle | SubmitError]:
        """Submit each job with its token; the same token again is the same run."""
        answers = self._submitter.submit(jobs)
        self._watcher.hurry()
        return answers

    @cached_property
    def _submitter(self) -> Submitter:
        settings = self._settings
        return Submitter(
            self._workspace,
            self._preparation,
            os.environ,
            is_native=settings.retries == "native",
            launch=settings.launch,
        )

    def find(self, tokens: Sequence[Token]) -> Mapping[Token, Handle]:
        """Return the handles of the tokens that the workspace has runs of."""
        return self._finder.find(tokens)

    def _creator(self) -> str:
        try:
            return str(self._workspace.me().get("userName") or "")
        except WorkspaceError as exc:
            raise as_unavailable(exc) from None

    # Watching

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Observation]:
        """Observe the runs; between two looks, which become rare when nothing changes, the last is told."""
        return self._watcher.poll(handles)

    def wait(self, timeout_s: float) -> None:
        """Return after `timeout_s` seconds: the workspace tells nobody when something changes."""
        self._pause(timeout_s)

    def _resumed_from(self, run: Run) -> str:
        token = token_in(run)
        is_first = not token or ids.parse_token(token)[1] == 0
        tasks = states.attempts_of(run)
        if is_first and not (tasks and states.attempt_number(tasks[-1])):
            return ""
        handle = Handle(str(run.get("run_id")))
        return self._reader(handle, 0, run=run).resumed_from()

    # Ending

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Ask runs to end; those that have ended, or are not known, stay as they are."""
        self._workspace.each(self._cancel, handles)
        if handles:
            self._watcher.hurry()

    def _cancel(self, handle: Handle) -> None:
        try:
            self._workspace.post("/api/2.2/jobs/runs/cancel", {"run_id": number_of(handle)})
        except WorkspaceError as exc:
            if not exc.is_refusal or exc.status == 403:  # noqa: PLR2004
                raise as_unavailable(exc) from None

    # Logs

    def logs(self, handle: Handle, *, node: int, follow: bool, lines: int | None = None) -> Iterator[str]:
        """Yield the log of one node; with `follow` until the run has ended."""
        return self._reader(handle, node).lines(follow=follow, lines=lines)

    def logs_of(
        self, handle: Handle, *, node: int, follow: bool, lines: int | None, attempt: int | None
    ) -> Iterator[str]:
        """Yield the log of one of the attempts that the service itself made; of the newest for None."""
        return self._reader(handle, node, attempt).lines(follow=follow, lines=lines)

    def _reader(
        self, handle: Handle, node: int, attempt: int | None = None, *, run: Run | None = None
    ) -> LogReader:
        def look() -> Run | None:
            return run if run is not None else self._watcher.run(handle)

        return LogReader(self._workspace, look, number_of(handle), node, self._pause, attempt)

    # What else is there

    def remote_runs(self) -> Iterator[RemoteRun]:
        """Yield this user's AI Runtime runs that wait or run now, whatever submitted them.

        Raises:
            BackendUnavailableError: nobody was asked, so nothing is known.
        """
        me = self._creator()
        why: Mapping[int, MlflowIds] = {}
        for page in self._watcher.pages(active_only=True):
            mine = [r for r in page if r.get("creator_user_name") == me and states.ai_task(r) is not None]
            why = why or self._watcher.waiting_ids(mine)
            for run in mine:
                yield remote_run(run, why.get(states.task_id(run), MlflowIds()))

    def describe(self, handle: Handle) -> dict[str, Any]:
        """Return what the workspace knows of a run, as `databricks air get` shows it.

        Raises:
            BackendUnavailableError: it did not answer.
            NotFoundError: it knows no such run.
        """
        run = self._watcher.run(handle) if handle.isdigit() else None
        if run is None:
            message = f"the workspace knows no run {handle}."
            raise NotFoundError(message, hint="`airflows list --remote` shows those that wait or run.")
        task = states.task_id(run)
        found = self._watcher.mlflow_ids(task) if task else None
        self._creator()
        return story(run, found, self._workspace.host, self._workspace.workspace_id, self._clock())

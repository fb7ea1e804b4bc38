"""The fake workspace as tests and programs use it."""

from __future__ import annotations

import posixpath
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from airflows.testing.waiting import until
from airflows.testing.workspace.account_api import AccountApi
from airflows.testing.workspace.artifacts_api import ArtifactsApi
from airflows.testing.workspace.clock import Clock
from airflows.testing.workspace.control_api import ControlApi
from airflows.testing.workspace.crowd import add_crowd
from airflows.testing.workspace.exchange import invalid
from airflows.testing.workspace.faults import Fault
from airflows.testing.workspace.files_api import DbfsApi, FilesApi
from airflows.testing.workspace.jobs_api import JobsApi
from airflows.testing.workspace.mlflow_api import MlflowApi
from airflows.testing.workspace.models_api import ModelsApi
from airflows.testing.workspace.plans import Outcome, RunPlan
from airflows.testing.workspace.recording import Recorder
from airflows.testing.workspace.routing import Router
from airflows.testing.workspace.runs import Run
from airflows.testing.workspace.secrets_api import SecretsApi
from airflows.testing.workspace.server import WorkspaceServer
from airflows.testing.workspace.settings import Settings
from airflows.testing.workspace.storage import SignedStorage
from airflows.testing.workspace.ticker import Ticker
from airflows.testing.workspace.training_api import ImagesApi, TrainingApi
from airflows.testing.workspace.world import World

_Found = TypeVar("_Found")
_GLANCE_S = 0.02
_APIS: tuple[Callable[[World], Any], ...] = (
    JobsApi, TrainingApi, ImagesApi, AccountApi, SecretsApi, FilesApi, DbfsApi, MlflowApi, ControlApi,
)  # fmt: skip


class FakeWorkspace:
    """A Databricks workspace with AI Runtime, served on the loopback interface by a thread.

    ```python
    with FakeWorkspace() as workspace:
        client = WorkspaceClient(host=workspace.host, token=workspace.token)
        ...
        workspace.advance(60)
    ```
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        directory: Path | None = None,
        port: int = 0,
        **changes: Any,
    ) -> None:
        """Make one; `changes` are settings by name, `directory` keeps its files."""
        given = settings.model_dump() if settings else {}
        self.settings = Settings.model_validate({**given, **changes})
        self._temporary = None if directory else tempfile.mkdtemp(prefix="fake-workspace-")
        self.directory = directory or Path(str(self._temporary))
        self.world = World.make(self.settings, self.directory)
        router = self.router = Router()
        storage = SignedStorage(self.world)
        storage.add_to(router)
        for api in (*(api(self.world) for api in _APIS), ArtifactsApi(self.world, storage)):
            api.add_to(router)
        ModelsApi(self.world, storage).add_to(router)
        try:
            self._server = WorkspaceServer(("127.0.0.1", port), self.world, router)
        except OSError:
            self._remove_files()
            raise
        self.world.host = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._ticker = Ticker(self.world)
        self._pause = threading.Event()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        """Start to serve."""
        if self.settings.execute:
            from airflows.testing.workspace.nodes import CommandNodes  # noqa: PLC0415 - only for this

            self.world.jobs.nodes = CommandNodes(self.world)
        add_crowd(self.world, self.settings.crowd)
        self._ticker.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop: end the commands, the connections, the files."""
        self._ticker.stop()
        if self.world.jobs.nodes is not None:
            self.world.jobs.nodes.close()
        self._server.close_all()
        self._thread.join()
        self.world.mlflow.close()
        self._remove_files()
        if self.recorder.broken and value is None:
            message = f"the fake workspace broke: {self.recorder.broken}"
            raise RuntimeError(message)

    def _remove_files(self) -> None:
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)

    @property
    def host(self) -> str:
        """Its address, such as `http://127.0.0.1:40001`."""
        return self.world.host

    @property
    def token(self) -> str:
        """A token of the first user."""
        return self.settings.users[0].tokens[0]

    @property
    def user(self) -> str:
        """The first user's name."""
        return self.settings.users[0].name

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which the SDK finds the workspace."""
        return {"DATABRICKS_HOST": self.host, "DATABRICKS_TOKEN": self.token}

    @property
    def clock(self) -> Clock:
        """Its time."""
        return self.world.clock

    @property
    def recorder(self) -> Recorder:
        """What was asked of it."""
        return self.world.recorder

    @property
    def runs(self) -> list[Run]:
        """All runs, in the order of submission."""
        with self.world.lock:
            self.world.timeline.settle()
            return list(self.world.jobs.runs.values())

    def advance(self, seconds: float) -> None:
        """Move the clock on, and let all that is due by then happen."""
        self.world.advance(seconds)

    def wait_for(self, is_so: Callable[[], _Found], what: str, patience_s: float = 120.0) -> _Found:
        """Return what is asked for again and again, once it is something: for real commands.

        Raises:
            TimeoutError: it never is.
        """
        return until(is_so, what, patience_s=patience_s, pause=self._pause.wait, pause_s=_GLANCE_S)

    def outcome(self, plan: RunPlan | Mapping[str, Any], **rule: Any) -> None:
        """Say what runs do that fit a rule; what is said last counts.

        Args:
            plan: a plan, or its fields.
            rule: fields of `Outcome`, such as `token="*-0003-a0"`.
        """
        chosen = plan if isinstance(plan, RunPlan) else RunPlan.model_validate(plan)
        with self.world.lock:
            self.world.jobs.plans.add(Outcome.model_validate({**rule, "plan": chosen}))

    def fault(self, kind: str = "", **fields: Any) -> None:
        """Let something go wrong: a known kind, fields of `Fault`, or both."""
        self.world.faults.add(Fault.model_validate({"kind": kind, **fields}))

    def mend(self) -> None:
        """Let nothing go wrong any more."""
        self.world.faults.clear()

    def set_capacity(self, **gpus: int) -> None:
        """Set how many GPUs of each type there are; a type that is left out is endless."""
        with self.world.lock:
            self.world.jobs.set_capacity(gpus)

    def put_file(self, path: str, content: bytes) -> None:
        """Write a file of the workspace or a volume, past the API; parents are made."""
        self.world.files.mkdirs(posixpath.dirname(path))
        conflict = invalid(f"{path} is a directory.")
        self.world.files.write(path, content, overwrite=True, conflict=conflict)

    def get_file(self, path: str) -> bytes | None:
        """Return a file of the workspace or a volume, past the API; None when it is not there."""
        return self.world.files.read(path)

    def end(self, run_id: int, result: str = "SUCCESS", message: str = "") -> None:
        """End the newest attempt of a run."""
        with self.world.lock:
            run = self.world.jobs.runs[run_id]
            self.world.jobs.end(run, run.last, result, message, self.world.clock.now())
            self.world.timeline.settle()

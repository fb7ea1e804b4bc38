"""What all parts of the fake workspace share."""

from __future__ import annotations

import secrets as randomness
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from airflows.testing.workspace.clock import Clock, Timeline
from airflows.testing.workspace.exchange import ApiError, Request, User
from airflows.testing.workspace.faults import Faults
from airflows.testing.workspace.files import FileStore
from airflows.testing.workspace.jobs import Jobs
from airflows.testing.workspace.recording import Recorder
from airflows.testing.workspace.settings import Settings
from airflows.testing.workspace.tracking import MlflowStore


@dataclass(slots=True)
class World:
    """One workspace.

    Attributes:
        settings: of it.
        directory: holds its files.
        clock: its time.
        timeline: what is to happen.
        lock: held by whoever looks at runs or changes them.
        files: workspace files, volumes, DBFS.
        mlflow: the MLflow store.
        jobs: the runs.
        faults: what goes wrong.
        recorder: what was asked.
        host: its address.
        tokens: who may come in, by token.
        expired: tokens that were good once.
        secrets: scope to key to value.
        key: signs addresses.
        wake: called when the next appointment may have changed.
    """

    settings: Settings
    directory: Path
    clock: Clock
    timeline: Timeline
    files: FileStore
    mlflow: MlflowStore
    jobs: Jobs
    faults: Faults
    recorder: Recorder = field(default_factory=Recorder)
    lock: threading.RLock = field(default_factory=threading.RLock)
    host: str = ""
    tokens: dict[str, User] = field(default_factory=dict)
    expired: set[str] = field(default_factory=set)
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    key: bytes = field(default_factory=lambda: randomness.token_bytes(16))
    wake: Callable[[], None] = lambda: None

    @classmethod
    def make(cls, settings: Settings, directory: Path) -> World:
        """Return a workspace in which nothing has happened yet."""
        clock = Clock(settings.clock_start, settings.clock_scale)
        timeline = Timeline(clock)
        volumes = None if settings.volumes is None else frozenset(settings.volumes)
        files = FileStore(directory / "files", volumes)
        mlflow = MlflowStore(directory)
        faults = Faults(settings.seed)
        for fault in settings.faults:
            faults.add(fault)
        jobs = Jobs(settings, timeline, directory / "logs", files, mlflow)
        world = cls(settings, directory, clock, timeline, files, mlflow, jobs, faults)
        for account in settings.users:
            for token in account.tokens:
                world.tokens[token] = User(account.name, account.id)
            files.mkdirs(f"/Workspace/Users/{account.name}")
        world.secrets |= {scope: dict(keys) for scope, keys in settings.secrets.items()}
        world.expired |= set(settings.expired_tokens)
        return world

    def user(self, request: Request) -> User:
        """Return whose token a request carries.

        Raises:
            ApiError: nobody's.
        """
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            message = "Credential was not sent or was of an unsupported type for this API."
            raise ApiError(401, "UNAUTHENTICATED", message)
        user = self.tokens.get(token)
        if token in self.expired:
            message = "The access token has expired."
            raise ApiError(401, "UNAUTHENTICATED", message)
        if user is None:
            message = "Invalid access token."
            raise ApiError(401, "UNAUTHENTICATED", message)
        return user

    def settle(self) -> None:
        """Let all that is due happen."""
        with self.lock:
            self.timeline.settle()

    def advance(self, seconds: float) -> None:
        """Move the clock on, and let all that is due by then happen."""
        with self.lock:
            self.clock.advance(seconds)
            self.timeline.settle()
        self.wake()

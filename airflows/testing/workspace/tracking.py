"""MLflow behind the fake workspace: an SQLite file with MLflow's tables.

What clients ask goes through MLflow's own store, which takes some 10 ms a call, and seconds to import. What
the service itself does to a run (make it, end it, log scripted metrics) are single rows, written directly.
"""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import stat
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from airflows.testing.workspace.runs import Run
from airflows.tracking.embedded import prepare
from airflows.tracking.loading import load
from airflows.tracking.uris import sqlite_uri

ARTIFACTS = "dbfs:/databricks/mlflow-tracking"
_STORE = "mlflow.store.tracking.sqlalchemy_store"
_making = threading.Lock()

_EXPERIMENT = (
    "SELECT COALESCE((SELECT experiment_id FROM experiments WHERE name = :name),"
    " (SELECT MAX(experiment_id) + 1 FROM experiments))"
)
_NEW_EXPERIMENT = (
    "INSERT OR IGNORE INTO experiments"
    " (experiment_id, name, artifact_location, lifecycle_stage, creation_time, last_update_time)"
    " VALUES (:number, :name, :place, 'active', :now, :now)"
)
_NEW_RUN = (
    "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status,"
    " start_time, source_version, lifecycle_stage, artifact_uri, experiment_id)"
    " VALUES (:id, :name, 'UNKNOWN', '', '', :user, 'RUNNING', :start, '', 'active', :place, :experiment)"
)
_NEW_TAG = "INSERT INTO tags (key, value, run_uuid) VALUES (:key, :value, :id)"
_NEW_METRIC = (
    "INSERT OR IGNORE INTO metrics (key, value, timestamp, step, is_nan, run_uuid)"
    " VALUES (:key, :value, :at, :step, :nan, :id)"
)
_LATEST_METRIC = (
    "INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid)"
    " VALUES (:key, :value, :at, :step, :nan, :id) ON CONFLICT (key, run_uuid) DO UPDATE"
    " SET value = :value, timestamp = :at, step = :step, is_nan = :nan"
    " WHERE (step, timestamp) <= (:step, :at)"
)
_MOVE_MODEL = "UPDATE logged_models SET artifact_location = :place WHERE model_id = :id"
_END_RUN = "UPDATE runs SET status = :status, end_time = :end WHERE run_uuid = :id AND status = 'RUNNING'"


@cache
def _directory() -> Path:
    """Return a directory of this user that outlives this process."""
    path = Path(tempfile.gettempdir(), f"airflows-fake-workspace-{os.getuid()}")
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022:
        return path
    return Path(tempfile.mkdtemp(prefix="airflows-fake-workspace-"))


def _template() -> Path:
    """Return an empty store with its tables, made once per MLflow: its migrations take seconds."""
    path = _directory() / f"mlflow-{version('mlflow-skinny')}.db"
    with _making:
        prepare(path, _directory() / "artifacts", wal=False, ours=True)
    return path


class MlflowStore:
    """The store, made when it is first asked; until then what the service writes is kept in memory.

    Attributes:
        path: the SQLite file.
        lock: held by whoever reads or writes.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / "mlflow.db"
        self.lock = threading.RLock()
        self._opened: Any = None
        self._connection: sqlite3.Connection | None = None
        self._unwritten: list[tuple[str, Mapping[str, Any]]] = []
        self._experiments: dict[str, int] = {}
        self._is_warm = False

    @property
    def store(self) -> Any:
        """MLflow's SqlAlchemyStore."""
        with self.lock:
            if self._opened is None:
                self._open()
                self._opened = load(_STORE).SqlAlchemyStore(sqlite_uri(self.path), ARTIFACTS)
            return self._opened

    @property
    def exceptions(self) -> Any:
        """MLflow's module of exceptions."""
        return load("mlflow.exceptions")

    def warm(self) -> None:
        """Begin to get ready in the background: somebody is about to ask."""
        if not self._is_warm:
            self._is_warm = True
            threading.Thread(target=_template, daemon=True).start()

    def close(self) -> None:
        """Let go of the file."""
        with self.lock:
            if self._opened is not None:
                self._opened._dispose_engine()  # noqa: SLF001 - it has no other way
            if self._connection is not None:
                self._connection.close()

    def start_run(self, run: Run, moment: float) -> tuple[str, str]:
        """Make the MLflow run of an attempt; return the ids of its experiment and of itself."""
        task = run.ai_task or {}
        name = experiment_path(task.get("mlflow_experiment_directory"), run.user, task["experiment"])
        shown, run_id = task.get("mlflow_run") or task["experiment"], uuid.uuid4().hex
        tags = {
            "mlflow.runName": shown,
            "mlflow.user": run.user,
            "mlflow.source.type": "JOB",
            "mlflow.databricks.jobID": str(run.job_id),
            "mlflow.databricks.jobRunID": str(run.id),
        }
        with self.lock:
            experiment = self._experiment(name, _ms(moment))
            place = f"{ARTIFACTS}/{experiment}/{run_id}/artifacts"
            row = {"id": run_id, "name": shown, "user": run.user, "start": _ms(moment), "place": place}
            self._write((_NEW_RUN, {**row, "experiment": experiment}))
            self._write(*((_NEW_TAG, {"id": run_id, "key": key, "value": tags[key]}) for key in tags))
        return str(experiment), run_id

    def log(self, run_id: str, key: str, value: float, step: int, moment: float) -> None:
        """Log one value of a metric."""
        is_nan = math.isnan(value)
        # As MLflow writes what SQL has no number for.
        stored = 0.0 if is_nan else max(-sys.float_info.max, min(sys.float_info.max, value))
        row = {"id": run_id, "key": key, "value": stored, "at": _ms(moment), "step": step, "nan": is_nan}
        with self.lock:
            self._write((_NEW_METRIC, row), (_LATEST_METRIC, row))

    def end_run(self, run_id: str, status: str, moment: float) -> None:
        """End the MLflow run, unless the command did."""
        with self.lock:
            self._write((_END_RUN, {"id": run_id, "status": status, "end": _ms(moment)}))

    def move_model(self, model_id: str, place: str) -> None:
        """Say where the files of a logged model are."""
        with self.lock:
            self._write((_MOVE_MODEL, {"id": model_id, "place": place}))

    def _experiment(self, name: str, now: int) -> int:
        if name in self._experiments:
            return self._experiments[name]
        if self._connection is None:
            number = len(self._experiments) + 1
        else:
            number = self._connection.execute(_EXPERIMENT, {"name": name}).fetchone()[0]
        place = f"{ARTIFACTS}/{number}"
        self._write((_NEW_EXPERIMENT, {"number": number, "name": name, "now": now, "place": place}))
        self._experiments[name] = number
        return number

    def _write(self, *rows: tuple[str, Mapping[str, Any]]) -> None:
        if self._connection is None:
            self._unwritten.extend(rows)
            return
        with self._connection as connection:
            for statement, values in rows:
                connection.execute(statement, values)

    def _open(self) -> None:
        shutil.copyfile(_template(), self.path)
        self._connection = sqlite3.connect(self.path, timeout=30, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=OFF")
        self._write(*self._unwritten)
        self._unwritten.clear()


def experiment_path(directory: str | None, user: str, name: str) -> str:
    """Return an experiment's path, which is its name: below a directory, else the user's home."""
    home = (directory or f"/Users/{user}").removeprefix("/Workspace").rstrip("/")
    return f"{home}/{name}"


def _ms(moment: float) -> int:
    return round(moment * 1000)

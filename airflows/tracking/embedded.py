"""Making an MLflow store in an SQLite file: all at once or not at all, whoever comes first.

The driver does this before any job starts, so that jobs find a finished file. Imports MLflow: loaded late.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from mlflow.store.db import utils as db
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from sqlalchemy import create_engine, event

from airflows.tracking.trouble import TrackingRefusedError, asking
from airflows.tracking.uris import sqlite_uri

_UPGRADE_TIMEOUT_S = 600


def prepare(path: Path, artifacts: Path, *, wal: bool, ours: bool) -> None:
    """See to it that the file is there with the schema of this MLflow.

    Args:
        path: the SQLite file.
        artifacts: directory of the artifacts of experiments made without a place of their own.
        wal: let readers and one writer work at once; not for network file systems.
        ours: the embedded store, which is also migrated; another file is left as it is.

    Raises:
        TrackingUnavailableError: it cannot be written.
        TrackingRefusedError: it has another MLflow's schema.
    """
    uri = sqlite_uri(path)
    with asking(uri):
        if not _has_tables(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _alone(path):
                if not _has_tables(path):
                    _create(path, artifacts)
        found = _revision(uri)
        if found != _head():
            _migrate(path, found, ours=ours)
        if ours:
            _set_journal(path, "WAL" if wal else "DELETE")


def _has_tables(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the file's lock; it goes with the process, whatever happens to it."""
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _create(path: Path, artifacts: Path) -> None:
    """Make the tables aside and rename, so that a crash amid MLflow's migrations leaves no half a store."""
    made = path.with_name(f"{path.name}.new")
    for suffix in ("", "-journal", "-wal", "-shm"):
        made.with_name(made.name + suffix).unlink(missing_ok=True)
    uri = sqlite_uri(made)
    engine = SqlAlchemyStore._get_or_create_engine(uri)  # noqa: SLF001 - before the store uses it
    event.listen(engine, "connect", _on_connect_in_haste)
    engine.dispose()
    SqlAlchemyStore(uri, str(artifacts))  # type: ignore[no-untyped-call]
    engine.dispose()
    SqlAlchemyStore._engine_map.pop(uri, None)  # noqa: SLF001 - MLflow keeps engines for ever otherwise
    with made.open("rb+") as file:
        os.fsync(file.fileno())
    made.replace(path)


def _on_connect_in_haste(connection: Any, _record: Any) -> None:
    # Sixty migrations, each waiting for the disk several times, in a file that nobody has yet.
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA journal_mode=MEMORY")


def _head() -> str | None:
    # Without an address the configuration only names the directory of the migrations.
    config = db._get_alembic_config(db_url="")  # type: ignore[no-untyped-call]  # noqa: SLF001
    return ScriptDirectory.from_config(config).get_current_head()


def _revision(uri: str) -> str | None:
    engine = create_engine(uri)
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()


def _migrate(path: Path, found: str | None, *, ours: bool) -> None:
    uri = sqlite_uri(path)
    if not _is_known(found):
        message = f"the MLflow store {path} was written by a newer MLflow than the one installed here."
        raise TrackingRefusedError(message, hint="Install that MLflow, or choose another tracking.uri.")
    if not ours:
        message = f"the MLflow store {path} has the schema of an older MLflow."
        raise TrackingRefusedError(message, hint=f"Make a copy, then run: mlflow db upgrade {uri}")
    with _alone(path):
        if _revision(uri) == _head():
            return
        _back_up(path, path.with_name(f"{path.name}.{found}"))
        # The command, not its function: it is MLflow's public way and keeps its log to itself.
        done = subprocess.run(
            [sys.executable, "-m", "mlflow", "db", "upgrade", uri],
            check=False,
            capture_output=True,
            text=True,
            timeout=_UPGRADE_TIMEOUT_S,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
        )
        if done.returncode:
            last = next(
                (line for line in reversed(done.stderr.splitlines()) if line.strip()), "no reason given"
            )
            message = f"the MLflow store {path} could not be migrated: {last}"
            raise TrackingRefusedError(message, hint=f"A copy from before is {path.name}.{found} beside it.")


def _is_known(revision: str | None) -> bool:
    config = db._get_alembic_config(db_url="")  # type: ignore[no-untyped-call]  # noqa: SLF001
    scripts = ScriptDirectory.from_config(config)
    return revision in {script.revision for script in scripts.walk_revisions()}


def _back_up(path: Path, copy: Path) -> None:
    with (
        contextlib.closing(sqlite3.connect(path)) as source,
        contextlib.closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)


def _set_journal(path: Path, mode: str) -> None:
    """Set the journal mode, which the file keeps."""
    with contextlib.closing(sqlite3.connect(path, timeout=10)) as connection:
        (now,) = connection.execute("PRAGMA journal_mode").fetchone()
        if now.upper() != mode:
            connection.execute(f"PRAGMA journal_mode={mode}")

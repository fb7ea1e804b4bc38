"""Seeing to an MLflow store in an SQLite file: made all at once or not at all, whoever comes first.

The driver does this before any job starts, so that jobs find a finished file. Of an MLflow whose tables lie
beside this module a store is made in milliseconds. What MLflow itself must do, a process of its own does:
with all its packages it holds 220 MB and takes seconds to import.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from airflows.errors import MissingExtraError, TrackingUnavailableError
from airflows.tracking.loading import quiet_environment
from airflows.tracking.trouble import TrackingRefusedError, asking, last_words, sqlite_hint
from airflows.tracking.uris import sqlite_uri

_SCHEMAS = Path(__file__).parent / "schemas"
_INSERT_EXPERIMENT = """
INSERT INTO experiments
(experiment_id, name, artifact_location, lifecycle_stage, creation_time, last_update_time, workspace)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_UPGRADE_TIMEOUT_S = 600
_REVISION = re.compile(r"^(revision|down_revision)(?:\s*:[^=]*)?\s*=\s*(.+)$", re.MULTILINE)


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
        found = _revision(path)
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
    tables = _SCHEMAS / f"{_head()}.sql"
    if tables.is_file():
        _create_from(tables, path, artifacts)
        return
    done = _mlflow("airflows.tracking.making", str(path), str(artifacts))
    if done.returncode:
        message = f"the MLflow store {path} could not be made: {last_words(done.stderr)}"
        raise TrackingUnavailableError(message, hint=sqlite_hint(done.stderr))


def _create_from(tables: Path, path: Path, artifacts: Path) -> None:
    """Make the store aside and rename, so that a crash leaves no half of one."""
    made = unmade(path)
    with contextlib.closing(sqlite3.connect(made)) as store:
        store.execute("PRAGMA synchronous=OFF")
        store.executescript(tables.read_text("utf-8"))
        now = int(time.time() * 1000)
        default = (0, "Default", f"{artifacts}/0", "active", now, now, "default")
        store.execute(_INSERT_EXPERIMENT, default)
        store.commit()
    put_in_place(made, path)


def unmade(path: Path) -> Path:
    """Return where a store is made before it is moved, without what a crash left there."""
    made = path.with_name(f"{path.name}.new")
    for suffix in ("", "-journal", "-wal", "-shm"):
        made.with_name(made.name + suffix).unlink(missing_ok=True)
    return made


def put_in_place(made: Path, path: Path) -> None:
    """Move a finished store to where it is looked for, on the disk before it has the name."""
    with made.open("rb+") as file:
        os.fsync(file.fileno())
    made.replace(path)


def _mlflow(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module in which MLflow is imported."""
    return subprocess.run(
        # Without the working directory in the path, where a file may have the name of a package.
        [sys.executable, "-P", "-W", "ignore", "-m", module, *arguments],
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_UPGRADE_TIMEOUT_S,
        env=quiet_environment(),
    )


@cache
def _revisions() -> Mapping[str, tuple[str, ...]]:
    """Return the revisions of MLflow's schema, each with those before it, read off its migrations' files."""
    found = find_spec("mlflow")
    if found is None or not found.submodule_search_locations:
        message = "MLflow is not installed."
        raise MissingExtraError(message, hint="Run: pip install mlflow-skinny")
    files = Path(found.submodule_search_locations[0], "store", "db_migrations", "versions").glob("*.py")
    revisions: dict[str, tuple[str, ...]] = {}
    for file in files:
        named = {name: ast.literal_eval(value) for name, value in _REVISION.findall(file.read_text("utf-8"))}
        if "revision" not in named:
            continue
        before = named.get("down_revision")
        revisions[named["revision"]] = before if isinstance(before, tuple) else (before,) if before else ()
    return revisions


def _head() -> str:
    revisions = _revisions()
    (head,) = revisions.keys() - {before for all_before in revisions.values() for before in all_before}
    return head


def _revision(path: Path) -> str | None:
    with contextlib.closing(sqlite3.connect(path, timeout=20)) as connection:
        try:
            found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.OperationalError as exc:
            if "no such table" in str(exc):
                return None
            raise
    return found[0] if found else None


def _migrate(path: Path, found: str | None, *, ours: bool) -> None:
    uri = sqlite_uri(path)
    if found not in _revisions():
        message = f"the MLflow store {path} was written by a newer MLflow than the one installed here."
        raise TrackingRefusedError(message, hint="Install that MLflow, or choose another tracking.uri.")
    if not ours:
        message = f"the MLflow store {path} has the schema of an older MLflow."
        raise TrackingRefusedError(message, hint=f"Make a copy, then run: mlflow db upgrade {uri}")
    with _alone(path):
        if _revision(path) == _head():
            return
        _back_up(path, path.with_name(f"{path.name}.{found}"))
        # MLflow's public way.
        done = _mlflow("mlflow", "db", "upgrade", uri)
        if done.returncode:
            message = f"the MLflow store {path} could not be migrated: {last_words(done.stderr)}"
            raise TrackingRefusedError(message, hint=f"A copy from before is {path.name}.{found} beside it.")


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

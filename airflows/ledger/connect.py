"""Opening a ledger: SQLite by default, PostgreSQL by URL; pragmas, schema, versions, clear errors."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from airflows.errors import LedgerError, MissingExtraError, SchemaTooNewError
from airflows.ledger import schema

BUSY_TIMEOUT_S = 30.0
_NETWORK_FILE_SYSTEMS = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "lustre",
        "gpfs",
        "beegfs",
        "fuse.sshfs",
        "9p",
        "ceph",
        "afs",
        "glusterfs",
    }
)


def sqlite_url(path: Path) -> str:
    """Return the URL of a SQLite file."""
    return f"sqlite:///{path}"


def shown(url: str) -> str:
    """Return the URL without its password, for people."""
    return make_url(url).render_as_string(hide_password=True)


def connect(url: str, *, create: bool = True, busy_timeout_s: float = BUSY_TIMEOUT_S) -> sa.Engine:
    """Return an engine on a ledger whose schema is there and not newer than this program.

    Args:
        url: an SQLAlchemy URL, `sqlite:///path` or `postgresql+psycopg://…`.
        create: make the file and its tables when they are missing.
        busy_timeout_s: how long a statement waits for another writer.

    Raises:
        SchemaTooNewError: a newer airflows wrote it.
        LedgerError: it cannot be opened, with what to do.
    """
    try:
        engine = _engine(url, busy_timeout_s)
    except (sa.exc.ArgumentError, ModuleNotFoundError) as exc:
        raise _bad_url(url, exc) from exc
    with translated(engine):
        _prepare(engine, create=create)
    return engine


def _bad_url(url: str, exc: Exception) -> Exception:
    if isinstance(exc, ModuleNotFoundError):
        return MissingExtraError(
            f"the ledger's URL needs the package {exc.name}, which is not installed.",
            hint="Run: pip install 'airflows[postgres]'",
        )
    kind = url.partition(":")[0]
    return LedgerError(
        f"the ledger's URL ({kind}:…) is not a database URL.",
        hint="Use sqlite:///PATH or postgresql://USER@HOST/DATABASE.",
    )


def _engine(url: str, busy_timeout_s: float) -> sa.Engine:
    parsed = make_url(url)
    if parsed.drivername in {"postgres", "postgresql"}:
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() != "sqlite":
        return sa.create_engine(parsed, pool_size=3, max_overflow=2, pool_pre_ping=True)
    engine = sa.create_engine(parsed, connect_args={"timeout": busy_timeout_s, "check_same_thread": False})
    path = Path(parsed.database or "")
    network = is_on_network(path)

    @sa.event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute(f"PRAGMA journal_mode={'DELETE' if network else 'WAL'}")
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def on_begin(connection: sa.Connection) -> None:
        reading = connection.get_execution_options().get("reading", False)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine


def is_on_network(path: Path) -> bool:
    """Whether a path lies on a network file system, where SQLite's WAL does not work."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    absolute = os.path.abspath(path)  # noqa: PTH100 - a missing file must not be resolved
    best, kind = "", ""
    for line in mounts:
        fields = line.split()
        where = fields[1].replace("\\040", " ")
        inside = absolute == where or absolute.startswith(where.rstrip("/") + "/")
        if inside and len(where) >= len(best):
            best, kind = where, fields[2]
    return kind in _NETWORK_FILE_SYSTEMS


def _prepare(engine: sa.Engine, *, create: bool) -> None:
    found = _version(engine)
    if found is None:
        if not create:
            message = f"there is no ledger at {shown(str(engine.url))}."
            raise LedgerError(message, hint="Start a sweep first: airflows sweep sweep.yaml")
        _create(engine)
        found = _version(engine)
    if found is not None and found > schema.VERSION:
        message = (
            f"the ledger {shown(str(engine.url))} has schema {found}; "
            f"this airflows knows schemas up to {schema.VERSION}."
        )
        raise SchemaTooNewError(message, hint="Use the airflows that wrote it, or a newer one.")


def _version(engine: sa.Engine) -> int | None:
    if not sa.inspect(engine).has_table("meta"):
        return None
    with engine.connect().execution_options(reading=True) as connection:
        row = connection.execute(sa.select(schema.meta.c.value).where(schema.meta.c.key == "schema")).first()
    return None if row is None else int(row.value)


def _create(engine: sa.Engine) -> None:
    # Two first starts at once: SQLite's BEGIN IMMEDIATE and PostgreSQL's advisory lock let one go first.
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7261944)")
        schema.metadata.create_all(connection)
        there = connection.execute(
            sa.select(schema.meta.c.value).where(schema.meta.c.key == "schema")
        ).first()
        if there is None:
            connection.execute(schema.meta.insert().values(key="schema", value=str(schema.VERSION)))


@contextlib.contextmanager
def translated(engine: sa.Engine) -> Iterator[None]:
    """Turn the database's exceptions into one clear paragraph, without the statement or its values."""
    try:
        yield
    except sa.exc.DBAPIError as exc:
        raise _explain(engine, exc.orig) from None
    except sa.exc.SQLAlchemyError as exc:
        message = f"the ledger {shown(str(engine.url))} failed: {type(exc).__name__}."
        raise LedgerError(message) from exc
    except OSError as exc:
        message = f"the ledger {shown(str(engine.url))} cannot be used: {exc.strerror or exc}."
        raise LedgerError(message, hint="Check the directory and its permissions.") from exc


_SQLITE_HINTS = {
    "SQLITE_BUSY": "Another process keeps it locked; see who has it open, then try again.",
    "SQLITE_READONLY": "It is read-only for you; set AIRFLOWS_HOME to a directory you can write.",
    "SQLITE_FULL": "The disk is full; make room, then start the same command again: nothing is lost.",
    "SQLITE_IOERR": "The disk reported an error or is full; nothing was half-written.",
    "SQLITE_CANTOPEN": "Check that the directory exists and that you may write there, or set AIRFLOWS_HOME.",
    "SQLITE_NOTADB": "The file is not a database; move it away or set AIRFLOWS_HOME to another directory.",
    "SQLITE_CORRUPT": "The file is damaged; restore a copy, or set AIRFLOWS_HOME to another directory.",
}


def _explain(engine: sa.Engine, cause: BaseException | None) -> LedgerError:
    where = shown(str(engine.url))
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorname", "")
        hint = next((text for name, text in _SQLITE_HINTS.items() if code.startswith(name)), None)
        return LedgerError(f"the ledger {where} cannot be used: {cause}.", hint=hint)
    first_line = str(cause).strip().splitlines()[0] if str(cause).strip() else "no answer"
    return LedgerError(
        f"the ledger {where} cannot be used: {first_line}",
        hint="Check that the database server is up and that you may use it.",
    )

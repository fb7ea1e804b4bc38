"""Opening a ledger: SQLite by default, PostgreSQL by URL; pragmas, schema, versions, clear errors."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from airflows.errors import LedgerError, MissingExtraError, SchemaTooNewError
from airflows.file_system import is_on_network
from airflows.ledger import schema
from airflows.ledger.upgrading import upgrade

BUSY_TIMEOUT_S = 30.0


def sqlite_url(path: Path) -> str:
    """Return the URL of a SQLite file."""
    return f"sqlite:///{path}"


def shown(url: str) -> str:
    """Return the URL without its password, for people."""
    parsed = make_url(url)
    # Any other option of a connection may be a secret too, such as `?password=` or `?sslpassword=`.
    host = {"host": parsed.query["host"]} if "host" in parsed.query else {}
    return parsed.set(query=host).render_as_string(hide_password=True)


def connect(url: str, *, create: bool = True, busy_timeout_s: float = BUSY_TIMEOUT_S) -> sa.Engine:
    """Return an engine on a ledger; an older schema is brought up to this program's.

    Args:
        url: an SQLAlchemy URL, `sqlite:///path` or `postgresql+psycopg://…`.
        create: make the file and its tables when they are missing.
        busy_timeout_s: how long a statement waits for another writer.

    Raises:
        SchemaTooNewError: a newer airflows wrote it.
        LedgerError: it cannot be opened, with what to do.
    """
    parsed = _parsed(url)
    if parsed.get_backend_name() == "sqlite":
        engine = _sqlite(parsed, busy_timeout_s)
        if not create and not _path(parsed).exists():
            raise _no_ledger(engine)
    else:
        engine = _postgres(parsed)
    try:
        with translated(engine):
            _prepare(engine, create=create)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _parsed(url: str) -> sa.URL:
    try:
        parsed = make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        parsed = None
    if parsed is not None and parsed.get_backend_name() in {"postgres", "postgresql"}:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed is not None and parsed.drivername == "sqlite" and parsed.database:
        return parsed
    kind = re.match(r"[a-z0-9+]+:", url)
    message = f"the ledger's URL ({kind[0] if kind else ''}…) is not that of a database it can be in."
    raise LedgerError(message, hint="Give it as sqlite:///PATH or postgresql://USER@HOST/DATABASE.")


def _postgres(url: sa.URL) -> sa.Engine:
    try:
        return sa.create_engine(url, pool_size=3, max_overflow=2, pool_pre_ping=True)
    except ImportError as exc:
        # psycopg without its libpq raises a plain ImportError.
        message = f"the ledger's URL needs the package {exc.name or 'psycopg'}, which is not installed."
        raise MissingExtraError(message, hint="Run: pip install 'airflows[postgres]'") from exc


def _path(url: sa.URL) -> Path:
    return Path(url.database or "")


def _sqlite(url: sa.URL, busy_timeout_s: float) -> sa.Engine:
    # The one used last is taken again: what it has read is still right unless somebody else wrote.
    engine = sa.create_engine(
        url, connect_args={"timeout": busy_timeout_s, "check_same_thread": False}, pool_use_lifo=True
    )
    journal = "delete" if is_on_network(_path(url)) else "wal"

    @sa.event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys=ON")
        # Setting it needs the file for oneself, without waiting: done once, by whoever makes the ledger.
        if connection.execute("PRAGMA journal_mode").fetchone() != (journal,):
            connection.execute(f"PRAGMA journal_mode={journal}")
        connection.execute("PRAGMA synchronous=NORMAL")

    @sa.event.listens_for(engine, "begin")
    def on_begin(connection: sa.Connection) -> None:
        reading = connection.get_execution_options().get("reading", False)
        raw: Any = connection.connection.driver_connection
        raw.execute("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine


def _no_ledger(engine: sa.Engine) -> LedgerError:
    message = f"there is no ledger at {shown(str(engine.url))}."
    return LedgerError(message, hint="Start a sweep first: airflows sweep sweep.yaml")


def _prepare(engine: sa.Engine, *, create: bool) -> None:
    if create and engine.dialect.name == "sqlite":
        _path(engine.url).parent.mkdir(parents=True, exist_ok=True)
    found = _version(engine)
    if found is None:
        if not create:
            raise _no_ledger(engine)
        _create(engine)
        found = _version(engine)
    if found is not None and found > schema.VERSION:
        message = (
            f"the ledger {shown(str(engine.url))} has schema {found}; "
            f"this airflows knows schemas up to {schema.VERSION}."
        )
        raise SchemaTooNewError(message, hint="Use the airflows that wrote it, or a newer one.")
    if found is not None and found < schema.VERSION:
        with _alone(engine) as connection:
            # Another start may have done it meanwhile.
            upgrade(connection, _version_in(connection) or schema.VERSION)


def _version(engine: sa.Engine) -> int | None:
    with engine.connect().execution_options(reading=True) as connection:
        return _version_in(connection) if sa.inspect(connection).has_table("meta") else None


def _version_in(connection: sa.Connection) -> int | None:
    row = connection.execute(sa.select(schema.meta.c.value).where(schema.meta.c.key == "schema")).first()
    return None if row is None else int(row.value)


@contextlib.contextmanager
def _alone(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Be the only one who changes tables: SQLite's BEGIN IMMEDIATE, PostgreSQL's advisory lock see to it."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7261944)")
        yield connection


def _create(engine: sa.Engine) -> None:
    with _alone(engine) as connection:
        schema.metadata.create_all(connection)
        if _version_in(connection) is None:
            connection.execute(schema.meta.insert().values(key="schema", value=str(schema.VERSION)))


@contextlib.contextmanager
def translated(engine: sa.Engine) -> Iterator[None]:
    """Turn the database's exceptions into one clear paragraph, without the statement or its values."""
    try:
        yield
    except (sa.exc.DBAPIError, engine.dialect.loaded_dbapi.Error) as exc:
        raise _explain(engine, exc.orig if isinstance(exc, sa.exc.DBAPIError) else exc) from None
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
    "SQLITE_CORRUPT": "The file is damaged; restore a copy, or move it away and rebuild each sweep with "
    "`airflows resume SWEEP --rebuild`.",
}


def _explain(engine: sa.Engine, cause: BaseException | None) -> LedgerError:
    where = shown(str(engine.url))
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorname", "")
        hint = next((text for name, text in _SQLITE_HINTS.items() if code.startswith(name)), None)
        return LedgerError(f"the ledger {where} cannot be used: {cause}.", hint=hint)
    # What follows the first line may hold the values of a row.
    first_line = str(cause).strip().splitlines()[0] if str(cause).strip() else "no answer"
    return LedgerError(
        f"the ledger {where} cannot be used: {first_line.rstrip('.')}.",
        hint="Check that the database server is up and that you may use it.",
    )

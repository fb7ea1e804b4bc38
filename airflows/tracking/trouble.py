"""MLflow's exceptions, turned into ours at the edge, without passwords and without tracebacks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import ClassVar

from airflows.errors import AirflowsError, MissingExtraError, TrackingUnavailableError
from airflows.tracking.uris import is_sqlite, shown_uri, without_secrets

_MOST_CHARACTERS = 300
# What a store says when asking again would bring the same answer. Everything else may pass.
_REFUSALS = frozenset(
    {
        "ALREADY_EXISTS",
        "BAD_REQUEST",
        "CUSTOMER_UNAUTHORIZED",
        "ENDPOINT_NOT_FOUND",
        "FEATURE_DISABLED",
        "INVALID_PARAMETER_VALUE",
        "INVALID_STATE",
        "NOT_FOUND",
        "NOT_IMPLEMENTED",
        "PERMISSION_DENIED",
        "RESOURCE_ALREADY_EXISTS",
        "RESOURCE_DOES_NOT_EXIST",
        "RESOURCE_LIMIT_EXCEEDED",
        "UNAUTHENTICATED",
    }
)
_GONE = frozenset({"RESOURCE_DOES_NOT_EXIST", "NOT_FOUND"})
_NOT_ACTIVE = "must be in the 'active' state"
# SQLAlchemy, urllib3 (twice) and psycopg wrap what the system said in what they tried.
_INNER = (
    re.compile(r"\(sqlite3\.\w+\) (.+)"),
    re.compile(r"Connection(?:Pool)?\(host=.*\[Errno -?\d+\] ([\w ,'-]+)"),
    re.compile(r"Connection(?:Pool)?\(host=.*?\): ([^\"]+?)\.?[\"')]*$"),
    re.compile(r"\(psycopg\w*\.\w+\) (.+)"),
)
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit): *(.*)$", re.MULTILINE)
_SQLITE_HINTS = {
    "locked": "Another process keeps it locked; see who has it open, then try again.",
    "readonly": "It is read-only for you; set AIRFLOWS_HOME to a directory you can write.",
    "full": "The disk is full; make room and start the same command again: nothing is lost.",
    "unable to open": "Check that the directory exists and that you may write there, or set AIRFLOWS_HOME.",
    "disk I/O": "The disk reported an error or is full; nothing was half-written.",
    "not a database": "The file is not a database; move it away or choose another tracking.uri.",
    "malformed": "The file is damaged; restore a copy or choose another tracking.uri.",
}


class TrackingRefusedError(AirflowsError):
    """MLflow answered, and the answer is no: asking again would not help."""

    kind: ClassVar[str] = "tracking_refused"
    exit_code: ClassVar[int] = 3


class RunsMissingError(AirflowsError):
    """MLflow does not have the runs that the ledger counts: a shorter table would be wrong.

    Attributes:
        expected: runs the ledger knows.
        found: those of them that MLflow has.
    """

    kind: ClassVar[str] = "runs_missing"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, expected: int, found: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.expected = expected
        self.found = found


@contextlib.contextmanager
def asking(uri: str) -> Iterator[None]:
    """Turn whatever comes out of MLflow into an error of ours.

    Raises:
        TrackingUnavailableError: nothing is known; it may be asked again.
        TrackingRefusedError: the store answered no.
    """
    try:
        yield
    except AirflowsError:
        raise
    except Exception as exc:
        # MLflow lets exceptions of requests, SQLAlchemy, boto3 and others through, so all are caught here.
        if not _is_foreign(exc):
            raise
        raise translated(exc, uri) from None


def translated(exc: Exception, uri: str) -> AirflowsError:
    """Return our error for one of MLflow's or of the libraries under it."""
    text = _sentence(without_secrets(str(exc), uri))
    where = shown_uri(uri)
    code = str(getattr(exc, "error_code", ""))
    if isinstance(exc, ModuleNotFoundError):
        message = f"MLflow needs the package {exc.name} for {where}, which is not installed."
        return MissingExtraError(message, hint=f"Run: pip install {exc.name}")
    if "unsupported URI" in text:
        message = f"MLflow does not know this kind of store: {where}."
        return TrackingRefusedError(message, hint="Use an http(s) address, databricks, or a database URL.")
    if (code in _REFUSALS or _is_mistaken(exc)) and not is_lock(text):
        hint = _refusal_hint(code)
        return TrackingRefusedError(f"MLflow at {where} refused: {text}", hint=hint)
    if is_sqlite(uri):
        return TrackingUnavailableError(
            f"MLflow's store {where} cannot be used: {text}", hint=sqlite_hint(text)
        )
    hint = "Check the address and that the server is up."
    return TrackingUnavailableError(f"MLflow at {where} did not answer: {text}", hint=hint)


def last_words(stderr: str) -> str:
    """Return what a Python process said last: its exception without the traceback."""
    found = _EXCEPTION.findall(stderr) or [line for line in stderr.splitlines() if line.strip()]
    return _sentence(found[-1] if found else "no reason given")


def sqlite_hint(text: str) -> str | None:
    """Return what to do about what SQLite said."""
    return next((hint for word, hint in _SQLITE_HINTS.items() if word in text), None)


def is_gone(exc: Exception) -> bool:
    """Whether an exception of MLflow says that a run does not exist or was deleted."""
    return getattr(exc, "error_code", "") in _GONE or _NOT_ACTIVE in str(exc)


def is_refusal(exc: Exception) -> bool:
    """Whether an exception of MLflow says that the request itself is not acceptable."""
    return getattr(exc, "error_code", "") in {"INVALID_PARAMETER_VALUE", "BAD_REQUEST"}


def is_lock(text: str) -> bool:
    """Whether SQLite's words say that another process was writing."""
    return "database is locked" in text


def _is_mistaken(exc: Exception) -> bool:
    """Whether SQLAlchemy says that the statement is at fault, not the database."""
    return bool(
        {"IntegrityError", "ProgrammingError", "DataError"} & {kind.__name__ for kind in type(exc).__mro__}
    )


def _refusal_hint(code: str) -> str | None:
    if code in {"PERMISSION_DENIED", "UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED"}:
        return "Check MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN."
    if code == "ENDPOINT_NOT_FOUND":
        return "Check that the address is an MLflow server's."
    return None


def _is_foreign(exc: Exception) -> bool:
    packages = {kind.__module__.partition(".")[0] for kind in type(exc).__mro__}
    known = {"mlflow", "sqlalchemy", "sqlite3", "requests", "urllib3", "alembic", "databricks", "botocore"}
    # The SDK has no type of its own for credentials that it does not find.
    return bool(packages & known) or isinstance(exc, OSError | ImportError) or "default auth" in str(exc)


def _sentence(text: str) -> str:
    """Return the telling part of an exception: its first line, the innermost of nested ones."""
    line = next((line for line in text.strip().splitlines() if line.strip()), "no answer").strip()
    inner = next((found for pattern in _INNER if (found := pattern.search(line))), None)
    line = inner[1] if inner else line
    if len(line) > _MOST_CHARACTERS:
        line = f"{line[: _MOST_CHARACTERS - 1].partition('. ')[0]}…"
    return line if line.endswith((".", "!", "?", "…")) else f"{line}."

"""Which MLflow store a sweep uses, how it is named to people, and what a job needs to reach it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote

from airflows import addresses
from airflows.errors import SpecError

OFF = "none"
_AMBIGUOUS = re.compile(r"%(?=[0-9A-Fa-f]{2})|\?")
_SECRET_NAMES = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
_PLAIN_NAMES = (
    "MLFLOW_TRACKING_INSECURE_TLS",
    "MLFLOW_TRACKING_SERVER_CERT_PATH",
    "MLFLOW_TRACKING_CLIENT_CERT_PATH",
    "MLFLOW_TRACKING_AUTH",
    "MLFLOW_S3_ENDPOINT_URL",
)
_DATABRICKS_NAMES = (
    "DATABRICKS_HOST",
    "DATABRICKS_TOKEN",
    "DATABRICKS_CLIENT_ID",
    "DATABRICKS_CLIENT_SECRET",
)


def embedded_path(home: Path) -> Path:
    """Return the embedded store's SQLite file."""
    return home / "mlflow.db"


def embedded_uri(home: Path) -> str:
    """Return the URI of the embedded store, usable from any working directory."""
    return sqlite_uri(embedded_path(home))


def sqlite_uri(path: Path) -> str:
    """Return the URI of an SQLite file, usable from any working directory."""
    # SQLAlchemy 2.1 decodes what stands behind a percent sign, 2.0 does not: encode only what must be.
    return "sqlite:///" + _AMBIGUOUS.sub(lambda found: quote(found[0]), str(path.absolute()))


def choose_uri(wanted: str | None, environment: Mapping[str, str], home: Path) -> str:
    """Return the store's URI, password included: the sweep's, else the environment's, else the embedded one.

    Relative SQLite files are made absolute, since jobs run in other directories.

    Raises:
        SpecError: the URI is of a kind that MLflow no longer writes to.
    """
    uri = wanted or environment.get("MLFLOW_TRACKING_URI") or embedded_uri(home)
    if uri.lower() == OFF:
        return OFF
    if is_sqlite(uri):
        return sqlite_uri(sqlite_path(uri))
    if _is_file_store(uri) and environment.get("MLFLOW_ALLOW_FILE_STORE", "").lower() not in {"true", "1"}:
        message = f"MLflow no longer writes to directories of files such as {shown_uri(uri)!r}."
        hint = "Use sqlite:///PATH, the address of an MLflow server, or leave it out for the embedded store."
        raise SpecError(message, field="tracking.uri" if wanted else "MLFLOW_TRACKING_URI", hint=hint)
    return uri


def is_sqlite(uri: str) -> bool:
    """Whether the store is an SQLite file."""
    return uri.startswith("sqlite:///")


def sqlite_path(uri: str) -> Path:
    """Return the file of an SQLite URI."""
    return Path(unquote(uri.removeprefix("sqlite:///").partition("?")[0]))


def shown_uri(uri: str) -> str:
    """Return the URI for people: without its password."""
    return addresses.hidden_in(uri)


def without_secrets(text: str, uri: str) -> str:
    """Return a message about a store without the store's password, wherever it stands in it."""
    hidden = addresses.hidden(text.replace(uri, shown_uri(uri)))
    spellings = "|".join(re.escape(word) for word in addresses.secrets(uri))
    # A short password must not be cut out of other words.
    return re.sub(rf"(?<![^\W_])(?:{spellings})(?![^\W_])", "***", hidden) if spellings else hidden


def job_variables(uri: str, environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return (plain variables, secret variables) with which a job reaches the store.

    A URI with a password is a secret, and so are the credentials that MLflow reads from the environment.
    """
    if uri == OFF:
        return {}, {}
    plain = {name: environment[name] for name in _PLAIN_NAMES if environment.get(name)}
    secret = {name: environment[name] for name in _SECRET_NAMES if environment.get(name)}
    if uri.startswith("databricks"):
        secret |= {name: environment[name] for name in _DATABRICKS_NAMES if environment.get(name)}
    target = secret if addresses.has_secret(uri) else plain
    target["MLFLOW_TRACKING_URI"] = uri
    if _is_file_store(uri):
        plain["MLFLOW_ALLOW_FILE_STORE"] = "true"
    return plain, secret


def _is_file_store(uri: str) -> bool:
    return uri.startswith("file:") or ("://" not in uri and not uri.startswith("databricks"))

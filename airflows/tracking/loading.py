"""Importing MLflow: late, quietly, and with patience that suits a driver."""

from __future__ import annotations

import logging
import os
import warnings
from importlib import import_module
from typing import Any

# Set only where the user has not: usage reports, the run addresses that `set_terminated` prints on
# stdout, and MLflow's seven retries of two minutes each, during which a driver would hear nothing.
_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DATABRICKS_ENDPOINT_HTTP_RETRY_TIMEOUT": "30",
}


def quiet_environment() -> dict[str, str]:
    """Return this environment for a process that imports MLflow."""
    return _DEFAULTS | os.environ


def load(module: str) -> Any:
    """Return a module of MLflow or one that imports MLflow, imported without its chatter."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = import_module(module)
    _hush()
    return loaded


def _hush() -> None:
    """Leave MLflow's warnings and errors, drop its announcements.

    The database layer logs every exception with its traceback before it raises it; raising is enough.
    """
    for name in ("mlflow", "alembic"):
        logger = logging.getLogger(name)
        if logger.getEffectiveLevel() < logging.WARNING:
            logger.setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)

"""MLflow: one parent run per sweep, one run per trial, values by `take`. The only package that imports it.

MLflow is imported when a tracker is opened, not before.

Example:
    >>> from pathlib import Path
    >>> open_tracker("none", Path.home() / ".airflows").is_off
    True
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from airflows.tracking.contract import NoTracker, Tracker
from airflows.tracking.loading import load
from airflows.tracking.records import EndedRun, OpenedSweep, Reading, SweepEnd, SweepRun, TrialRun
from airflows.tracking.runs import FoundRun
from airflows.tracking.service import ServiceTracker
from airflows.tracking.shared import SharedTracker
from airflows.tracking.tracker import MlflowTracker
from airflows.tracking.trouble import RunsMissingError, TrackingRefusedError, asking
from airflows.tracking.uris import OFF, choose_uri, embedded_uri, is_sqlite, shown_uri, sqlite_path

__all__ = [
    "OFF",
    "EndedRun",
    "FoundRun",
    "MlflowTracker",
    "NoTracker",
    "OpenedSweep",
    "Reading",
    "RunsMissingError",
    "SweepEnd",
    "SweepRun",
    "Tracker",
    "TrackingRefusedError",
    "TrialRun",
    "choose_uri",
    "embedded_uri",
    "open_tracker",
    "shown_uri",
]


def open_tracker(
    uri: str | None,
    home: Path,
    *,
    on_network: bool = False,
    is_service: bool = False,
    is_shared: bool = False,
    environment: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.time,
) -> Tracker:
    """Return a tracker, after making the embedded store where it is wanted; `open_sweep` or `attach` is next.

    Args:
        uri: the sweep's `tracking.uri`; None is `MLFLOW_TRACKING_URI`, else the embedded store.
        home: `$AIRFLOWS_HOME`, where the embedded store lies.
        is_service: the runs of trials are made by the service that the trials run on.
        is_shared: and trials run elsewhere too, where nobody else makes them.
        on_network: the embedded store lies on a network file system, where SQLite's WAL does not work.
        environment: where MLflow's variables are looked up.
        clock: seconds since the epoch, UTC.

    Raises:
        SpecError: MLflow no longer writes to this kind of store.
        TrackingUnavailableError: the store's file cannot be used.
        TrackingRefusedError: it has another MLflow's schema, or MLflow does not know this kind of URI.
    """
    chosen = choose_uri(uri, environment, home)
    if chosen == OFF:
        return NoTracker()
    if is_sqlite(chosen):
        return MlflowTracker(chosen, _sqlite_runs(chosen, home, wal=not on_network), clock, environment)
    with asking(chosen):
        client = load("airflows.tracking.client")
    kind: type[MlflowTracker] = MlflowTracker
    if is_service:
        kind = SharedTracker if is_shared else ServiceTracker
    return kind(chosen, client.ClientRuns(chosen, _user()), clock, environment)


def _sqlite_runs(uri: str, home: Path, *, wal: bool) -> Any:
    path = sqlite_path(uri)
    ours = uri == embedded_uri(home)
    artifacts = (home.absolute() if ours else path.parent) / "mlartifacts"
    with asking(uri):
        embedded, sql = load("airflows.tracking.embedded"), load("airflows.tracking.sql")
    embedded.prepare(path, artifacts, wal=wal, ours=ours)
    return sql.SqlRuns(uri, artifacts, _user())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())

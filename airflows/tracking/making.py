"""Making an MLflow store with MLflow's own code, in a process: `python -m airflows.tracking.making`.

MLflow with all its packages holds 220 MB, which the driver need not carry through a sweep. Imports MLflow.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from sqlalchemy import event

from airflows.tracking.embedded import put_in_place, unmade
from airflows.tracking.uris import sqlite_uri


def make(path: Path, artifacts: Path) -> None:
    """Make the tables aside and rename, so that a crash amid MLflow's migrations leaves no half a store.

    Args:
        path: the SQLite file.
        artifacts: directory of the artifacts of experiments made without a place of their own.
    """
    made = unmade(path)
    uri = sqlite_uri(made)
    engine = SqlAlchemyStore._get_or_create_engine(uri)  # noqa: SLF001 - before the store uses it
    event.listen(engine, "connect", _on_connect)
    engine.dispose()
    SqlAlchemyStore(uri, str(artifacts))  # type: ignore[no-untyped-call]
    engine.dispose()
    put_in_place(made, path)


def _on_connect(connection: Any, _record: Any) -> None:
    # Sixty migrations, each waiting for the disk several times, in a file that nobody has yet.
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA journal_mode=MEMORY")


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))

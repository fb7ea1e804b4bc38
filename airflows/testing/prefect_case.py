"""A sweep of one test under a real Prefect server: its file, its trials, and what the ledger says of it."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from airflows.testing.prefect_server import PrefectPlace

_TRAIN = {
    "experiment_name": "prefect",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"n": 0},
}


class Case:
    """A sweep of one test, in a directory of its own.

    Attributes:
        place: the server and its worker.
        directory: of the test.
    """

    def __init__(self, place: PrefectPlace, directory: Path) -> None:
        self.place = place
        self.directory = directory

    def sweep(self, name: str, trials: int, command: str, **fields: Any) -> dict[str, Any]:
        """Return a sweep.yaml's mapping; `{directory}` in the command is the test's."""
        base = {**_TRAIN, "command": command.replace("{directory}", str(self.directory))}
        return {
            "name": name,
            "base": base,
            "space": {"parameters.n": list(range(trials))},
            "tracking": {"uri": "none"},
            "retry": {"max": 0},
            **fields,
        }

    def started(self) -> list[str]:
        """Return the trials whose command began, in that order, each as often as it did."""
        path = self.directory / "started"
        return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []

    def pids(self) -> list[int]:
        """Return the processes of the trials whose command began."""
        return [int(line.split()[1]) for line in (self.directory / "started").read_text().splitlines()]

    def open_gate(self) -> None:
        """Let all trials end that wait for it."""
        (self.directory / "gate").touch()

    def rows(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        """Ask the ledger."""
        path = Path(self.place.environment["AIRFLOWS_HOME"], "ledger.db")
        with contextlib.closing(sqlite3.connect(path)) as ledger:
            return ledger.execute(statement, values).fetchall()

    def sweeps(self, name: str) -> list[tuple[str, str, str]]:
        """Return (id, state, instance) of the sweeps of a name, the oldest first."""
        return self.rows("SELECT id, state, instance FROM sweeps WHERE name = ? ORDER BY created_at", name)

    def states(self, name: str) -> Counter[str]:
        """Return how many trials of a sweep are in each state."""
        query = "SELECT t.state FROM trials t JOIN sweeps s ON s.id = t.sweep WHERE s.name = ?"
        return Counter(state for (state,) in self.rows(query, name))

    def driver(self, name: str) -> int:
        """Return the process that drives the sweep."""
        ((owner,),) = self.rows("SELECT lease_owner FROM sweeps WHERE name = ?", name)
        return int(json.loads(owner)["pid"]) if owner else 0

    def instance_of(self, run: str) -> str:
        """Return a flow run's scheduled time as the ledger keeps it."""
        at = datetime.fromisoformat(self.place.flow_run(run)["expected_start_time"])
        return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"

    def wait_until_started(self, count: int) -> None:
        """Return when so many trials have begun."""
        self.place.wait_for(lambda: len(self.started()) >= count, f"{count} trials to start")

"""What people are shown of a sweep while it comes along: the ledger's part and MLflow's."""

from __future__ import annotations

import time
from pathlib import Path

from airflows.engine.following import Follower
from airflows.engine.latest import LatestMetrics, asker
from airflows.ledger import Ledger, SweepRow
from airflows.report.live import Scene
from airflows.spec import SweepSpec

_SILENT = "MLflow does not answer; the values of running trials may be old."


class Onlooker:
    """What is to be seen of one sweep: from the ledger at a look, and from MLflow when that has answered."""

    def __init__(
        self, ledger: Ledger, row: SweepRow, spec: SweepSpec, home: Path, *, drives: bool = False
    ) -> None:
        self._ledger = ledger
        self._spec = spec
        self._home = home
        self._drives = drives
        self._sweep = row.id
        self._follower = Follower(ledger, row, spec)
        self._latest: LatestMetrics | None = None

    def look(self, note: str = "") -> Scene:
        """Look again, for the thread of the ledger.

        Args:
            note: what is being waited for.
        """
        live = self._follower.look()
        runs = [trial.run_id for trial in live.running if trial.run_id]
        if runs and self._latest is None:
            # Not before: until a trial has a run, its experiment may not be known.
            ask = asker(self._ledger.sweep(self._sweep), self._spec, self._home)
            self._latest = None if ask is None else LatestMetrics(ask)
        if self._latest is not None:
            self._latest.want(runs)
        found = {} if self._latest is None else self._latest.found
        silent = _SILENT if self._latest is not None and self._latest.is_silent else ""
        return Scene(live, time.time(), found, note or silent, self._drives)

    def close(self) -> None:
        """Ask MLflow no more."""
        if self._latest is not None:
            self._latest.close()

"""The last values of running trials, asked for in a thread of its own, as MLflow may not answer."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from airflows.engine.lookout import back_off
from airflows.engine.site import recorded_uri
from airflows.ledger import SweepRow
from airflows.scores import MetricPoint
from airflows.spec import SweepSpec
from airflows.tracking import OFF, OpenedSweep, SweepRun, Tracker, choose_uri, open_tracker

Metrics = Mapping[str, Mapping[str, MetricPoint]]
Ask = Callable[[Sequence[str]], Metrics]

_EVERY_S = 3.0
_SILENT_AFTER = 2


class LatestMetrics:
    """What the runs that are wanted have logged last, as far as MLflow has answered.

    Nothing here waits for MLflow but its own thread, which goes with the process.
    """

    def __init__(self, ask: Ask, every_s: float = _EVERY_S) -> None:
        self._ask = ask
        self._every_s = every_s
        self._wanted: tuple[str, ...] = ()
        self._found: Metrics = {}
        self._failures = 0
        self._news = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def found(self) -> Metrics:
        """Run id -> metric -> its last value."""
        return self._found

    @property
    def is_silent(self) -> bool:
        """Whether MLflow has failed to answer several times."""
        return self._failures >= _SILENT_AFTER

    def want(self, run_ids: Sequence[str]) -> None:
        """Ask for these runs from now on."""
        self._wanted = tuple(run_ids)
        if self._wanted and self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="latest metrics")
            self._thread.start()
        self._news.set()

    def close(self) -> None:
        """Ask no more; an answer that is still out is not waited for."""
        self._over.set()
        self._news.set()

    def _work(self) -> None:
        while not self._over.is_set():
            self._news.wait()
            self._news.clear()
            wanted = self._wanted
            if wanted and not self._over.is_set():
                self._look(wanted)
                self._over.wait(max(self._every_s, back_off(self._failures) if self._failures else 0.0))

    def _look(self, wanted: Sequence[str]) -> None:
        try:
            self._found = self._ask(wanted)
        except Exception:  # noqa: BLE001 - without this thread the picture would be old, and not say so
            self._failures += 1
        else:
            self._failures = 0


def asker(row: SweepRow, spec: SweepSpec, home: Path) -> Ask | None:
    """Return what asks MLflow for the runs of a sweep, opened at the first question; None without MLflow."""
    if row.tracking_uri == OFF or (spec.tracking.uri or "").lower() == OFF:
        return None
    opened: list[Tracker] = []

    def ask(run_ids: Sequence[str]) -> Metrics:
        if not opened:
            uri = choose_uri(recorded_uri(row) or spec.tracking.uri, os.environ, home)
            tracker = open_tracker(uri, home)
            tracker.attach(SweepRun(row.id, "", owner=row.nonce), OpenedSweep(row.experiment_id, ""))
            opened.append(tracker)
        return opened[0].latest(run_ids)

    return ask

"""Counts what is done rather than how long it takes: lines of airflows, and the steps of SQLite."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import sqlalchemy as sa

import airflows
from airflows.ledger import Ledger

_PACKAGE = str(Path(airflows.__file__).parent)
_SIMULATED = f"{_PACKAGE}/testing/"
_STEPS = 10


@dataclass
class Counted:
    """What was done.

    Attributes:
        lines: of airflows that were executed in this thread, each turn of a loop anew; none of its fakes.
        steps: instructions of SQLite's machine, a row that is looked at being several.
    """

    lines: int = 0
    steps: int = 0

    def times(self, other: Counted) -> float:
        """Return how many times as much this is as another, of what has grown most."""
        return max(self.lines / other.lines, self.steps / other.steps if other.steps else 0.0)


@contextmanager
def counting(ledger: Ledger) -> Iterator[Counted]:
    """Count meanwhile."""
    found = Counted()

    def step() -> None:
        found.steps += _STEPS

    def line(_frame: FrameType, event: str, _argument: Any) -> Any:
        found.lines += event == "line"
        return line

    def call(frame: FrameType, _event: str, _argument: Any) -> Any:
        name = frame.f_code.co_filename
        return line if name.startswith(_PACKAGE) and not name.startswith(_SIMULATED) else None

    def on_checkout(connection: Any, _record: Any, _proxy: Any) -> None:
        connection.set_progress_handler(step, _STEPS)

    engine, before = ledger._engine, sys.gettrace()  # noqa: SLF001 - nobody else may count
    sa.event.listen(engine, "checkout", on_checkout)
    sys.settrace(call)
    try:
        yield found
    finally:
        sys.settrace(before)
        sa.event.remove(engine, "checkout", on_checkout)
        with engine.connect() as connection:
            raw: Any = connection.connection.driver_connection
            raw.set_progress_handler(None, _STEPS)

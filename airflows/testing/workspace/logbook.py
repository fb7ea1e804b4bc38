"""What the nodes of one attempt printed, and when."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflows.testing.workspace.settings import LogManners

_NANO = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Line:
    """One record of the log service.

    Attributes:
        number: among those of its node.
        node: which one.
        moment: when it was printed, seconds since the epoch.
        nano: the same in nanoseconds; no two lines of a node share it.
        body: without its newline.
    """

    number: int
    node: int
    moment: float
    nano: int
    body: str


class Logbook:
    """Lines in memory for the log service, and bytes in a file per node for the MLflow artifacts."""

    def __init__(self, directory: Path, manners: LogManners) -> None:
        self._directory = directory
        self._manners = manners
        self._lines: dict[int, list[Line]] = defaultdict(list)
        self._lock = threading.Lock()
        self._end = float("inf")

    def write(self, node: int, text: bytes, moment: float) -> None:
        """Add what a node printed: one line with its newline, or the last without."""
        with self._lock:
            lines = self._lines[node]
            nano = max(int(moment * _NANO), lines[-1].nano + 1 if lines else 0)
            body = text.decode(errors="replace").rstrip("\r\n")
            lines.append(Line(len(lines), node, moment, nano, body))
            self._directory.mkdir(parents=True, exist_ok=True)
            with (self._directory / f"node_{node}.log").open("ab") as file:
                file.write(text)

    def plan(self, logs: Sequence[str] | Mapping[int, Sequence[str]], start: float, lasts: float) -> None:
        """Add lines that will be seen as time goes by, evenly spread."""
        by_node = logs if isinstance(logs, Mapping) else {0: logs}
        for node, bodies in by_node.items():
            for index, body in enumerate(bodies):
                self.write(int(node), f"{body}\n".encode(), start + lasts * (index + 1) / (len(bodies) + 1))

    def close(self, moment: float) -> None:
        """Drop what would have been printed later."""
        self._end = min(self._end, moment)

    def nodes(self) -> list[int]:
        """Return the nodes that printed something."""
        with self._lock:
            return sorted(self._lines)

    def lines(self, node: int, now: float) -> list[Line]:
        """Return what the log service knows of a node by now, late records left out, in order of time."""
        with self._lock:
            return [line for line in self._lines.get(node, ()) if self._is_there(line, now)]

    def text(self, node: int, now: float) -> bytes:
        """Return the bytes that a node has printed by now."""
        path = self._directory / f"node_{node}.log"
        with self._lock:
            lines = self._lines.get(node, [])
            printed = [line for line in lines if line.moment <= min(now, self._end)]
            if not path.is_file():
                return b""
            if len(printed) == len(lines):
                return path.read_bytes()
        return b"".join(f"{line.body}\n".encode() for line in printed)

    def _is_there(self, line: Line, now: float) -> bool:
        manners = self._manners
        late = manners.late_every and line.number % manners.late_every == manners.late_every - 1
        return line.moment <= self._end and line.moment + (manners.late_s if late else 0) <= now

"""What containers have written, and how a client asks for a part of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from airflows.testing.cluster.defaults import read_time


@dataclass(slots=True)
class ContainerLog:
    """The lines of one container, each with its time; `changed` is told of every one, and of the end."""

    changed: threading.Condition
    lines: list[tuple[float, bytes]] = field(default_factory=list)
    is_over: bool = False

    def write(self, line: bytes, now: float) -> None:
        """Append a line, with its newline."""
        with self.changed:
            self.lines.append((now, line))
            self.changed.notify_all()

    def close(self) -> None:
        """Say that nothing follows."""
        with self.changed:
            self.is_over = True
            self.changed.notify_all()


def chosen(lines: list[tuple[float, bytes]], query: Mapping[str, str], now: float) -> list[bytes]:
    """Return the lines that a query asks for, `limitBytes` aside."""
    since = -1.0
    if "sinceTime" in query:
        since = read_time(query["sinceTime"])
    elif "sinceSeconds" in query:
        since = now - float(query["sinceSeconds"])
    kept = [(time, line) for time, line in lines if time >= since]
    if "tailLines" in query:
        count = int(query["tailLines"])
        kept = kept[-count:] if count else []
    if query.get("timestamps") != "true":
        return [line for _, line in kept]
    return [f"{_stamp(time)} ".encode() + line for time, line in kept]


def limited(content: bytes, query: Mapping[str, str]) -> bytes:
    """Return at most as many bytes as a query asks for."""
    return content[: int(query["limitBytes"])] if "limitBytes" in query else content


def _stamp(time: float) -> str:
    whole = datetime.fromtimestamp(int(time), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{int((time % 1) * 1e9):09d}Z"

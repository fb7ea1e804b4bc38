"""Reading a log file that may still grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

_BLOCK = 1 << 16
_LOOK_AGAIN_S = 0.2


def last_lines(path: Path, lines: int | None) -> Iterator[str]:
    """Yield the last lines of a file, all of them for None; nothing when there is no file."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        _go_to_last(file, lines)
        yield from map(_shown, file)


def follow(
    path: Path,
    lines: int | None,
    has_ended: Callable[[], bool],
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[str]:
    """Yield the last lines of a file and those that come, until the writer has ended.

    Args:
        path: the file, which need not exist yet.
        lines: how many of the lines that are there; all for None.
        has_ended: tells whether more can come.
        pause: sleeps for seconds between two looks.
    """
    ended = has_ended()
    while not ended and not path.exists():
        pause(_LOOK_AGAIN_S)
        ended = has_ended()
    if not path.exists():
        return
    with path.open("rb") as file:
        _go_to_last(file, lines)
        kept = b""
        while True:
            # Asked before reading: what was written before the end is then read.
            ended = has_ended()
            for line in file:
                kept += line
                if kept.endswith(b"\n"):
                    yield _shown(kept)
                    kept = b""
            if ended:
                break
            pause(_LOOK_AGAIN_S)
        if kept:
            yield _shown(kept)


def _go_to_last(file: BinaryIO, lines: int | None) -> None:
    """Move to the start of the last lines."""
    if lines is None:
        return
    end = file.seek(0, 2)
    found, position = b"", end
    # One newline more than lines: that of the line before the first one.
    while position and found.count(b"\n") <= lines:
        step = min(_BLOCK, position)
        position -= step
        file.seek(position)
        found = file.read(step) + found
    wanted = found.splitlines(keepends=True)[-lines:] if lines else []
    file.seek(end - sum(map(len, wanted)))


def _shown(line: bytes) -> str:
    """Return a line as a terminal leaves it: what a carriage return overwrote is gone."""
    text = line.decode("utf-8", errors="replace").rstrip("\r\n")
    return text.rpartition("\r")[2] or text.rstrip("\r")

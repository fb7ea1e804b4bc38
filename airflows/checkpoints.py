"""The newest complete checkpoint of a directory. Standard library only: it is also shipped into jobs.

As a program, `python checkpoints.py DIRECTORY [PATTERN]` prints its path, or nothing.

Complete are: a Hugging Face `checkpoint-N` with a readable `trainer_state.json`; a torch distributed
checkpoint, which is a directory with `.metadata`; a `*.ckpt`, `*.pt` or `*.pth` file that nobody is writing.
With a pattern, what matches it counts instead.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

_SUFFIXES = (".ckpt", ".pt", ".pth")
_UNFINISHED = {"tmp", "part", "partial", "incomplete"}
_HUGGING_FACE = re.compile(r"checkpoint-\d+")
_STEP = re.compile(r"step[-_=]?(\d+)", re.IGNORECASE)
_COUNT = re.compile(r"(?:checkpoint|ckpt|iteration|iter|epoch)[-_=]?(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_DEEPEST = 4
_STABLE_AFTER_S = 1.0
_LOOK_AGAIN_S = 0.05
_ZIP_START = b"PK\x03\x04"


class Checkpoint(NamedTuple):
    """A complete checkpoint.

    Attributes:
        path: the file or directory to resume from.
        step: the number in its name (a step rather than an epoch where both are there), -1 for none.
    """

    path: str
    step: int = -1


class _Candidate(NamedTuple):
    step: int
    mtime: float
    path: Path


def newest(
    directory: str,
    pattern: str = "",
    *,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> Checkpoint | None:
    """Return the newest complete checkpoint below a directory, or None.

    Newest is the highest step in the name, then the latest change. What is half written is passed over.
    A file that changed within the last second is looked at twice, a moment apart.

    Args:
        directory: where checkpoints are kept; it need not exist.
        pattern: glob relative to the directory, `**` allowed; empty for the known forms.
        clock: seconds since the epoch.
        pause: sleeps for seconds.
    """
    root = Path(directory)
    found = _matching(root, (), tuple(pattern.strip("/").split("/"))) if pattern else _known(root, 0)
    for candidate in sorted(_dated(root, found), reverse=True):
        if _is_complete(candidate.path, clock, pause, trusted=bool(pattern)):
            return Checkpoint(str(candidate.path), candidate.step)
    return None


def _matching(directory: Path, above: tuple[str, ...], wanted: tuple[str, ...]) -> Iterator[Path]:
    for entry in _entries(directory):
        if _is_unfinished(entry.name):
            continue
        parts = (*above, entry.name)
        if _fits(parts, wanted):
            yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _matching(Path(entry.path), parts, wanted)


def _fits(parts: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    if not wanted:
        return not parts
    if wanted[0] == "**":
        return any(_fits(parts[skipped:], wanted[1:]) for skipped in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], wanted[0]) and _fits(parts[1:], wanted[1:])


def _known(directory: Path, depth: int) -> Iterator[Path]:
    for entry in _entries(directory):
        path = Path(entry.path)
        if _is_unfinished(entry.name):
            continue
        if not entry.is_dir():
            if path.suffix in _SUFFIXES:
                yield path
        elif _HUGGING_FACE.fullmatch(entry.name) or _has_metadata(path):
            yield path
        elif depth < _DEEPEST and not entry.is_symlink():
            yield from _known(path, depth + 1)


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _is_unfinished(name: str) -> bool:
    """Whether a name says that its content is still being written."""
    hidden = name.startswith((".", "tmp-", "tmp_"))
    return hidden or not _UNFINISHED.isdisjoint(name.lower().split(".")[1:])


def _dated(root: Path, paths: Iterable[Path]) -> Iterator[_Candidate]:
    for path in paths:
        try:
            mtime = path.stat().st_mtime
        except OSError:
            continue
        yield _Candidate(step_in(path.relative_to(root)), mtime, path)


# What a database keeps in eight bytes.
_LARGEST_STEP = 2**63 - 1


def step_in(relative: Path) -> int:
    """Return the step in a path, -1 for none; the last part that has a number decides."""
    for part in reversed(relative.parts):
        stem = part.rsplit(".", 1)[0] if part.endswith(_SUFFIXES) else part
        for numbers in (_STEP.findall(stem), _COUNT.findall(stem), _NUMBER.findall(stem)):
            if numbers:
                return min(int(numbers[-1]), _LARGEST_STEP)
    return -1


def _is_complete(
    path: Path, clock: Callable[[], float], pause: Callable[[float], None], *, trusted: bool
) -> bool:
    if path.is_dir():
        return trusted or _has_metadata(path) or _has_trainer_state(path)
    return _is_stable(path, clock, pause) and _is_whole(path)


def _has_metadata(path: Path) -> bool:
    try:
        return (path / ".metadata").stat().st_size > 0
    except OSError:
        return False


def _has_trainer_state(path: Path) -> bool:
    try:
        json.loads((path / "trainer_state.json").read_bytes())
    except (OSError, ValueError):
        return False
    return True


def _is_stable(path: Path, clock: Callable[[], float], pause: Callable[[float], None]) -> bool:
    try:
        before = path.stat()
        if abs(clock() - before.st_mtime) > _STABLE_AFTER_S:
            return before.st_size > 0
        pause(_LOOK_AGAIN_S)
        after = path.stat()
    except OSError:
        return False
    return before.st_size == after.st_size > 0 and before.st_mtime_ns == after.st_mtime_ns


def _is_whole(path: Path) -> bool:
    """Whether an archive, as torch and Lightning write them, has its end; other files are taken as whole."""
    try:
        with path.open("rb") as file:
            if file.read(len(_ZIP_START)) != _ZIP_START:
                return True
    except OSError:
        return False
    from zipfile import is_zipfile  # noqa: PLC0415  (half of this program's time, for archives only)

    return is_zipfile(path)


def main(arguments: list[str]) -> None:
    """Print the path of the newest complete checkpoint."""
    found = newest(arguments[0], *arguments[1:2])
    if found is not None:
        sys.stdout.buffer.write(os.fsencode(found.path) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])

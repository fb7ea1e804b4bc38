"""Writing files that a person goes on with: never over what somebody else wrote."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from airflows.errors import AirflowsError, ConflictError


def write_new(texts: Mapping[str, str], target: Path, *, force: bool) -> list[Path]:
    """Write texts by path below a directory; nothing is written when one of them would replace another text.

    Args:
        texts: by path relative to `target`.
        target: the directory, made when it is not there.
        force: write over what is there.

    Returns:
        The paths written.

    Raises:
        ConflictError: a file would be replaced, and nobody said --force.
        AirflowsError: the directory cannot be written; what was not there before is not there now.
    """
    paths = {target / name: text for name, text in texts.items()}
    there = [path for path in paths if os.path.lexists(path)]
    others = [str(path) for path in there if not _holds(path, paths[path])]
    if others and not force:
        message = f"{' and '.join(others)} {'is' if len(others) == 1 else 'are'} there already."
        raise ConflictError(message, hint="Say --force to write over, or name another place.")
    try:
        for path, text in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as exc:
        for path in paths.keys() - set(there):
            with contextlib.suppress(OSError):
                path.unlink()
        message = f"{exc.filename or target} cannot be written: {exc.strerror}."
        raise AirflowsError(message, hint="Name another place.") from exc
    return list(paths)


def _holds(path: Path, text: str) -> bool:
    try:
        return path.is_file() and path.read_bytes() == text.encode()
    except OSError:
        return False

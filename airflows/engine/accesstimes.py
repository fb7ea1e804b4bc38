"""Whether a file was read, as far as its access time tells.

A file that was read after it was written has a later access than modification time, also with `relatime`.
With `noatime`, and on some network file systems, nobody knows: that is tried out on a file beside it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

_LONG_AGO_NS = 10**15


def was_read(path: Path) -> bool | None:
    """Return whether a file was read since it was written; None when that cannot be told."""
    try:
        found = path.stat()
    except OSError:
        return None
    if found.st_atime_ns > found.st_mtime_ns:
        return True
    return False if _tells(path.parent) else None


def _tells(directory: Path) -> bool:
    """Whether reading a file in a directory changes its access time."""
    with contextlib.suppress(OSError), tempfile.NamedTemporaryFile(dir=directory, prefix=".read-") as file:
        file.write(b"x")
        file.flush()
        path = Path(file.name)
        os.utime(path, ns=(_LONG_AGO_NS, path.stat().st_mtime_ns))
        path.read_bytes()
        return path.stat().st_atime_ns > _LONG_AGO_NS
    return False

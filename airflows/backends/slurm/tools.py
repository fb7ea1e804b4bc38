"""The files that jobs need of airflows, kept below the root: an upgrade must not change them under a job."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from airflows import checkpoints

_HERE = Path(__file__).parent


@cache
def _contents() -> Mapping[str, bytes]:
    return {
        "preamble.sh": (_HERE / "preamble.sh").read_bytes(),
        "node.sh": (_HERE / "node.sh").read_bytes(),
        "pack.sh": (_HERE / "pack.sh").read_bytes(),
        "checkpoints.py": Path(checkpoints.__file__).read_bytes(),
    }


def tools_digest() -> str:
    """Return the name of the directory that holds these files as they are now."""
    return hashlib.sha256(b"\0".join(_contents().values())).hexdigest()[:16]


def install(directory: Path) -> None:
    """Write the files into a directory, unless they are there.

    Raises:
        OSError: it cannot be written.
    """
    if directory.is_dir():
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".new-", dir=directory.parent))
    aside.chmod(0o755)
    for name, content in _contents().items():
        (aside / name).write_bytes(content)
    try:
        aside.rename(directory)
    except OSError:
        shutil.rmtree(aside)
        if not directory.is_dir():
            raise

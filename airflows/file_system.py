"""On which kind of file system a path lies, by what the kernel says of its mounts."""

from __future__ import annotations

import os
import re
from pathlib import Path

_NETWORK_FILE_SYSTEMS = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "lustre",
        "gpfs",
        "beegfs",
        "fuse.sshfs",
        "9p",
        "ceph",
        "afs",
        "glusterfs",
        "fuse.glusterfs",
        "wekafs",
        "panfs",
    }
)


def is_on_network(path: Path) -> bool:
    """Whether a path lies on a network file system, where SQLite's WAL does not work."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return file_system(os.path.realpath(path), mounts) in _NETWORK_FILE_SYSTEMS


def file_system(path: str, mounts: str) -> str:
    """Return the kind of file system of an absolute path, by the text of /proc/mounts; empty if unknown."""
    best, kind = "", ""
    for line in mounts.splitlines():
        _, where, this, *_ = [*line.split(" "), "", "", ""]
        where = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), where)
        inside = path == where or path.startswith(where.rstrip("/") + "/")
        # Of two on one directory the later one lies on top.
        if where and inside and len(where) >= len(best):
            best, kind = where, this
    return kind

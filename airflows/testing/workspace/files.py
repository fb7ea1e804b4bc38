"""Workspace files, volumes and DBFS of the fake workspace: directories on disk."""

from __future__ import annotations

import posixpath
import shutil
import threading
from pathlib import Path

from airflows.testing.workspace.exchange import ApiError, invalid, missing

_WORKSPACE = "/Workspace"
_VOLUME_PARTS = 4


class FileStore:
    """Files by their path in the workspace: `/Workspace/…`, `/Volumes/…` and `/dbfs/…`.

    Attributes:
        root: directory on disk that holds the three.
    """

    def __init__(self, root: Path, volumes: frozenset[str] | None) -> None:
        self.root = root
        self._volumes = volumes
        self._lock = threading.Lock()
        for name in ("Workspace/Users", "Workspace/Shared", "Volumes", "dbfs"):
            (root / name).mkdir(parents=True, exist_ok=True)

    def read(self, path: str) -> bytes | None:
        """Return a file; None when it is not there."""
        place = self.place(path)
        return place.read_bytes() if place.is_file() else None

    def place(self, path: str) -> Path:
        """Return where a path lies on disk.

        Raises:
            ApiError: it is no path of the workspace.
        """
        return self.root / canonical(path).removeprefix("/")

    def write(self, path: str, content: bytes, *, overwrite: bool, conflict: ApiError) -> None:
        """Write a file whole.

        Raises:
            ApiError: the parent is missing, or the file is there and not to be overwritten.
        """
        place = self.place(path)
        self._see_volume(path)
        with self._lock:
            if not place.parent.is_dir():
                parent = posixpath.dirname(canonical(path))
                message = f"Path ({parent}) doesn't exist."
                raise missing(message)
            if place.is_dir() or (place.exists() and not overwrite):
                raise conflict
            aside = place.with_name(f".{place.name}.part")
            aside.write_bytes(content)
            aside.replace(place)

    def mkdirs(self, path: str) -> None:
        """Make a directory and its parents.

        Raises:
            ApiError: a file is in the way, or there is no such volume.
        """
        place = self.place(path)
        self._see_volume(path)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            message = f"Cannot create directory {path}: a file is in the way: already exists."
            raise ApiError(400, "RESOURCE_ALREADY_EXISTS", message) from None

    def delete(self, path: str, *, recursive: bool) -> None:
        """Delete a file or directory.

        Raises:
            ApiError: it is not there, or a directory that is not empty.
        """
        place = self.place(path)
        if place.is_file():
            place.unlink()
        elif not place.is_dir():
            message = f"Path ({path}) doesn't exist."
            raise missing(message)
        elif recursive:
            shutil.rmtree(place)
        elif any(place.iterdir()):
            message = f"Directory {path} is not empty."
            raise ApiError(400, "DIRECTORY_NOT_EMPTY", message)
        else:
            place.rmdir()

    def _see_volume(self, path: str) -> None:
        """Volumes are there or not; nobody makes them by writing."""
        parts = canonical(path).split("/")[1:]
        if parts[0] != "Volumes":
            return
        if len(parts) < _VOLUME_PARTS:
            message = f"Invalid path: {path} is above a volume."
            raise invalid(message)
        name = ".".join(parts[1:_VOLUME_PARTS])
        if self._volumes is not None and name not in self._volumes:
            message = f"Volume '{name}' does not exist."
            raise missing(message, "NOT_FOUND")
        (self.root / "Volumes").joinpath(*parts[1:_VOLUME_PARTS]).mkdir(parents=True, exist_ok=True)


def canonical(path: str) -> str:
    """Return a path as the store keeps it; the workspace's own may lack their first part.

    Raises:
        ApiError: it is not absolute, or leads out.
    """
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
        message = f"Path ({path}) is not an absolute path."
        raise invalid(message)
    clean = posixpath.normpath("/" + path.lstrip("/"))
    first = clean.split("/")[1]
    return clean if first in {"Workspace", "Volumes", "dbfs"} else posixpath.normpath(_WORKSPACE + clean)

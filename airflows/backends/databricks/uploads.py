"""Files that go to the workspace: launch directories, and the code as one archive."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from airflows.backends.databricks.client import Workspace, WorkspaceError
from airflows.snapshot import kept_files

_IMPORT = "/api/2.0/workspace-files/import-file"
_FILES = "/api/2.0/fs/files"
_DIRECTORIES = "/api/2.0/fs/directories"
MOST_CONFIG_BYTES = 1 << 20


def upload(workspace: Workspace, path: str, content: bytes) -> None:
    """Write a file, into a volume or into the workspace; directories are made where they are missing.

    Raises:
        WorkspaceError: it cannot be written.
        BackendUnavailableError: nothing is known.
    """
    if path.startswith("/Volumes/"):
        _with_parent(
            lambda: workspace.send("PUT", f"{_FILES}{quote(path)}", content, overwrite=True),
            lambda: workspace.send("PUT", f"{_DIRECTORIES}{quote(_parent(path))}", b""),
        )
        return
    try:
        _with_parent(
            lambda: workspace.send("POST", f"{_IMPORT}/{quote(path.lstrip('/'))}", content, overwrite=True),
            lambda: make_directory(workspace, _parent(path)),
        )
    except WorkspaceError as exc:
        # Somebody else has just written the same.
        if not exc.exists_already:
            raise


def upload_all(workspace: Workspace, directory: str, files: Mapping[str, bytes]) -> None:
    """Write files into a directory of the workspace, which is made first."""
    make_directory(workspace, directory)
    workspace.each(lambda item: upload(workspace, f"{directory}/{item[0]}", item[1]), list(files.items()))


def make_directory(workspace: Workspace, path: str) -> None:
    """Make a directory of the workspace and those above it."""
    workspace.post("/api/2.0/workspace/mkdirs", {"path": path})


def exists(workspace: Workspace, path: str) -> bool:
    """Whether a file is there."""
    try:
        if path.startswith("/Volumes/"):
            workspace.head(f"{_FILES}{quote(path)}")
        else:
            workspace.get("/api/2.0/workspace/get-status", path=path)
    except WorkspaceError as exc:
        if exc.is_missing:
            return False
        raise
    return True


def archive(directory: Path) -> bytes:
    """Return a code snapshot as a gzip tar, its root's name in front of every path."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in kept_files(directory):
            tar.add(directory / name, f"{directory.name}/{name}", recursive=False, filter=_writable)
    return packed.getvalue()


def _writable(member: tarfile.TarInfo) -> tarfile.TarInfo:
    # Kept code is read-only here; where it is unpacked it is the run's own.
    member.mode |= 0o200
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _with_parent(write: Callable[[], None], make_parent: Callable[[], None]) -> None:
    try:
        write()
    except WorkspaceError as exc:
        if not exc.is_missing:
            raise
        make_parent()
        write()


def _parent(path: str) -> str:
    return str(PurePosixPath(path).parent)

"""Endpoints of workspace files, volumes (the Files API) and DBFS."""

from __future__ import annotations

import base64
import posixpath
import re
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any

from airflows.testing.workspace.exchange import (
    BINARY,
    Answer,
    ApiError,
    Request,
    invalid,
    missing,
    nothing,
)
from airflows.testing.workspace.files import canonical
from airflows.testing.workspace.routing import Route, Router
from airflows.testing.workspace.world import World

_BOUNDARY = re.compile(r'boundary="?([^";]+)"?')
_NAME = re.compile(rb'name="([^"]*)"')


class FilesApi:
    """Workspace files and volumes."""

    def __init__(self, world: World) -> None:
        self._files = world.files

    def add_to(self, router: Router) -> None:
        """Add the endpoints."""
        add, at = router.add, "/api/2.0/workspace"
        add("GET", f"{at}/get-status", Route("workspace/get-status", self.status))
        add("POST", f"{at}/mkdirs", Route("workspace/mkdirs", self.mkdirs))
        add("POST", f"{at}/import", Route("workspace/import", self.import_))
        add("GET", f"{at}/export", Route("workspace/export", self.export))
        add("GET", f"{at}/list", Route("workspace/list", self.listed))
        add("POST", f"{at}/delete", Route("workspace/delete", self.delete))
        raw = Route("workspace-files/import-file", self.import_file)
        add("POST", "/api/2.0/workspace-files/import-file/{path*}", raw)
        add("PUT", "/api/2.0/fs/files/{path*}", Route("fs/files/put", self.put))
        add("GET HEAD", "/api/2.0/fs/files/{path*}", Route("fs/files/get", self.get))
        add("DELETE", "/api/2.0/fs/files/{path*}", Route("fs/files/delete", self.remove))
        add("PUT", "/api/2.0/fs/directories/{path*}", Route("fs/directories/put", self.make_directory))
        add("HEAD GET", "/api/2.0/fs/directories/{path*}", Route("fs/directories/get", self.directory))
        add("DELETE", "/api/2.0/fs/directories/{path*}", Route("fs/directories/delete", self.remove))

    def status(self, request: Request) -> Mapping[str, Any]:
        """Say what lies at a path."""
        return self._status(request.one("path"))

    def _status(self, path: str) -> dict[str, Any]:
        place = self._files.place(path)
        if not place.exists():
            message = f"Path ({path}) doesn't exist."
            raise missing(message)
        kind = "DIRECTORY" if place.is_dir() else "FILE"
        shown = {"path": _shown(path), "object_type": kind, "object_id": place.stat().st_ino}
        if kind == "FILE":
            shown["size"] = place.stat().st_size
        return shown

    def mkdirs(self, request: Request) -> Mapping[str, Any]:
        """Make a directory and its parents."""
        self._files.mkdirs(str(request.json().get("path", "")))
        return {}

    def import_file(self, request: Request) -> Mapping[str, Any]:
        """Write a workspace file from raw bytes."""
        path = "/" + request.parts["path"].lstrip("/")
        conflict = ApiError(409, "RESOURCE_ALREADY_EXISTS", f"Path ({path}) already exists.")
        overwrite = request.flag("overwrite")
        self._files.write(path, request.body, overwrite=overwrite, conflict=conflict)
        return {}

    def import_(self, request: Request) -> Mapping[str, Any]:
        """Write a workspace file, from JSON or a form."""
        kind = request.headers.get("content-type", "")
        boundary = _BOUNDARY.search(kind)
        if kind.startswith("multipart/") and boundary:
            form = _form(request.body, boundary[1])
            content = form.get("content", b"")
        else:
            form = {name: str(value).encode() for name, value in request.json().items()}
            content = base64.b64decode(form.get("content", b""))
        path = form.get("path", b"").decode()
        conflict = ApiError(400, "RESOURCE_ALREADY_EXISTS", f"Path ({path}) already exists.")
        overwrite = form.get("overwrite", b"").lower() == b"true"
        self._files.write(path, content, overwrite=overwrite, conflict=conflict)
        return {}

    def export(self, request: Request) -> Mapping[str, Any] | Answer:
        """Return a workspace file."""
        path = request.one("path")
        content = self._files.read(path)
        if content is None:
            message = f"Path ({path}) doesn't exist."
            raise missing(message)
        if request.flag("direct_download"):
            return Answer(200, content, BINARY)
        return {"content": base64.b64encode(content).decode(), "file_type": "file"}

    def listed(self, request: Request) -> Mapping[str, Any]:
        """Show what lies in a directory."""
        path = request.one("path")
        place = self._files.place(path)
        if not place.exists():
            message = f"Path ({path}) doesn't exist."
            raise missing(message)
        names = [entry.name for entry in _entries(place)] if place.is_dir() else [""]
        return {"objects": [self._status(posixpath.join(path, name).rstrip("/")) for name in names]}

    def delete(self, request: Request) -> Mapping[str, Any]:
        """Delete a workspace file or directory."""
        body = request.json()
        self._files.delete(str(body.get("path", "")), recursive=bool(body.get("recursive")))
        return {}

    def put(self, request: Request) -> Answer:
        """Write a file of a volume from raw bytes."""
        path = _volume_path(request)
        conflict = ApiError(409, "ALREADY_EXISTS", f"The file being created already exists: {path}")
        overwrite = request.flag("overwrite")
        self._files.write(path, request.body, overwrite=overwrite, conflict=conflict)
        return nothing()

    def get(self, request: Request) -> Answer:
        """Return a file of a volume, or a range of it."""
        path = _volume_path(request)
        content = self._files.read(path)
        if content is None:
            message = f"The file being accessed is not found: {path}"
            raise missing(message, "NOT_FOUND")
        changed = self._files.place(path).stat().st_mtime
        headers = {"Last-Modified": formatdate(changed, usegmt=True), "Accept-Ranges": "bytes"}
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        if part is None:
            return Answer(200, content, BINARY, headers)
        first, last = int(part[1]), int(part[2] or len(content) - 1)
        headers["Content-Range"] = f"bytes {first}-{min(last, len(content) - 1)}/{len(content)}"
        return Answer(HTTPStatus.PARTIAL_CONTENT, content[first : last + 1], BINARY, headers)

    def make_directory(self, request: Request) -> Answer:
        """Make a directory of a volume and its parents."""
        self._files.mkdirs(_volume_path(request))
        return nothing()

    def directory(self, request: Request) -> Answer | Mapping[str, Any]:
        """Say whether a directory is there, and what lies in it."""
        path = _volume_path(request)
        place = self._files.place(path)
        if not place.is_dir():
            message = f"The directory being accessed is not found: {path}"
            raise missing(message, "NOT_FOUND")
        if request.method == "HEAD":
            return nothing(HTTPStatus.OK)
        return {"contents": [_listed(path, entry) for entry in _entries(place)]}

    def remove(self, request: Request) -> Answer:
        """Delete a file or an empty directory of a volume."""
        self._files.delete(_volume_path(request), recursive=False)
        return nothing()


class DbfsApi:
    """`/api/2.0/dbfs/…`."""

    def __init__(self, world: World) -> None:
        self._files = world.files
        self._handles: dict[int, tuple[str, bytearray]] = {}
        self._numbers = count(1)

    def add_to(self, router: Router) -> None:
        """Add the endpoints."""
        for name, method, handler in (
            ("put", "POST", self.put),
            ("create", "POST", self.create),
            ("add-block", "POST", self.add_block),
            ("close", "POST", self.close),
            ("mkdirs", "POST", self.mkdirs),
            ("delete", "POST", self.delete),
            ("read", "GET", self.read),
            ("get-status", "GET", self.status),
        ):
            router.add(method, f"/api/2.0/dbfs/{name}", Route(f"dbfs/{name}", handler))

    def put(self, request: Request) -> Mapping[str, Any]:
        """Write a file at once."""
        body = request.json()
        self._write(body["path"], base64.b64decode(body.get("contents", "")), bool(body.get("overwrite")))
        return {}

    def create(self, request: Request) -> Mapping[str, Any]:
        """Begin to write a file."""
        body = request.json()
        path = _dbfs(str(body["path"]))
        if self._files.read(path) is not None and not body.get("overwrite"):
            raise _dbfs_conflict(path)
        handle = next(self._numbers)
        self._handles[handle] = (path, bytearray())
        return {"handle": handle}

    def add_block(self, request: Request) -> Mapping[str, Any]:
        """Write on."""
        body = request.json()
        self._handle(body)[1].extend(base64.b64decode(body.get("data", "")))
        return {}

    def close(self, request: Request) -> Mapping[str, Any]:
        """Finish writing."""
        body = request.json()
        path, content = self._handle(body)
        del self._handles[int(body["handle"])]
        self._write(path, bytes(content), overwrite=True)
        return {}

    def mkdirs(self, request: Request) -> Mapping[str, Any]:
        """Make a directory and its parents."""
        self._files.mkdirs(_dbfs(str(request.json()["path"])))
        return {}

    def delete(self, request: Request) -> Mapping[str, Any]:
        """Delete a file or directory."""
        body = request.json()
        self._files.delete(_dbfs(str(body["path"])), recursive=bool(body.get("recursive")))
        return {}

    def read(self, request: Request) -> Mapping[str, Any]:
        """Return a part of a file."""
        content = self._content(request)
        at = request.number("offset")
        part = content[at : at + request.number("length", 1 << 20)]
        return {"bytes_read": len(part), "data": base64.b64encode(part).decode()}

    def status(self, request: Request) -> Mapping[str, Any]:
        """Say what lies at a path."""
        path = request.one("path")
        if self._files.place(_dbfs(path)).is_dir():
            return {"path": path, "is_dir": True, "file_size": 0}
        return {"path": path, "is_dir": False, "file_size": len(self._content(request))}

    def _content(self, request: Request) -> bytes:
        path = request.one("path")
        content = self._files.read(_dbfs(path))
        if content is None:
            message = f"No file or directory exists on path {path}."
            raise missing(message)
        return content

    def _handle(self, body: Mapping[str, Any]) -> tuple[str, bytearray]:
        found = self._handles.get(int(body["handle"]))
        if found is None:
            message = f"No such handle: {body['handle']}"
            raise missing(message)
        return found

    def _write(self, path: str, content: bytes, overwrite: bool) -> None:
        path = _dbfs(path)
        self._files.mkdirs(posixpath.dirname(path))
        self._files.write(path, content, overwrite=overwrite, conflict=_dbfs_conflict(path))


def _dbfs(path: str) -> str:
    clean = "/" + path.removeprefix("dbfs:").lstrip("/")
    return clean if clean.startswith(("/Volumes/", "/dbfs/")) else f"/dbfs{clean}"


def _dbfs_conflict(path: str) -> ApiError:
    return ApiError(400, "RESOURCE_ALREADY_EXISTS", f"A file or directory already exists at {path}.")


def _volume_path(request: Request) -> str:
    path = "/" + request.parts["path"].lstrip("/")
    if not path.startswith(("/Volumes/", "/Workspace/")):
        message = f"Invalid path: {path} must begin with /Volumes/."
        raise invalid(message)
    return path


def _shown(path: str) -> str:
    return canonical(path) if path.startswith("/Workspace") else posixpath.normpath(path)


def _entries(place: Path) -> list[Path]:
    return sorted(entry for entry in place.iterdir() if not entry.name.endswith(".part"))


def _listed(path: str, entry: Path) -> dict[str, Any]:
    shown = {
        "path": posixpath.join(path, entry.name),
        "name": entry.name,
        "is_directory": entry.is_dir(),
        "last_modified": round(entry.stat().st_mtime * 1000),
    }
    return shown if entry.is_dir() else {**shown, "file_size": entry.stat().st_size}


def _form(body: bytes, boundary: str) -> dict[str, bytes]:
    form = {}
    for part in (b"\r\n" + body).split(b"\r\n--" + boundary.encode())[1:]:
        head, separator, content = part.partition(b"\r\n\r\n")
        name = _NAME.search(head)
        if separator and name:
            form[name[1].decode()] = content
    return form

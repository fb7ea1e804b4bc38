"""Checkpoints in a volume, looked at from outside through the Files API."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflows.backends.databricks.client import Workspace, WorkspaceError, as_unavailable
from airflows.checkpoints import Checkpoint, newest

_log = logging.getLogger("airflows.databricks")
_VOLUMES = "/Volumes/"
_DEEPEST = 4
_MOST_DIRECTORIES = 200


def newest_in_volume(workspace: Workspace, directory: str, pattern: str) -> Checkpoint | None:
    """Return the newest complete checkpoint below a directory of a volume; None elsewhere.

    Names, sizes and times are laid out in an empty directory here and looked at as on a node: what is written
    in one go is taken as whole.

    Raises:
        BackendUnavailableError: nobody was asked, so nothing is known.
    """
    if not directory.startswith(_VOLUMES):
        return None
    with tempfile.TemporaryDirectory(prefix="airflows-") as name:
        here = Path(name)
        _lay_out(workspace, directory, here)
        found = newest(str(here), pattern)
    if found is None:
        return None
    inner = Path(found.path).relative_to(here)
    return Checkpoint(f"{directory.rstrip('/')}/{inner}", found.step)


def _lay_out(workspace: Workspace, directory: str, here: Path) -> None:
    waiting = [(directory, here, 0)]
    for _ in range(_MOST_DIRECTORIES):
        if not waiting:
            return
        path, place, depth = waiting.pop(0)
        for entry in _entries(workspace, path):
            name = str(entry.get("name") or str(entry.get("path") or "").rstrip("/").rpartition("/")[2])
            if not name or "/" in name or name in {".", ".."}:
                continue
            target = place / name
            if entry.get("is_directory"):
                target.mkdir(exist_ok=True)
                if depth < _DEEPEST:
                    waiting.append((f"{path.rstrip('/')}/{name}", target, depth + 1))
            else:
                # Readable JSON, and no archive: its end cannot be looked at from here.
                target.write_text("{}" if entry.get("file_size") else "")
            _set_time(target, entry.get("last_modified"))


def _set_time(place: Path, milliseconds: Any) -> None:
    if milliseconds:
        moment = float(milliseconds) / 1000
        os.utime(place, (moment, moment))


def _entries(workspace: Workspace, path: str) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    token = ""
    try:
        while True:
            query = {"page_token": token} if token else {}
            answer = workspace.get(f"/api/2.0/fs/directories{quote(path)}", **query)
            found += answer.get("contents") or ()
            token = str(answer.get("next_page_token") or "")
            if not token:
                return found
    except WorkspaceError as exc:
        if not exc.is_refusal:
            raise as_unavailable(exc) from None
        if not exc.is_missing:
            # The runs may well read it: only what is known of their progress is less.
            _log.warning("checkpoints in %s cannot be looked at from here: %s", path, exc)
        return found

"""Logs as the service leaves them among the artifacts of an attempt's MLflow run: files of about 4 MB."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from airflows.backends.databricks import states
from airflows.backends.databricks.client import Workspace, WorkspaceError, fetch_signed
from airflows.backends.databricks.states import MlflowIds, Run
from airflows.errors import BackendUnavailableError

_CHUNK = re.compile(r"logs-(\d+)\.chunk\.txt")
_VOLUME = "dbfs:/Volumes/"
_LOOK_EVERY_S = 3.0


@dataclass(slots=True)
class Chunks:
    """The log of one node of one attempt.

    Attributes:
        workspace: which is asked.
        look: returns the run as it stands.
        node: which node.
        pause: sleeps for seconds.
        attempt: which attempt; None for the newest.
    """

    workspace: Workspace
    look: Callable[[], Run]
    node: int
    pause: Callable[[float], None]
    attempt: int | None = None
    _root: str = field(default="")

    def lines(self, *, follow: bool, lines: int | None) -> Iterator[str]:
        """Yield the log's lines; see `LogReader.lines`."""
        run = self.look()
        found = self._found(run)
        if not (follow and not states.is_over(run)):
            text = self._tail(found, lines)
            all_lines = text.decode("utf-8", "replace").splitlines()
            yield from (
                all_lines if lines is None else all_lines[len(all_lines) - min(lines, len(all_lines)) :]
            )
            return
        yield from self._followed(run, lines)

    def _followed(self, run: Run, lines: int | None) -> Iterator[str]:
        read, kept, is_first = 0, b"", True
        while True:
            is_over = states.is_over(run)
            text = self._tail(self._found(run), None)
            kept += text[read:]
            read = max(read, len(text))
            *whole, kept = kept.split(b"\n")
            if is_over and kept:
                whole, kept = [*whole, kept], b""
            shown = whole[len(whole) - min(lines, len(whole)) :] if is_first and lines is not None else whole
            yield from (line.decode("utf-8", "replace") for line in shown)
            if is_over:
                return
            is_first = False
            self.pause(_LOOK_EVERY_S)
            run = self.look()

    def _found(self, run: Run) -> tuple[str, str] | None:
        """Return (MLflow run, directory) of the log, None while there is none."""
        tasks = states.attempts_of(run)
        chosen = [task for task in tasks if self.attempt in {None, states.attempt_number(task)}]
        if not chosen:
            return None
        try:
            answer = self.workspace.get("/api/2.2/jobs/runs/get-output", run_id=chosen[-1].get("run_id"))
        except WorkspaceError:
            return None
        ids = MlflowIds.of(answer)
        return (ids.run, self._directory(ids.run, states.attempt_number(chosen[-1]))) if ids.run else None

    def _directory(self, mlflow_run: str, attempt: int) -> str:
        names = {entry.rpartition("/")[2] for entry in self._list(mlflow_run, "logs")}
        for number in (attempt, 0):
            if f"attempt_{number}" in names:
                return f"logs/attempt_{number}/node_{self.node}"
        return f"logs/node_{self.node}"

    def _tail(self, found: tuple[str, str] | None, lines: int | None) -> bytes:
        """Return the end of the log, at least so many lines. A chunk that fails ends it: there is no gap."""
        if found is None:
            return b""
        mlflow_run, directory = found
        names = self._names(mlflow_run, directory)
        if lines is None:
            parts: list[bytes] = []
            for name in names:
                content = self._read(mlflow_run, f"{directory}/{name}")
                if content is None:
                    break
                parts.append(content)
            return b"".join(parts)
        text = b""
        for name in reversed(names):
            content = self._read(mlflow_run, f"{directory}/{name}")
            if content is None:
                break
            text = content + text
            if text.count(b"\n") > lines:
                break
        return text

    def _names(self, mlflow_run: str, directory: str) -> list[str]:
        listed = (path.rpartition("/")[2] for path in self._list(mlflow_run, directory))
        numbered = sorted((int(found[1]), name) for name in listed if (found := _CHUNK.fullmatch(name)))
        return [name for _, name in numbered] or ["logs-0.chunk.txt"]

    def _list(self, mlflow_run: str, path: str) -> list[str]:
        found: list[str] = []
        token = ""
        try:
            while True:
                query = {"run_id": mlflow_run, "path": path} | ({"page_token": token} if token else {})
                answer = self.workspace.get("/api/2.0/mlflow/artifacts/list", **query)
                self._root = str(answer.get("root_uri") or self._root)
                found += [str(entry.get("path") or "") for entry in answer.get("files") or ()]
                token = str(answer.get("next_page_token") or "")
                if not token:
                    return found
        except WorkspaceError:
            return found

    def _read(self, mlflow_run: str, path: str) -> bytes | None:
        """Return a chunk; None when it cannot be read."""
        try:
            if self._root.startswith(_VOLUME):
                place = f"{self._root.removeprefix('dbfs:').rstrip('/')}/{path}"
                return self.workspace.download(f"/api/2.0/fs/files{quote(place)}")
            answer: Mapping[str, Any] = self.workspace.get(
                "/api/2.0/mlflow/artifacts/credentials-for-read", run_id=mlflow_run, path=path
            )
            (signed, *_) = answer.get("credential_infos") or [{}]
            return fetch_signed(str(signed.get("signed_uri") or ""), signed.get("headers") or ())
        except (WorkspaceError, BackendUnavailableError, OSError):
            return None

"""Artifacts of runs: files that were stored, and the chunks of what nodes print."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflows.testing.workspace.exchange import Request, missing
from airflows.testing.workspace.routing import Route, Router
from airflows.testing.workspace.runs import Attempt
from airflows.testing.workspace.storage import SignedStorage
from airflows.testing.workspace.world import World

_AT = "/api/2.0/mlflow/artifacts"
_PAGE = 1000
_CHUNK = re.compile(r"(.*)/logs-(\d+)\.chunk\.txt")


class ArtifactsApi:
    """`/api/2.0/mlflow/artifacts/…`."""

    def __init__(self, world: World, storage: SignedStorage) -> None:
        self._world = world
        self._storage = storage
        self._manners = world.settings.logs
        storage.made_up = self._chunk

    def add_to(self, router: Router) -> None:
        """Add the endpoints."""
        router.add("GET", f"{_AT}/list", Route("mlflow/artifacts/list", self.listed))
        reading = Route("mlflow/artifacts/credentials-for-read", self.for_read)
        router.add("GET POST", f"{_AT}/credentials-for-read", reading)
        writing = Route("mlflow/artifacts/credentials-for-write", self.for_write)
        router.add("POST", f"{_AT}/credentials-for-write", writing)

    def listed(self, request: Request) -> Mapping[str, Any]:
        """List a directory of a run's artifacts, in pages."""
        run_id, path = request.one("run_id"), request.one("path").strip("/")
        root = self._root(run_id)
        files = {**self._storage.listed(run_id, path), **self._chunks(run_id, path)}
        at = request.number("page_token")
        page = [files[name] for name in sorted(files)][at : at + _PAGE]
        more = {"next_page_token": str(at + _PAGE)} if len(files) > at + _PAGE else {}
        return {"root_uri": root, "files": page, **more}

    def for_read(self, request: Request) -> Mapping[str, Any]:
        """Sign addresses to fetch from; any path, also of what is not there."""
        return self._credentials(request, "GET")

    def for_write(self, request: Request) -> Mapping[str, Any]:
        """Sign addresses to store at."""
        return self._credentials(request, "PUT")

    def _credentials(self, request: Request, method: str) -> Mapping[str, Any]:
        body = request.json()
        run_id = str(body.get("run_id") or request.one("run_id"))
        given = body.get("path") or request.query.get("path") or []
        self._root(run_id)
        infos = self._storage.credentials(method, run_id, [given] if isinstance(given, str) else given)
        return {"credential_infos": [{"run_id": run_id, **info} for info in infos]}

    def _root(self, run_id: str) -> str:
        """Return the artifact root of a run, which must be there."""
        mlflow = self._world.mlflow
        with mlflow.lock:
            try:
                return str(mlflow.store.get_run(run_id).info.artifact_uri)
            except mlflow.exceptions.MlflowException as exc:
                raise missing(str(exc)) from None

    def _chunks(self, run_id: str, path: str) -> dict[str, dict[str, Any]]:
        """List what the service itself stores: what nodes print, in chunks."""
        attempt = self._attempt(run_id)
        if attempt is None:
            return {}
        most, now = self._manners.chunk_bytes, self._world.clock.now()
        shown: dict[str, dict[str, Any]] = {}
        prefix = f"{path}/" if path else ""
        for node in attempt.logs.nodes():
            length = len(attempt.logs.text(node, now))
            for at in range(0, length, most):
                name = f"{self._directory(attempt, node)}/logs-{at // most}.chunk.txt"
                if name.startswith(prefix):
                    entry = prefix + name.removeprefix(prefix).partition("/")[0]
                    shown[entry] = {"path": entry, "is_dir": entry != name}
                    if entry == name:
                        shown[entry]["file_size"] = min(most, length - at)
        return shown

    def _chunk(self, run_id: str, path: str) -> bytes | None:
        attempt, named = self._attempt(run_id), _CHUNK.fullmatch(path)
        if attempt is None or named is None:
            return None
        most, at = self._manners.chunk_bytes, int(named[2]) * self._manners.chunk_bytes
        for node in attempt.logs.nodes():
            if named[1] == self._directory(attempt, node):
                return attempt.logs.text(node, self._world.clock.now())[at : at + most] or None
        return None

    def _directory(self, attempt: Attempt, node: int) -> str:
        middle = "" if self._manners.layout == "old" else f"/attempt_{attempt.number}"
        return f"logs{middle}/node_{node}"

    def _attempt(self, run_id: str) -> Attempt | None:
        with self._world.lock:
            return self._world.jobs.attempt_of(run_id)

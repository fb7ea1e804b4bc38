"""Where artifacts lie, behind signed addresses: no token is needed there, and none is taken."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflows.testing.workspace.exchange import BINARY, Answer, ApiError, Request, invalid, nothing
from airflows.testing.workspace.routing import Route, Router
from airflows.testing.workspace.world import World

_LASTS_S = 900
_HEADER = "x-storage-encryption"


class SignedStorage:
    """Files of runs and models, each below its owner's id.

    Attributes:
        made_up: returns files that nobody stored, given owner and path.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._directory = world.directory / "artifacts"
        self.made_up: Callable[[str, str], bytes | None] = lambda _owner, _path: None

    def add_to(self, router: Router) -> None:
        """Add the endpoints."""
        router.add("GET", "/__storage__/{path*}", Route("storage/get", self.fetch, is_open=True))
        router.add("PUT", "/__storage__/{path*}", Route("storage/put", self.store, is_open=True))

    def fetch(self, request: Request) -> Answer:
        """Return what lies at a signed address."""
        owner, path = self._see_signature(request)
        place = self.place(owner, path)
        content = place.read_bytes() if place.is_file() else self.made_up(owner, path)
        if content is None:
            return Answer(HTTPStatus.NOT_FOUND, b"<Error><Code>NoSuchKey</Code></Error>", "application/xml")
        return Answer(200, content, BINARY)

    def store(self, request: Request) -> Answer:
        """Store at a signed address."""
        place = self.place(*self._see_signature(request))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(request.body)
        return nothing(HTTPStatus.OK)

    def credentials(self, method: str, owner: str, paths: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return signed addresses, also of what is not there."""
        return [
            {
                "path": path,
                "signed_uri": self._signed(method, owner, path),
                "type": "AWS_PRESIGNED_URL",
                "headers": [{"name": _HEADER, "value": "AES256"}],
            }
            for path in paths
        ]

    def listed(self, owner: str, path: str) -> dict[str, dict[str, Any]]:
        """Return what lies in a directory, by path; a file is listed as itself."""
        place = self.place(owner, path)
        if place.is_file():
            return {path: {"path": path, "is_dir": False, "file_size": place.stat().st_size}}
        shown: dict[str, dict[str, Any]] = {}
        for entry in place.iterdir() if place.is_dir() else ():
            name = f"{path}/{entry.name}".lstrip("/")
            shown[name] = {"path": name, "is_dir": entry.is_dir()}
            if entry.is_file():
                shown[name]["file_size"] = entry.stat().st_size
        return shown

    def place(self, owner: str, path: str) -> Path:
        """Return where a file lies on disk.

        Raises:
            ApiError: the path leads out.
        """
        root = self._directory / owner
        place = (root / path).resolve()
        if not place.is_relative_to(root.resolve()):
            message = f"Invalid path: {path}"
            raise invalid(message)
        return place

    def _signed(self, method: str, owner: str, path: str) -> str:
        until = int(self._world.clock.now()) + _LASTS_S
        place = f"{owner}/{path}"
        signature = self._signature(method, place, until)
        query = f"X-Amz-Expires={until}&X-Amz-Signature={signature}"
        return f"{self._world.host}/__storage__/{quote(place)}?{query}"

    def _signature(self, method: str, place: str, until: int) -> str:
        text = f"{method}\n{place}\n{until}".encode()
        return hmac.new(self._world.key, text, hashlib.sha256).hexdigest()

    def _see_signature(self, request: Request) -> tuple[str, str]:
        """Return owner and path of a signed address.

        Raises:
            ApiError: it is not signed, too old, or the request carries what it must not.
        """
        if "authorization" in request.headers:
            message = "Only one auth mechanism allowed; the signed address was sent with a token."
            raise ApiError(400, "InvalidArgument", message)
        place, until = request.parts["path"], request.number("X-Amz-Expires")
        good = self._signature(request.method, place, until)
        if not hmac.compare_digest(good, request.one("X-Amz-Signature")):
            raise ApiError(403, "SignatureDoesNotMatch", "The signature does not match.")
        if until < self._world.clock.now():
            raise ApiError(403, "AccessDenied", "Request has expired")
        if request.headers.get(_HEADER) != "AES256":
            message = f"The header {_HEADER} is missing."
            raise ApiError(403, "AccessDenied", message)
        owner, _, path = place.partition("/")
        return owner, path

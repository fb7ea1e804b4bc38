"""The fake workspace over HTTP/1.1: connections, faults, recording."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote

from airflows.testing.workspace.exchange import (
    BINARY,
    NO_ANSWER,
    Answer,
    ApiError,
    Request,
    as_answer,
    missing,
)
from airflows.testing.workspace.faults import Fault
from airflows.testing.workspace.recording import Recorded
from airflows.testing.workspace.routing import Route, Router
from airflows.testing.workspace.world import World

Found: TypeAlias = tuple[Route, dict[str, str]]
CONTROL = "/__fake__/"
_LAST_ANSWERS_S = 30.0
_KEPT_BODY = 65_536


class WorkspaceServer(ThreadingHTTPServer):
    """Listens on the loopback interface, one thread a connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], world: World, router: Router) -> None:
        super().__init__(address, _Connection)
        self.world = world
        self.router = router
        self.closing = threading.Event()
        self._open: set[socket.socket] = set()
        self._open_changed = threading.Condition()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember a connection, so that closing ends it."""
        with self._open_changed:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection."""
        super().shutdown_request(request)
        with self._open_changed:
            self._open.discard(request)
            self._open_changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent about clients that went away; nothing else gets here."""

    def close_all(self) -> None:
        """Stop, and end the connections that are kept open."""
        self.closing.set()
        self.shutdown()
        with self._open_changed:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._open_changed.wait_for(lambda: not self._open, _LAST_ANSWERS_S)
        self.server_close()


class _Connection(BaseHTTPRequestHandler):
    """One client; `handle` is called by the base class for as long as the connection is kept."""

    protocol_version = "HTTP/1.1"
    # Headers and body would otherwise wait for each other's acknowledgement.
    disable_nagle_algorithm = True
    wbufsize = -1
    server: WorkspaceServer

    def _serve(self) -> None:
        world, request = self.server.world, self._request()
        found = self.server.router.find(request.method, request.path)
        if request.path.startswith(CONTROL):
            self._send(self._run(request, found))
            return
        recorded = _recorded(world, request, found)
        refusal = self._recognise(request, found, recorded)
        world.recorder.begin(recorded)
        answer: Answer | None = None
        try:
            fault = world.faults.pick(recorded.route, request, recorded.at_once)
            recorded.fault = fault.label if fault else ""
            answer = self._answer(request, found, fault, refusal)
        finally:
            world.recorder.end(recorded, answer.status if answer else NO_ANSWER)
        if answer is None:
            self.close_connection = True
        else:
            self._send(answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _serve  # noqa: N815 - names of the base class

    def finish(self) -> None:
        """Let go of the connection, also of one whose client went away amid the answer."""
        with contextlib.suppress(OSError):
            super().finish()
        self.rfile.close()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Keep silent; requests are recorded."""

    def version_string(self) -> str:
        """Return what the Server header says."""
        return "databricks"

    def _request(self) -> Request:
        target, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        length = int(headers.get("content-length") or 0)
        if "chunked" in headers.get("transfer-encoding", "").lower():
            body = self._chunks()
        else:
            body = self.rfile.read(length) if length else b""
        parsed = parse_qs(query, keep_blank_values=True)
        return Request(self.command, unquote(target), parsed, headers, body)

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _recognise(self, request: Request, found: Found | None, recorded: Recorded) -> ApiError | None:
        if found is not None and found[0].is_open:
            return None
        try:
            request.user = self.server.world.user(request)
        except ApiError as exc:
            return exc
        recorded.user, recorded.is_job = request.user.name, request.user.is_job
        return None

    def _answer(
        self,
        request: Request,
        found: Found | None,
        fault: Fault | None,
        refusal: ApiError | None,
    ) -> Answer | None:
        """Return what is sent; None for closing the connection."""
        if fault is not None and fault.delay_s:
            self.server.closing.wait(fault.delay_s)
        if fault is not None and fault.replaces and fault.when == "before":
            return None if fault.drop else fault.answer()
        answer = refusal.answer() if refusal is not None else self._run(request, found)
        if fault is None:
            return answer
        if fault.replaces:
            return None if fault.drop else fault.answer()
        answer.cut = fault.cut
        return answer

    def _run(self, request: Request, found: Found | None) -> Answer:
        if found is None:
            message = f"No API found for '{request.method} {request.path}'"
            return missing(message, "ENDPOINT_NOT_FOUND").answer()
        route, request.parts = found
        try:
            self.server.world.settle()
            return as_answer(route.handler(request))
        except ApiError as exc:
            return exc.answer()
        except Exception as exc:  # noqa: BLE001 - a fake that hides its own mistakes is worse than none
            self.server.world.recorder.broken.append(f"{request.method} {request.path}: {exc!r}")
            return as_answer({"error_code": "FAKE_WORKSPACE_BROKEN", "message": repr(exc)}, 500)

    def _send(self, answer: Answer) -> None:
        body = b"" if answer.status == HTTPStatus.NO_CONTENT else answer.body
        self.send_response(answer.status)
        self.send_header("X-Databricks-Org-Id", self.server.world.settings.workspace_id)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if "Content-Length" not in answer.headers and answer.status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(body)))
        if body or answer.content_type == BINARY:
            self.send_header("Content-Type", answer.content_type)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if answer.cut else body)
        self.wfile.flush()
        if answer.cut:
            self.close_connection = True


def _recorded(world: World, request: Request, found: Found | None) -> Recorded:
    return Recorded(
        number=0,
        time=world.clock.now(),
        route=found[0].name if found else "",
        method=request.method,
        path=request.path,
        query={name: values[-1] for name, values in request.query.items()},
        has_authorization="authorization" in request.headers,
        body=_kept_body(request),
    )


def _kept_body(request: Request) -> Any:
    if "json" not in request.headers.get("content-type", "") or not 0 < len(request.body) <= _KEPT_BODY:
        return None
    try:
        return json.loads(request.body)
    except ValueError:
        return None

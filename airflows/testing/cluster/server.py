"""The fake API server over HTTP/1.1: connections, faults, recording, streams."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote

from airflows.testing.cluster.api import Api
from airflows.testing.cluster.control import CONTROL, Control
from airflows.testing.cluster.exchange import Answer, Request, refusal
from airflows.testing.cluster.faults import Fault
from airflows.testing.cluster.messages import ApiError
from airflows.testing.cluster.world import World
from airflows.testing.workspace.recording import Recorded

_NO_ANSWER = 0
_LAST_ANSWERS_S = 30.0
_ZIPPED_FROM, _KEPT_BODY = 131_072, 65_536


class ApiServer(ThreadingHTTPServer):
    """Listens on the loopback interface, one thread a connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], world: World, api: Api, control: Control) -> None:
        super().__init__(address, _Connection)
        self.world, self.api, self.control = world, api, control
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
        self.world.closing.set()
        with self.world.lock:
            self.world.changed.notify_all()
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
    server: ApiServer

    def _serve(self) -> None:
        request = self._request()
        if request.path.startswith(CONTROL):
            self._send(self._run(request, self.server.control.answer), request)
            return
        route = self.server.api.route(request)
        recorded = self._recorded(request, route)
        self.server.world.recorder.begin(recorded)
        answer: Answer | None = None
        try:
            text = f"{self.path}\n{request.body.decode('latin-1')}"
            fault = self.server.world.faults.pick(route, text)
            recorded.fault = fault.label if fault else ""
            answer = self._answer(request, fault)
        finally:
            self.server.world.recorder.end(recorded, answer.status if answer else _NO_ANSWER)
        if answer is None:
            self.close_connection = True
        else:
            self._send(answer, request)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _serve  # noqa: N815 - names of the base class

    def finish(self) -> None:
        """Let go of the connection, also of one whose client went away amid the answer."""
        with contextlib.suppress(OSError):
            super().finish()
        self.rfile.close()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Keep silent; requests are recorded."""

    def _request(self) -> Request:
        target, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self._body(headers)
        parsed = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
        return Request(self.command, unquote(target), parsed, headers, body)

    def _body(self, headers: dict[str, str]) -> bytes:
        if "chunked" not in headers.get("transfer-encoding", "").lower():
            length = int(headers.get("content-length") or 0)
            return self.rfile.read(length) if length else b""
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _recorded(self, request: Request, route: str) -> Recorded:
        world = self.server.world
        account = world.access.users.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        return Recorded(
            number=0,
            time=world.clock.now(),
            route=route,
            method=request.method,
            path=request.path,
            query=request.query,
            user=account.name if account else "",
            has_authorization="authorization" in request.headers,
            body=_kept_body(request),
        )

    def _answer(self, request: Request, fault: Fault | None) -> Answer | None:
        """Return what is sent; None for closing the connection."""
        if fault is not None and fault.delay_s:
            self.server.world.closing.wait(fault.delay_s)
        if fault is not None and fault.replaces and fault.when == "before":
            return None if fault.drop else _of_fault(fault)
        answer = self._run(request, self.server.api.answer)
        if fault is None:
            return answer
        if fault.replaces:
            return None if fault.drop else _of_fault(fault)
        answer.is_cut = fault.cut
        if fault.stall and answer.stream is not None:
            answer.stream = self._stall
        if fault.event and answer.stream is not None:
            line = json.dumps({"type": "ERROR", "object": fault.error().status()}).encode()
            answer.stream = lambda: iter([line + b"\n"])
        return answer

    def _stall(self) -> Any:
        self.server.world.closing.wait()
        yield from ()

    def _run(self, request: Request, handler: Callable[[Request], Answer]) -> Answer:
        world = self.server.world
        with world.lock:
            try:
                world.settle()
                return handler(request)
            except ApiError as exc:
                return refusal(exc)
            except Exception as exc:  # noqa: BLE001 - a fake that hides its own mistakes is worse than none
                world.recorder.broken.append(f"{request.method} {request.path}: {exc!r}")
                return refusal(ApiError(500, "InternalError", f"the fake API server broke: {exc!r}"))
            finally:
                world.settle()

    def _send(self, answer: Answer, request: Request) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.content_type)
        if answer.stream is not None:
            self._send_stream(answer)
            return
        body = answer.body
        if len(body) > _ZIPPED_FROM and "gzip" in request.headers.get("accept-encoding", ""):
            body = gzip.compress(body, compresslevel=1)
            self.send_header("Content-Encoding", "gzip")
        if answer.status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if answer.is_cut else body)
        self.wfile.flush()
        if answer.is_cut:
            self.close_connection = True

    def _send_stream(self, answer: Answer) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for part in answer.stream() if answer.stream else ():
            if answer.is_cut:
                self.wfile.write(b"%x\r\n%s" % (len(part), part[: len(part) // 2]))
                self.close_connection = True
                return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()


def _of_fault(fault: Fault) -> Answer:
    if fault.body is not None:
        return Answer(fault.status or 500, fault.body.encode(), "text/html")
    return refusal(fault.error())


def _kept_body(request: Request) -> Any:
    if "json" not in request.headers.get("content-type", "") or not 0 < len(request.body) <= _KEPT_BODY:
        return None
    try:
        return json.loads(request.body)
    except ValueError:
        return None

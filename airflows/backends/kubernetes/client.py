"""Requests to an API server: dicts over lightkube's transport. The only module that imports it, late."""

from __future__ import annotations

import http
import json
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from airflows.backends.kubernetes.kubeconfig import IN_CLUSTER, Access, find_access
from airflows.backends.kubernetes.refusals import ApiError, in_words, refusal_of
from airflows.errors import BackendUnavailableError, MissingExtraError

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

INSTALL = 'Run: pip install "airflows[kubernetes]"'
AT_ONCE = 8
"""Requests that are under way at the same time, streams of logs aside."""
PAGE = 500
_TIMEOUT_S = 30.0
_STREAM_TIMEOUT_S = 300.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 5.0
_MOST_RESTARTS = 3
_UNAUTHORIZED, _GONE = 401, 410


class Api:
    """One API server, as one user.

    Args:
        kubeconfig: file to read; None for where kubectl looks.
        context: in it; None for the current one.
        namespace: None for the context's.
        environ: the driver's environment.
        patience_s: how long a request is repeated while the server is busy.
        pause: sleeps for seconds.
    """

    def __init__(
        self,
        kubeconfig: Path | None,
        context: str | None,
        namespace: str | None,
        environ: Mapping[str, str],
        patience_s: float,
        pause: Callable[[float], None],
    ) -> None:
        self._kubeconfig, self._context, self._namespace = kubeconfig, context, namespace
        self._environ = environ
        self._patience_s = patience_s
        self._pause = pause
        self._opening = threading.Lock()
        self._opened: tuple[Access, Any] | None = None
        self._pinned: Access | None = None
        # The one in use, and the one before it, with which other threads may not be done.
        self._clients: list[Any] = []
        weakref.finalize(self, _close, self._clients)

    # Where and who

    @property
    def namespace(self) -> str:
        """The namespace that everything is in."""
        return self._namespace or self._client()[0].namespace

    @property
    def host(self) -> str:
        """The server's address."""
        return self._client()[0].server

    @property
    def context(self) -> str:
        """The name of the context."""
        return self._client()[0].context

    # Asking

    def get(self, path: str, /, **query: Any) -> dict[str, Any]:
        """Return an object, or whatever a GET of a path answers."""
        return _as_dict(self._send("GET", path, query, repeats=True))

    def post(self, path: str, body: Mapping[str, Any], /, **query: Any) -> dict[str, Any]:
        """Return the answer to a POST; only what was certainly not taken is sent again."""
        return _as_dict(self._send("POST", path, query, body, repeats=False))

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        """Merge something into an object."""
        self._send("PATCH", path, {}, body, repeats=True)

    def delete(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a DELETE."""
        return _as_dict(self._send("DELETE", path, {}, body, repeats=True))

    def text(self, path: str, /, **query: Any) -> str:
        """Return the text that a GET answers, such as a log."""
        answer = self._send("GET", path, query, repeats=True)
        return str(answer.content.decode("utf-8", errors="replace"))

    def items(self, path: str, /, **query: Any) -> list[dict[str, Any]]:
        """Return all objects of a list, page by page; a page whose token ran out starts it again.

        Raises:
            ApiError: the server refuses.
            BackendUnavailableError: it did not answer, or the list never came to an end.
        """
        for _ in range(_MOST_RESTARTS):
            try:
                return [one for page in self._pages(path, query) for one in page]
            except ApiError as exc:
                if exc.status != _GONE:
                    raise
        message = (
            f"the cluster could not finish the list of {path.rpartition('/')[2]}: it had expired each time."
        )
        raise BackendUnavailableError(message)

    def _pages(self, path: str, query: Mapping[str, Any]) -> Iterator[Sequence[dict[str, Any]]]:
        token = ""
        while True:
            more = {"continue": token} if token else {}
            answer = self.get(path, limit=PAGE, **query, **more)
            yield answer.get("items") or ()
            token = str((answer.get("metadata") or {}).get("continue") or "")
            if not token:
                return

    @contextmanager
    def stream(self, path: str, /, **query: Any) -> Iterator[Iterator[str]]:
        """Give the lines of an answer as they come.

        Raises:
            ApiError: the server refuses.
            BackendUnavailableError: the connection was lost.
        """
        client = self._client()[1]
        request = client.build_request("GET", path, params=query, timeout=_STREAM_TIMEOUT_S)
        with self._reached():
            answer = client.send(request, stream=True)
            try:
                if answer.status_code >= http.HTTPStatus.BAD_REQUEST:
                    raise _error_of(answer.read(), answer)
                yield answer.iter_lines()
            finally:
                answer.close()

    def each(self, call: Callable[[_Item], _Answer], items: Sequence[_Item]) -> list[_Answer]:
        """Call something for each item, a few at once; answer in their order."""
        if len(items) < 2:  # noqa: PLR2004 - nothing to do at once
            return [call(item) for item in items]
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="kubernetes") as pool:
            return list(pool.map(call, items))

    # Sending

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        body: Mapping[str, Any] | None = None,
        *,
        repeats: bool,
    ) -> Any:
        """Send one request, again while the server is busy and, with `repeats`, while it is silent.

        Raises:
            ApiError: it refuses; or a request that must not be repeated may have had its effect.
            BackendUnavailableError: it did not answer.
        """
        waited, wait, renewed = 0.0, _FIRST_WAIT_S, False
        while True:
            # Without a configuration, asking again is no use.
            client = self._client()[1]
            try:
                answer = self._once(client, method, path, query, body)
            except BackendUnavailableError:
                if not repeats or waited >= self._patience_s:
                    raise
                due: float = wait
            else:
                if answer.status_code < http.HTTPStatus.BAD_REQUEST:
                    return answer
                error = _error_of(answer.content, answer)
                if error.status == _UNAUTHORIZED and not renewed:
                    # A new token may be in the file by now.
                    renewed = True
                    self._forget(client)
                    continue
                may_repeat = error.status == http.HTTPStatus.TOO_MANY_REQUESTS or (repeats and error.is_busy)
                if not may_repeat or waited >= self._patience_s:
                    raise error
                due = wait if error.retry_after_s is None else error.retry_after_s
            self._pause(due)
            waited, wait = waited + max(due, _FIRST_WAIT_S), min(2 * wait, _LONGEST_WAIT_S)

    def _once(
        self, client: Any, method: str, path: str, query: Mapping[str, Any], body: Mapping[str, Any] | None
    ) -> Any:
        content = None if body is None else json.dumps(body).encode()
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {} if body is None else {"Content-Type": kind}
        with self._reached():
            return client.request(method, path, params=dict(query), content=content, headers=headers)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Turn what goes wrong on the way to the server, credentials included, into our error.

        Raises:
            BackendUnavailableError: it did not answer, or was not asked.
        """
        adapter = load_lightkube()
        try:
            yield
        except (adapter.httpx.HTTPError, adapter.httpx.StreamError) as exc:
            raise self._unavailable(exc) from None
        except (adapter.ConfigError, OSError, ValueError, LookupError) as exc:
            # A program for tokens that is missing or fails; what it printed may be a secret.
            why = str(exc).partition(":")[0] if isinstance(exc, adapter.ConfigError) else type(exc).__name__
            message = f"there are no credentials for {self.host}: {why}."
            raise BackendUnavailableError(message, hint="See that `kubectl get pods` works.") from None

    def _unavailable(self, exc: Exception) -> BackendUnavailableError:
        why = " ".join(str(exc).split()) or type(exc).__name__
        return BackendUnavailableError(f"the cluster {self.host} did not answer: {why}.")

    # Opening

    def _client(self) -> tuple[Access, Any]:
        with self._opening:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def _forget(self, client: Any) -> None:
        with self._opening:
            # Of several threads that were refused at once, one makes it anew.
            if self._opened is None or self._opened[1] is not client:
                return
            self._opened = None
            _close(self._clients, but=1)

    def _find_access(self) -> Access:
        """Return where to go: once opened, always the same place, whatever the files say by now.

        Raises:
            BackendUnavailableError: nothing leads there.
        """
        pinned = self._pinned
        context = self._context
        if pinned is not None and pinned.context != IN_CLUSTER:
            context = pinned.context
        access = find_access(self._kubeconfig, context, self._environ)
        if pinned is not None and access.place != pinned.place:
            message = (
                f"context {access.context} led to namespace {pinned.namespace} of {pinned.server}, and now"
                f" leads to namespace {access.namespace} of {access.server}."
            )
            raise BackendUnavailableError(message, hint="Put the kubeconfig back, or start airflows again.")
        return access

    def _open(self) -> tuple[Access, Any]:
        adapter = load_lightkube()
        models, config = (
            import_module("lightkube.config.models"),
            import_module("lightkube.config.kubeconfig"),
        )
        convert = import_module("msgspec").convert
        access = self._find_access()
        single = config.SingleConfig(
            access.context,
            models.Context(cluster=access.context),
            convert(dict(access.cluster), models.Cluster),
            convert(dict(access.user), models.User),
        )
        try:
            client = adapter.Client(
                single, adapter.ConnectionParams(timeout=adapter.httpx.Timeout(_TIMEOUT_S))
            )
        except (OSError, ValueError, adapter.ConfigError) as exc:
            message = f"the configuration of context {access.context} cannot be used: {exc}."
            raise BackendUnavailableError(message) from None
        self._pinned = access
        self._clients.append(client)
        return access, client


def load_lightkube() -> Any:
    """Return lightkube's transport.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return import_module("lightkube.config.client_adapter")
    except ModuleNotFoundError as exc:
        message = f"the Kubernetes backend needs lightkube: {exc.name} is not installed."
        raise MissingExtraError(message, hint=INSTALL) from None


def as_unavailable(error: ApiError, namespace: str) -> BackendUnavailableError:
    """Return our error for a refusal that tells nothing about a run."""
    return BackendUnavailableError(f"Kubernetes: {in_words(error, namespace)}")


def _close(clients: list[Any], but: int = 0) -> None:
    while len(clients) > but:
        clients.pop(0).close()


def _error_of(content: bytes, answer: Any) -> ApiError:
    return refusal_of(
        answer.status_code, content.decode("utf-8", errors="replace"), answer.headers.get("Retry-After", "")
    )


def _as_dict(answer: Any) -> dict[str, Any]:
    try:
        found = json.loads(answer.content)
    except ValueError:
        message = "the cluster answered with something that is no JSON."
        raise BackendUnavailableError(message) from None
    return found if isinstance(found, dict) else {}

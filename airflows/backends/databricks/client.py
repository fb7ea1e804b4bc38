"""Requests to a workspace, through databricks-sdk: the only module that imports it, on the first request.

The SDK finds the credentials, repeats what a busy workspace refuses (429 and 503, as `Retry-After` says) and
what the network loses. Paths and bodies are our own, so that a field its classes do not have yet, or no
longer have, is no obstacle.
"""

from __future__ import annotations

import configparser
import http.client
import json
import logging
import threading
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from airflows.errors import BackendUnavailableError, MissingExtraError

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

AT_ONCE = 8
"""Requests that are under way at the same time, of whatever kind."""
_HTTP_TIMEOUT_S = 60.0
_SIGNED_TIMEOUT_S = 60.0
_MOST_CHARACTERS = 300
_STATUS = {
    "BadRequest": 400,
    "Unauthenticated": 401,
    "PermissionDenied": 403,
    "NotFound": 404,
    "ResourceConflict": 409,
    "TooManyRequests": 429,
    "Cancelled": 499,
    "NotImplemented": 501,
    "TemporarilyUnavailable": 503,
    "DeadlineExceeded": 504,
    "InternalError": 500,
}
INSTALL = 'Run: pip install "airflows[databricks]"'


class WorkspaceError(Exception):
    """The workspace answered, and the answer is an error.

    Attributes:
        message: its words.
        code: its `error_code`, such as `FEATURE_DISABLED`.
        status: the HTTP status, as far as the SDK tells it; 0 when it does not, as for a 502.
        is_repeat: the request was sent before, and that may have had its effect.
    """

    def __init__(self, message: str, code: str, status: int, *, is_repeat: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.is_repeat = is_repeat

    @property
    def is_disabled(self) -> bool:
        """Whether the feature is off in this workspace."""
        return self.code == "FEATURE_DISABLED"

    @property
    def is_missing(self) -> bool:
        """Whether what was asked for does not exist."""
        return self.status == 404 or self.code in {"RESOURCE_DOES_NOT_EXIST", "NOT_FOUND"}  # noqa: PLR2004

    @property
    def is_refusal(self) -> bool:
        """Whether asking again would bring the same answer: 4xx but for credentials and too many requests."""
        return self.is_missing or self.status in {400, 403, 409, 501}

    @property
    def exists_already(self) -> bool:
        """Whether what was to be made is there."""
        return self.status == 409 or self.message.rstrip(".").endswith("already exists")  # noqa: PLR2004


class Workspace:
    """One workspace, as one user.

    Args:
        profile: of ~/.databrickscfg; None leaves it to the SDK.
        patience_s: how long a request is repeated.
        timeout_s: how long one answer is waited for.
    """

    def __init__(self, profile: str | None, patience_s: float, timeout_s: float = _HTTP_TIMEOUT_S) -> None:
        self._profile = profile
        self._patience_s = patience_s
        self._timeout_s = timeout_s
        self._gate = threading.BoundedSemaphore(AT_ONCE)
        self._opening = threading.Lock()
        self._api: Any = None
        self._me: Mapping[str, Any] | None = None

    # Who and where

    @property
    def host(self) -> str:
        """The workspace's address."""
        return str(self._client.config.host).rstrip("/")

    def me(self) -> Mapping[str, Any]:
        """Return who the credentials belong to; asked once."""
        if self._me is None:
            answer = self._call(
                "GET", "/api/2.0/preview/scim/v2/Me", response_headers=["X-Databricks-Org-Id"]
            )
            self._me = answer if isinstance(answer, dict) else {}
        return self._me

    @property
    def workspace_id(self) -> str:
        """The workspace's number, empty where it does not tell."""
        found = [value for name, value in self.me().items() if name.lower() == "x-databricks-org-id"]
        return str(found[0] or "") if found else ""

    # Asking

    def get(self, path: str, /, **query: Any) -> dict[str, Any]:
        """Return the answer to a GET. Names may hold dots, as in `**{"ref.attempt_number": 0}`."""
        return _as_dict(self._call("GET", path, query=query))

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a POST."""
        return _as_dict(self._call("POST", path, body=dict(body)))

    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a PATCH."""
        return _as_dict(self._call("PATCH", path, body=dict(body)))

    def head(self, path: str) -> None:
        """Return when it is there."""
        self._call("HEAD", path)

    def send(self, method: str, path: str, content: bytes, /, **query: Any) -> None:
        """Send raw bytes."""
        headers = {"Content-Type": "application/octet-stream"}
        self._call(method, path, query=query, data=content, headers=headers)

    def download(self, path: str, /, **query: Any) -> bytes:
        """Return the raw bytes of an answer."""
        answer = self._call("GET", path, query=query, raw=True)
        contents = answer["contents"]
        try:
            return bytes(contents.read())
        finally:
            contents.close()

    def each(self, call: Callable[[_Item], _Answer], items: Sequence[_Item]) -> list[_Answer]:
        """Call something for each item, a few at once; answer in their order."""
        if len(items) < 2:  # noqa: PLR2004 - nothing to do at once
            return [call(item) for item in items]
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="databricks") as pool:
            return list(pool.map(call, items))

    def _call(self, method: str, path: str, **options: Any) -> Any:
        """Send one request.

        Raises:
            WorkspaceError: the workspace answered with an error.
            BackendUnavailableError: it did not answer in time, or nobody could be asked.
        """
        client = self._client
        sign = _Signature(client.config.authenticate)
        try:
            with self._gate:
                return client.api_client.do(method, path, auth=sign, **options)
        except Exception as exc:  # noqa: BLE001
            # The SDK lets exceptions of its own, of requests and of its credential providers through.
            raise _translated(exc, is_repeat=sign.count > 1) from None

    @property
    def _client(self) -> Any:
        with self._opening:
            if self._api is None:
                self._api = self._open()
        return self._api

    def _open(self) -> Any:
        sdk = load_sdk()
        core = import_module("databricks.sdk.core")
        known = {"profile": self._profile} if self._profile else {}
        try:
            config = core.Config(
                retry_timeout_seconds=max(1, round(self._patience_s)),
                http_timeout_seconds=self._timeout_s,
                product="airflows",
                **known,
            )
            client = sdk.WorkspaceClient(config=config)
        except Exception as exc:  # noqa: BLE001 - each way to get credentials has its own
            raise _no_credentials(exc, self._profile) from None
        if self._profile:
            _require_host_of(self._profile, config)
        return client


class _Signature:
    """Signs a request each time it is sent, and counts that: the SDK does not tell how often it tried."""

    def __init__(self, headers: Callable[[], Mapping[str, str]]) -> None:
        self._headers = headers
        self.count = 0

    def __call__(self, request: Any) -> Any:
        self.count += 1
        request.headers.update(self._headers())
        return request


def load_sdk() -> ModuleType:
    """Return databricks-sdk.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sdk = import_module("databricks.sdk")
    except ModuleNotFoundError as exc:
        message = f"the Databricks backend needs databricks-sdk: {exc.name} is not installed."
        raise MissingExtraError(message, hint=INSTALL) from None
    logger = logging.getLogger("databricks.sdk")
    if logger.level == logging.NOTSET:
        # It warns of each workspace that does not tell its login pages, which tokens do not need.
        logger.setLevel(logging.ERROR)
    return sdk


def fetch_signed(address: str, headers: Iterable[Mapping[str, str]]) -> bytes:
    """Return what a signed address leads to, asked without the workspace's credentials.

    Args:
        address: as the workspace gave it.
        headers: demanded with it, each with `name` and `value`.

    Raises:
        OSError: it cannot be fetched.
    """
    if urlsplit(address).scheme not in {"http", "https"}:
        message = "the workspace gave an address that is not http"
        raise OSError(message)
    wanted = {str(each["name"]): str(each["value"]) for each in headers}
    request = urllib.request.Request(address, headers=wanted)  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(request, timeout=_SIGNED_TIMEOUT_S) as answer:  # noqa: S310
            return bytes(answer.read())
    except urllib.error.HTTPError as exc:
        exc.close()
        message = f"the signed address answered {exc.code}"
        raise OSError(message) from None
    except http.client.HTTPException as exc:
        # Such as an answer that was cut short, which is no OSError.
        message = f"the signed address answered amiss: {type(exc).__name__}"
        raise OSError(message) from None


# What goes wrong


def _as_dict(answer: Any) -> dict[str, Any]:
    return answer if isinstance(answer, dict) else {}


def _translated(exc: Exception, *, is_repeat: bool) -> Exception:
    if isinstance(exc, BackendUnavailableError | MissingExtraError):
        return exc
    if isinstance(exc, TimeoutError):
        last = exc.__cause__
        why = _sentence(str(last)) if last is not None else "no answer in time."
        return BackendUnavailableError(f"the Databricks workspace is not available: {why}")
    names = [kind.__name__ for kind in type(exc).__mro__]
    if "DatabricksError" not in names:
        return BackendUnavailableError(f"the Databricks workspace did not answer: {_sentence(str(exc))}")
    status = next((_STATUS[name] for name in names if name in _STATUS), 0)
    code = str(getattr(exc, "error_code", "") or "")
    return WorkspaceError(_sentence(str(exc)), code, status, is_repeat=is_repeat)


def _no_credentials(exc: Exception, profile: str | None) -> BackendUnavailableError:
    where = f"profile {profile}" if profile else "the environment and ~/.databrickscfg"
    said = str(exc)
    # The SDK's longest way of saying that there are none.
    why = "." if said.startswith("default auth: cannot configure") else f": {_sentence(said)}"
    message = f"no Databricks credentials were found in {where}{why}"
    hint = "Run `databricks auth login`, name a profile (-p), or set DATABRICKS_HOST and DATABRICKS_TOKEN."
    return BackendUnavailableError(message, hint=hint)


def _require_host_of(profile: str, config: Any) -> None:
    """Check that a profile leads where it says: for the SDK the environment goes first.

    Raises:
        BackendUnavailableError: it leads elsewhere.
    """
    known = configparser.ConfigParser(interpolation=None, default_section="")
    known.read(Path(config.config_file or "~/.databrickscfg").expanduser())
    theirs = _bare_host(known.get(profile, "host", fallback=""))
    if theirs and theirs != _bare_host(config.host):
        message = f"profile {profile} is for {theirs}, but DATABRICKS_HOST is {_bare_host(config.host)}."
        raise BackendUnavailableError(message, hint="Unset DATABRICKS_HOST, or name no profile.")


def _bare_host(address: str) -> str:
    parts = urlsplit(address if "://" in address else f"https://{address}")
    return parts.netloc.rstrip("/").lower()


def _sentence(text: str) -> str:
    """Return an error's first words: the SDK adds its configuration behind them."""
    said = text.partition(". Config:")[0].partition(" Config: ")[0].strip()
    try:
        loaded = json.loads(said)
        said = str(loaded.get("message") or said) if isinstance(loaded, dict) else said
    except ValueError:
        pass
    said = " ".join(said.split()) or "no reason given"
    said = said if len(said) <= _MOST_CHARACTERS else f"{said[: _MOST_CHARACTERS - 1]}…"
    return said if said.endswith((".", "!", "?", "…")) else f"{said}."


def as_unavailable(exc: WorkspaceError) -> BackendUnavailableError:
    """Return our error for an answer that tells nothing about a run: the credentials, or the service."""
    hint = None
    if exc.status in {401, 403}:
        hint = "Check the credentials: `databricks auth describe` shows which are used."
    return BackendUnavailableError(f"the Databricks workspace answers: {exc.message}", hint=hint)

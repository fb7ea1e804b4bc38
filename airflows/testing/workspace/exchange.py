"""Requests and answers of the fake workspace, and errors as Databricks words them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeAlias

JSON = "application/json"
BINARY = "application/octet-stream"
NO_ANSWER = 0
"""Status of a request whose connection was closed without an answer."""


@dataclass(frozen=True, slots=True)
class User:
    """Who a token belongs to.

    Attributes:
        name: as in `userName`.
        id: of the user in SCIM.
        is_job: the token was given to a run's own processes.
    """

    name: str
    id: str = "1"
    is_job: bool = False


@dataclass(slots=True)
class Request:
    """One request as its route sees it.

    Attributes:
        method: in capitals.
        path: decoded, without the query.
        query: each parameter with its values, decoded.
        headers: names in lower case.
        body: raw bytes.
        user: whose token it carries; nobody on routes that ask for none.
        parts: what the route's pattern caught.
    """

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes = b""
    user: User = field(default_factory=lambda: User(""))
    parts: Mapping[str, str] = field(default_factory=dict)

    def one(self, name: str, default: str = "") -> str:
        """Return the last value of a query parameter."""
        values = self.query.get(name)
        return values[-1] if values else default

    def flag(self, name: str) -> bool:
        """Return a query parameter that is `true` or `false`."""
        return self.one(name).lower() == "true"

    def number(self, name: str, default: int = 0) -> int:
        """Return a query parameter that is a whole number."""
        text = self.one(name)
        if not text:
            return default
        try:
            return int(text)
        except ValueError:
            message = f"Could not parse request object: {name} is no number: {text!r}"
            raise invalid(message) from None

    def json(self) -> dict[str, Any]:
        """Return the body, which is a JSON object; an empty body is an empty one."""
        if not self.body:
            return {}
        try:
            value = json.loads(self.body)
        except ValueError as exc:
            raise ApiError(400, "MALFORMED_REQUEST", f"Could not parse request object: {exc}") from None
        if not isinstance(value, dict):
            raise ApiError(400, "MALFORMED_REQUEST", "Could not parse request object: not an object")
        return value


@dataclass(slots=True)
class Answer:
    """What is sent back.

    Attributes:
        status: HTTP status.
        body: raw bytes.
        content_type: of the body.
        headers: further ones.
        cut: close the connection after half of the body.
    """

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


Handler: TypeAlias = Callable[[Request], "Mapping[str, Any] | Answer"]


class ApiError(Exception):
    """An error answer: `{"error_code", "message"}` with a status."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})

    def answer(self) -> Answer:
        """Return it as it goes over the wire."""
        return as_answer({"error_code": self.code, "message": self.message}, self.status, self.headers)


def as_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return a value as JSON; an answer as it is."""
    if isinstance(value, Answer):
        return value
    return Answer(status, json.dumps(value).encode(), JSON, headers or {})


def nothing(status: HTTPStatus = HTTPStatus.NO_CONTENT, **headers: str) -> Answer:
    """Return an answer without a body."""
    return Answer(status, b"", JSON, {name.replace("_", "-"): value for name, value in headers.items()})


def invalid(message: str) -> ApiError:
    """Return the error for a value that cannot be."""
    return ApiError(400, "INVALID_PARAMETER_VALUE", message)


def missing(message: str, code: str = "RESOURCE_DOES_NOT_EXIST") -> ApiError:
    """Return the error for what is not there."""
    return ApiError(404, code, message)

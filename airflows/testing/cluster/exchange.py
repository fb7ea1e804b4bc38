"""Requests and answers of the fake API server, and what a path means."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflows.testing.cluster.access import Asked
from airflows.testing.cluster.kinds import Kind
from airflows.testing.cluster.messages import ApiError, Json, bad_request, no_such_resource

JSON = "application/json"


@dataclass(slots=True)
class Request:
    """One request.

    Attributes:
        method: in capitals.
        path: decoded, without the query.
        query: last value of each parameter.
        headers: names in lower case.
        body: as it came.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        """Without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip()

    def json(self) -> Any:
        """Return the body.

        Raises:
            ApiError: 400 when it is no JSON.
        """
        try:
            return json.loads(self.body) if self.body else {}
        except ValueError as exc:
            message = f"couldn't get version/kind; json parse error: {exc}"
            raise bad_request(message) from None

    def object(self) -> Json:
        """Return the body, which must be an object.

        Raises:
            ApiError: 400 when it is none.
        """
        body = self.json()
        if not isinstance(body, dict):
            message = "the object provided is unrecognized (must be of type Job)"
            raise bad_request(message)
        return body

    def is_true(self, name: str) -> bool:
        """Whether a parameter is set."""
        return self.query.get(name, "").lower() in ("true", "1")


@dataclass(slots=True)
class Answer:
    """What is sent: a body, or a stream of parts that ends when its iterator does."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    stream: Callable[[], Iterator[bytes]] | None = None
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """What a path means.

    Attributes:
        kind: the resource; its `versions` begin with the one that was asked for.
        namespace: empty for all, or for what has none.
        name: empty for all.
        sub: such as `log` or `status`.
    """

    kind: Kind
    namespace: str = ""
    name: str = ""
    sub: str = ""

    def asked(self, verb: str) -> Asked:
        """Return it as access rules see it."""
        resource = f"{self.kind.resource}/{self.sub}" if self.sub else self.kind.resource
        return Asked(verb, resource, self.kind.group, self.namespace, self.name)


def as_answer(body: Json, status: int = 200) -> Answer:
    """Return JSON."""
    return Answer(status, json.dumps(body, separators=(",", ":")).encode())


def refusal(error: ApiError) -> Answer:
    """Return an error."""
    answer = as_answer(error.status(), error.code)
    retry = error.details.get("retryAfterSeconds")
    if retry is not None:
        answer.headers["Retry-After"] = str(retry)
    return answer


def target_of(path: str, kinds: Mapping[str, Kind]) -> Target:
    """Return what a path means.

    Raises:
        ApiError: 404 when it means nothing.
    """
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise no_such_resource()
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":  # noqa: PLR2004 - a namespace and what is in it
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3:  # noqa: PLR2004 - resource, name, subresource
        raise no_such_resource()
    kind = kinds.get(rest[0])
    if kind is None or kind.group != group or version not in kind.versions:
        raise no_such_resource()
    if namespace and not kind.is_namespaced:
        raise no_such_resource()
    return Target(kind, namespace, *rest[1:])


def verb_of(method: str, target: Target, query: Mapping[str, str]) -> str:
    """Return what RBAC calls a request.

    Raises:
        ApiError: 405 for what cannot be done.
    """
    if method == "GET":
        if target.name:
            return "get"
        return "watch" if query.get("watch", "").lower() in ("true", "1") else "list"
    verbs = {"POST": "create", "PUT": "update", "PATCH": "patch"}
    if method == "DELETE":
        return "delete" if target.name else "deletecollection"
    if method not in verbs or (method != "POST" and not target.name):
        message = "the server does not allow this method on the requested resource"
        raise ApiError(405, "MethodNotAllowed", message)
    return verbs[method]

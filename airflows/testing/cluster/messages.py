"""Answers of the API server, in its own words: `Status` objects and the errors that carry them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that is wrong with an object.

    Attributes:
        field: such as `spec.completions`.
        message: such as `Invalid value: -1: must be greater than or equal to 0`.
        reason: in the words of `details.causes`.
    """

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class ApiError(Exception):
    """An answer that is not the one asked for."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.details = dict(details or {})
        self.metadata = dict(metadata or {})

    def status(self) -> Json:
        """Return the body."""
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        return {**body, "code": self.code}


def shown(value: Any) -> str:
    """Return a value as Go's validation prints it."""
    return json.dumps(value, ensure_ascii=False)


def bad_value(field: str, value: Any, words: str) -> Cause:
    """Return the cause `Invalid value: …`."""
    return Cause(field, f"Invalid value: {shown(value)}: {words}")


def required(field: str, words: str = "") -> Cause:
    """Return the cause `Required value`."""
    return Cause(field, f"Required value: {words}" if words else "Required value", "FieldValueRequired")


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """Return the 422 for an object."""
    lines: list[str] = []
    for cause in causes:
        line = f"{cause.field}: {cause.message}"
        if line not in lines:
            lines.append(line)
    text = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    qualified = f"{kind}.{group}" if group else kind
    details: Json = {"name": name, **({"group": group} if group else {}), "kind": kind}
    details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    return ApiError(422, "Invalid", f'{qualified} "{name}" is invalid: {text}', details)


def not_found(resource: str, group: str, name: str) -> ApiError:
    """Return the 404 for an object that is not there."""
    qualified = f"{resource}.{group}" if group else resource
    return ApiError(404, "NotFound", f'{qualified} "{name}" not found', _details(resource, group, name))


def no_such_resource() -> ApiError:
    """Return the 404 for a path that means nothing to the server."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: str, group: str, name: str) -> ApiError:
    """Return the 409 for a name that is taken."""
    qualified = f"{resource}.{group}" if group else resource
    message = f'{qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(resource, group, name))


def conflict(resource: str, group: str, name: str, why: str) -> ApiError:
    """Return the 409 for an object that is not as the client thinks."""
    qualified = f"{resource}.{group}" if group else resource
    message = f'Operation cannot be fulfilled on {qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(resource, group, name))


def forbidden(resource: str, group: str, name: str, why: str) -> ApiError:
    """Return the 403 for something that this user may not, or that an admission check refuses."""
    qualified = f"{resource}.{group}" if group else resource
    named = f'{qualified} "{name}"' if name else qualified
    return ApiError(403, "Forbidden", f"{named} is forbidden: {why}", _details(resource, group, name))


def bad_request(message: str) -> ApiError:
    """Return the 400."""
    return ApiError(400, "BadRequest", message)


def expired(message: str, *, token: str = "") -> ApiError:
    """Return the 410."""
    return ApiError(410, "Expired", message, metadata={"continue": token} if token else None)


def success(details: Mapping[str, Any] | None = None) -> Json:
    """Return the `Status` of something done."""
    body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**body, "details": dict(details)} if details else body


def _details(resource: str, group: str, name: str) -> Json:
    return {**({"name": name} if name else {}), **({"group": group} if group else {}), "kind": resource}

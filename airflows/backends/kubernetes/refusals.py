"""What the API server says when it refuses, and what that means, in words. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MOST_CHARACTERS = 500
_RBAC = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<resource>[\w./-]+)"(?: in API group "(?P<group>[\w.-]*)")?'
)
_ROLE = 'docs/kubernetes.md, "Permissions", has the Role that is enough'


@dataclass(eq=False)
class ApiError(Exception):
    """The API server answered, and the answer is an error.

    Attributes:
        status: of HTTP.
        reason: its one word, such as `AlreadyExists`.
        message: its words.
        details: what else it says.
        retry_after_s: when to ask again; None when it does not say.
    """

    status: int
    reason: str = ""
    message: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    retry_after_s: float | None = None

    def __str__(self) -> str:
        """Return the message."""
        return self.message

    @property
    def is_quota(self) -> bool:
        """Whether there is no room now, which may change."""
        return self.status == 403 and "exceeded quota" in self.message  # noqa: PLR2004

    @property
    def is_final(self) -> bool:
        """Whether the same object will be refused again."""
        return self.status in {400, 403, 404, 405, 413, 415, 422} and not self.is_quota

    @property
    def is_missing(self) -> bool:
        """Whether what was asked for does not exist."""
        return self.status == 404  # noqa: PLR2004

    @property
    def exists_already(self) -> bool:
        """Whether the name is taken."""
        return self.status == 409 and self.reason == "AlreadyExists"  # noqa: PLR2004

    @property
    def is_busy(self) -> bool:
        """Whether asking again a little later may help."""
        return self.status == 429 or self.status >= 500  # noqa: PLR2004


def refusal_of(status: int, body: str, retry_after: str = "") -> ApiError:
    """Return what an error answer says; proxies answer with pages of their own."""
    waits = float(retry_after) if retry_after.isdigit() else None
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if not isinstance(said, dict) or said.get("kind") != "Status":
        text = " ".join(re.sub(r"<[^>]*>", " ", body).split())[:_MOST_CHARACTERS]
        return ApiError(status, "", text or f"HTTP status {status}", {}, waits)
    details = said.get("details") or {}
    if waits is None and details.get("retryAfterSeconds"):
        waits = float(details["retryAfterSeconds"])
    return ApiError(status, str(said.get("reason") or ""), str(said.get("message") or ""), details, waits)


def in_words(refusal: ApiError, namespace: str) -> str:
    """Return a refusal for people: what is wrong, and what to do about it."""
    said = _sentence(refusal.message)
    if refusal.status == 401:  # noqa: PLR2004
        return (
            f"the cluster does not accept the credentials ({said}) The token may have expired: log in again,"
            " and see that the kubeconfig has the new one."
        )
    found = _RBAC.search(refusal.message)
    if refusal.status == 403 and found:  # noqa: PLR2004
        group = f" of {found['group']}" if found["group"] else ""
        return (
            f"this needs the verb {found['verb']} on {found['resource']}{group} in namespace {namespace},"
            f" which is not allowed here, or there is no such namespace. {_ROLE}. ({said})"
        )
    if refusal.is_quota:
        return f"a quota of namespace {namespace} is used up: {said}"
    if refusal.status == 404 and "namespaces" in refusal.message:  # noqa: PLR2004
        return f"there is no namespace {namespace} ({said})"
    causes = [
        f"{cause.get('field')}: {cause.get('message')}"
        for cause in refusal.details.get("causes") or ()
        if cause.get("field")
    ]
    return f"the cluster refuses it: {_sentence('; '.join(causes)) if causes else said}"


def _sentence(text: str) -> str:
    said = " ".join(text.split())[:_MOST_CHARACTERS] or "no reason given"
    return said if said.endswith((".", "!", "?")) else f"{said}."

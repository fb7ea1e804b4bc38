"""Faults that are injected into the fake workspace, by rule, count and seeded chance."""

from __future__ import annotations

import json
import random
import threading
from fnmatch import fnmatchcase
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from airflows.testing.workspace.exchange import Answer, Request, as_answer

KINDS: dict[str, dict[str, Any]] = {
    "rate_limited": {"status": 429, "error_code": "REQUEST_LIMIT_EXCEEDED", "retry_after": 1},
    "unavailable": {"status": 503, "error_code": "TEMPORARILY_UNAVAILABLE"},
    "bad_gateway": {"status": 502, "body": "<html><title>502 Bad Gateway</title></html>"},
    "gateway_timeout": {"status": 504, "body": "<html><title>504 Gateway Time-out</title></html>"},
    "internal": {"status": 500, "error_code": "INTERNAL_ERROR"},
    "forbidden": {"status": 403, "error_code": "PERMISSION_DENIED"},
    "not_found": {"status": 404, "error_code": "ENDPOINT_NOT_FOUND"},
    "feature_disabled": {"status": 403, "error_code": "FEATURE_DISABLED"},
    "expired_token": {"status": 401, "error_code": "UNAUTHENTICATED", "message": "The token has expired."},
    "dropped_reply": {"drop": True, "when": "after"},
    "dropped_request": {"drop": True, "when": "before"},
    "cut_reply": {"cut": True},
    "slow": {"delay_s": 1.0},
}


class Fault(BaseModel):
    """One fault; the first that fits a request happens to it.

    Either a `kind`, whose values the other fields may change, or the fields alone.
    """

    model_config = ConfigDict(extra="forbid")

    kind: str = Field("", description="one of the known kinds, such as rate_limited")
    route: str = Field("*", description="endpoint's short name, a glob such as jobs/runs/*")
    method: str = Field("*", description="HTTP method, a glob")
    contains: str = Field("", description="text that the path, query or body must contain")
    from_jobs: bool | None = Field(None, description="only requests of runs' own processes, or only others")
    when: Literal["before", "after"] = Field("before", description="instead of the effect, or after it")
    status: int | None = Field(None, description="HTTP status to answer")
    error_code: str = Field("", description="of the JSON body")
    message: str = Field("", description="of the JSON body")
    body: str | None = Field(None, description="text to answer instead of JSON")
    retry_after: int | None = Field(None, description="Retry-After header, in seconds")
    drop: bool = Field(False, description="close the connection without an answer")
    cut: bool = Field(False, description="close the connection amid the answer")
    delay_s: float = Field(0.0, ge=0, description="real seconds to wait first")
    skip: int = Field(0, ge=0, description="requests that fit and are let through first")
    times: int | None = Field(None, ge=0, description="how often it happens; endless when absent")
    probability: float = Field(1.0, ge=0, le=1, description="chance per request that fits")
    at_once_over: int | None = Field(None, description="only while more requests than this go on")

    @model_validator(mode="before")
    @classmethod
    def _of_kind(cls, value: Any) -> Any:
        kind = value.get("kind") if isinstance(value, dict) else None
        if not kind:
            return value
        if kind not in KINDS:
            message = f"unknown kind of fault {kind!r}; known: {', '.join(KINDS)}"
            raise ValueError(message)
        return {**KINDS[kind], **value}

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if self.status is None and not (self.drop or self.cut or self.delay_s):
            message = "a fault needs a kind, a status, drop, cut or delay_s"
            raise ValueError(message)
        return self

    @property
    def label(self) -> str:
        """What a record says of it."""
        word = self.kind or ("drop" if self.drop else "cut" if self.cut else str(self.status or "slow"))
        return f"{word} {self.when}"

    @property
    def replaces(self) -> bool:
        """Whether the true answer is not sent."""
        return self.drop or self.status is not None

    def fits(self, route: str, request: Request) -> bool:
        """Whether it concerns a request."""
        if self.from_jobs is not None and self.from_jobs != request.user.is_job:
            return False
        if not (fnmatchcase(route, self.route) and fnmatchcase(request.method, self.method)):
            return False
        if not self.contains:
            return True
        query = json.dumps(request.query)
        return any(self.contains in text for text in (request.path, query, request.body.decode("latin-1")))

    def answer(self) -> Answer:
        """Return what is sent instead."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        status = self.status or 200
        if self.body is not None:
            return Answer(status, self.body.encode(), "text/html", headers)
        message = self.message or f"The fake workspace was told to answer {status}."
        return as_answer({"error_code": self.error_code, "message": message}, status, headers)


class Faults:
    """The rules in order, each with its count and its own chance."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []
        self._made = 0

    def add(self, fault: Fault) -> None:
        """Add a rule after the others."""
        with self._lock:
            self._rules.append(_Rule(fault, random.Random(f"{self._seed}/{self._made}")))  # noqa: S311
            self._made += 1

    def clear(self) -> None:
        """Take all rules away."""
        with self._lock:
            self._rules.clear()

    def pick(self, route: str, request: Request, at_once: int) -> Fault | None:
        """Return what happens to a request."""
        with self._lock:
            for rule in self._rules:
                if rule.fault.fits(route, request) and rule.happens(at_once):
                    return rule.fault
        return None

    def happened(self) -> list[int]:
        """Return how often each rule was applied."""
        with self._lock:
            return [rule.count for rule in self._rules]


class _Rule:
    def __init__(self, fault: Fault, chance: random.Random) -> None:
        self.fault = fault
        self.count = 0
        self._seen = 0
        self._chance = chance

    def happens(self, at_once: int) -> bool:
        fault = self.fault
        if fault.times is not None and self.count >= fault.times:
            return False
        if fault.at_once_over is not None and at_once <= fault.at_once_over:
            return False
        self._seen += 1
        if self._seen <= fault.skip or self._chance.random() >= fault.probability:
            return False
        self.count += 1
        return True

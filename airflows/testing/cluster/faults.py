"""Faults that are injected into the fake API server, by rule, count and seeded chance."""

from __future__ import annotations

import random
import threading
from fnmatch import fnmatchcase
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from airflows.testing.cluster.messages import ApiError

KINDS: dict[str, dict[str, Any]] = {
    "rate_limited": {
        "status": 429,
        "reason": "TooManyRequests",
        "message": "the server has received too many requests and has asked us to try again later",
        "retry_after": 1,
    },
    "internal": {
        "status": 500,
        "reason": "InternalError",
        "message": "Internal error occurred: etcdserver: request timed out",
    },
    "unavailable": {
        "status": 503,
        "reason": "ServiceUnavailable",
        "message": "the server is currently unable to handle the request",
    },
    "bad_gateway": {"status": 502, "body": "<html><title>502 Bad Gateway</title></html>"},
    "gateway_timeout": {"status": 504, "body": "<html><title>504 Gateway Time-out</title></html>"},
    "webhook_denied": {
        "status": 403,
        "reason": "Forbidden",
        "message": 'admission webhook "policy.example.com" denied the request: no',
    },
    "unauthorized": {"status": 401, "reason": "Unauthorized", "message": "Unauthorized"},
    "dropped_reply": {"drop": True, "when": "after"},
    "dropped_request": {"drop": True, "when": "before"},
    "cut_reply": {"cut": True},
    "slow": {"delay_s": 1.0},
    "watch_error": {
        "event": 504,
        "route": "*/watch",
        "reason": "Timeout",
        "message": "Timeout: Too large resource version",
        "retry_after": 1,
    },
    "stalled_watch": {"stall": True, "route": "*/watch"},
}


class Fault(BaseModel):
    """One fault; the first that fits a request happens to it.

    Either a `kind`, whose values the other fields may change, or the fields alone.
    """

    model_config = ConfigDict(extra="forbid")

    kind: str = Field("", description="one of the known kinds, such as rate_limited")
    route: str = Field("*", description="such as jobs/create, a glob")
    contains: str = Field("", description="text that the path, query or body must contain")
    when: Literal["before", "after"] = Field("before", description="instead of the effect, or after it")
    status: int | None = Field(None, description="HTTP status to answer")
    reason: str = Field("", description="of the Status")
    message: str = Field("", description="of the Status")
    body: str | None = Field(None, description="text to answer instead of a Status")
    retry_after: int | None = Field(None, description="Retry-After header, in seconds")
    drop: bool = Field(False, description="close the connection without an answer")
    cut: bool = Field(False, description="close the connection amid the answer")
    event: int | None = Field(None, description="a watch begins with an ERROR of this code, and ends")
    stall: bool = Field(False, description="a watch that tells nothing and does not end")
    delay_s: float = Field(0.0, ge=0, description="real seconds to wait first")
    skip: int = Field(0, ge=0, description="requests that fit and are let through first")
    times: int | None = Field(None, ge=0, description="how often it happens; endless when absent")
    probability: float = Field(1.0, ge=0, le=1, description="chance per request that fits")

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
        effects = (self.status, self.event, self.drop, self.cut, self.stall, self.delay_s)
        if not any(effects):
            message = "a fault needs a kind, a status, event, drop, cut, stall or delay_s"
            raise ValueError(message)
        return self

    @property
    def label(self) -> str:
        """What a record says of it."""
        return f"{self.kind or self.status or 'fault'} {self.when}"

    @property
    def replaces(self) -> bool:
        """Whether the true answer is not sent."""
        return self.drop or self.status is not None

    def error(self) -> ApiError:
        """Return what is answered instead."""
        status = self.status or self.event or 500
        message = self.message or f"The fake API server was told to answer {status}."
        details = {"retryAfterSeconds": self.retry_after} if self.retry_after is not None else None
        return ApiError(status, self.reason, message, details)


class Faults:
    """The rules in order, each with its count and its own chance."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []
        self._made = 0

    def add(self, kind: str = "", **fields: Any) -> None:
        """Let something go wrong: a known kind, fields of `Fault`, or both."""
        self.take(Fault.model_validate({"kind": kind, **fields}))

    def take(self, fault: Fault) -> None:
        """Add a rule after the others."""
        with self._lock:
            self._rules.append(_Rule(fault, random.Random(f"{self._seed}/{self._made}")))  # noqa: S311
            self._made += 1

    def clear(self) -> None:
        """Let nothing go wrong any more."""
        with self._lock:
            self._rules.clear()

    def pick(self, route: str, text: str) -> Fault | None:
        """Return what happens to a request with this text in its path, query and body."""
        with self._lock:
            for rule in self._rules:
                if fnmatchcase(route, rule.fault.route) and rule.fault.contains in text and rule.happens():
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

    def happens(self) -> bool:
        if self.fault.times is not None and self.count >= self.fault.times:
            return False
        self._seen += 1
        if self._seen <= self.fault.skip or self._chance.random() >= self.fault.probability:
            return False
        self.count += 1
        return True

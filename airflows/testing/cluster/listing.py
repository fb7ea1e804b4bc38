"""Lists, page by page, and watches."""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from airflows.testing.cluster.exchange import JSON, Answer, Request, Target
from airflows.testing.cluster.messages import ApiError, Json, bad_request, expired
from airflows.testing.cluster.selectors import Test, field_test, label_test, required_labels
from airflows.testing.cluster.store import Change
from airflows.testing.cluster.world import World

_LONGEST_WATCH_S = 1800.0
_TOO_OLD_PAGE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
    "that were created, modified, or deleted between the time the first chunk was returned and now may show "
    "up in the list."
)
_TOO_OLD_LIST = "The resourceVersion for the provided list is too old."


def listed(world: World, target: Target, query: Mapping[str, str]) -> Answer:
    """Answer a list.

    Raises:
        ApiError: 410 for a version or a token that is too old, 504 for a version of the future.
    """
    fits = test_of(query)
    version, start = world.store.version, ""
    _check_version(world, query)
    if query.get("continue"):
        version, start = _read_token(world, query["continue"])
    required = required_labels(query.get("labelSelector", ""))
    known = world.store.labelled(target.kind.resource, target.namespace, required)
    found = [item for item in known if fits(item)]
    rest = [item for item in found if _place(item) > start]
    limit = int(query.get("limit") or 0)
    page = rest[:limit] if limit else rest
    metadata: Json = {"resourceVersion": str(version)}
    if len(rest) > len(page):
        metadata["continue"] = _token(version, _place(page[-1]))
        if not query.get("labelSelector") and not query.get("fieldSelector"):
            metadata["remainingItemCount"] = len(rest) - len(page)
    head = {"kind": f"{target.kind.kind}List", "apiVersion": target.kind.api_version, "metadata": metadata}
    # Objects are kept as text, because the same are asked for again and again.
    text = json.dumps(head, separators=(",", ":"))[:-1]
    return Answer(200, f'{text},"items":[{",".join(map(world.store.text, page))}]}}'.encode())


def test_of(query: Mapping[str, str]) -> Test:
    """Return whether an object fits the selectors of a query.

    Raises:
        ApiError: they cannot be read.
    """
    tests = []
    if query.get("labelSelector"):
        tests.append(label_test(query["labelSelector"]))
    if query.get("fieldSelector"):
        tests.append(field_test(query["fieldSelector"]))
    return lambda found: all(test(found) for test in tests)


def watched(world: World, target: Target, request: Request) -> Answer:
    """Answer a watch: a stream of events."""
    fits = test_of(request.query)
    seconds = float(request.query.get("timeoutSeconds") or _LONGEST_WATCH_S)
    watch = _Watch(world, target, request, fits)
    return Answer(200, content_type=JSON, stream=lambda: watch.events(time.monotonic() + seconds))


class _Watch:
    """One watch. The lock is held to look, never to send."""

    def __init__(self, world: World, target: Target, request: Request, fits: Test) -> None:
        self._world, self._target, self._fits = world, target, fits
        self._query = request.query
        self._has_bookmarks = request.is_true("allowWatchBookmarks")
        given = request.query.get("resourceVersion", "")
        self._is_whole = given in ("", "0") or request.is_true("sendInitialEvents")
        if not self._is_whole and not given.isdigit():
            message = (
                f'invalid resource version "{given}": strconv.ParseUint: parsing "{given}": invalid syntax'
            )
            raise bad_request(message)
        self._version = int(given) if given.isdigit() else 0

    def events(self, until: float) -> Iterator[bytes]:
        """Give the events, one a line, until a moment of real time."""
        if self._is_whole:
            with self._world.lock:
                self._version = self._world.store.version
                found = self._world.store.all(self._target.kind.resource, self._target.namespace)
                first = [_line("ADDED", item) for item in found if self._fits(item)]
            yield from first
            if self._query.get("sendInitialEvents") == "true":
                yield self._bookmark({"k8s.io/initial-events-end": "true"})
        while True:
            with self._world.lock:
                lines, is_over = self._next(until)
            yield from lines
            if is_over:
                return

    def _next(self, until: float) -> tuple[list[bytes], bool]:
        """Wait for changes; return their lines, and whether the watch is over."""
        while True:
            if self._version < self._world.store.oldest:
                words = f"too old resource version: {self._version} ({self._world.store.oldest})"
                return [_line("ERROR", expired(words).status())], True
            changes = self._world.store.since(self._version, self._target.kind.resource)
            lines = [line for change in changes if (line := self._told(change))]
            self._version = max(self._version, *(change.version for change in changes), 0)
            if lines:
                return lines, False
            left = until - time.monotonic()
            if left <= 0 or self._world.closing.is_set():
                return ([self._bookmark({})] if self._has_bookmarks else []), True
            self._world.changed.wait(min(left, 1.0) if math.isfinite(left) else 1.0)

    def _told(self, change: Change) -> bytes:
        if self._target.namespace and change.object["metadata"].get("namespace") != self._target.namespace:
            return b""
        is_in = change.type != "DELETED" and self._fits(change.object)
        was_in = change.before is not None and self._fits(change.before)
        if not is_in and not was_in:
            return b""
        word = "MODIFIED" if is_in and was_in else "ADDED" if is_in else "DELETED"
        return _line(word, change.object)

    def _bookmark(self, annotations: Json) -> bytes:
        metadata: Json = {"resourceVersion": str(self._version)}
        if annotations:
            metadata["annotations"] = annotations
        kind = self._target.kind
        return _line("BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})


def _line(word: str, found: Json) -> bytes:
    return json.dumps({"type": word, "object": found}, separators=(",", ":")).encode() + b"\n"


def _check_version(world: World, query: Mapping[str, str]) -> None:
    given = query.get("resourceVersion", "")
    if not given.isdigit() or given == "0":
        return
    if int(given) > world.store.version:
        message = f"Too large resource version: {given}, current: {world.store.version}"
        details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
        raise ApiError(504, "Timeout", message, {**details, "retryAfterSeconds": 1})
    if query.get("resourceVersionMatch") == "Exact" and int(given) < max(world.store.oldest, 1):
        raise expired(_TOO_OLD_LIST)


def _place(item: Json) -> str:
    metadata: dict[str, Any] = item["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def _token(version: int, start: str) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_token(world: World, token: str) -> tuple[int, str]:
    try:
        read = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, start = int(read["rv"]), str(read["start"])
    except (ValueError, KeyError, TypeError):
        message = "continue key is not valid"
        raise bad_request(message) from None
    if version >= 0 and version < world.store.oldest:
        raise expired(_TOO_OLD_PAGE, token=_token(-1, start))
    return (version if version >= 0 else world.store.version), start

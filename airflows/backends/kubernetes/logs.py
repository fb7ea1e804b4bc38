"""Logs of pods: asked for while the pods are there, and copied, because they go with their pods.

A Job that is cancelled, runs into its limit or loses its machine takes its running pods and their logs with
it. So the log of each running attempt's first node is followed here, and its end is kept on this machine.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflows.backends.kubernetes import paths
from airflows.backends.kubernetes.client import Api, as_unavailable
from airflows.backends.kubernetes.manifest import MAIN
from airflows.backends.kubernetes.pods import Pod, newest_of_each, pod_of
from airflows.backends.kubernetes.refusals import ApiError
from airflows.errors import BackendUnavailableError
from airflows.trial import Handle

MOST_FOLLOWED = 32
"""Logs that are copied at the same time: each is a connection through the API server."""
_MOST_KEPT_BYTES = 64 * 1024
_LOOK_EVERY_S = 1.0
_FAILURES = 5
_NOT_YET = 400


def shown(line: str) -> str:
    """Return a line as a terminal leaves it."""
    return line.rpartition("\r")[2] or line.rstrip("\r")


def _split(line: str) -> tuple[str, str]:
    """Return (time, text) of a line that was asked for with timestamps."""
    stamp, space, text = line.partition(" ")
    return (stamp, text) if space or stamp.endswith("Z") else ("", line)


@dataclass(slots=True)
class LogReader:
    """Reads the log of one node of one attempt.

    Attributes:
        api: which is asked.
        handle: the attempt.
        node: whose log it is.
        pause: sleeps for seconds.
        has_ended: whether the attempt has.
        kept: where the copy of a log is, should the pod be gone.
    """

    api: Api
    handle: Handle
    node: int
    pause: Callable[[float], None]
    has_ended: Callable[[], bool]
    kept: Path
    _last: str = ""

    def lines(self, *, lines: int | None) -> Iterator[str]:
        """Yield what there is of the log.

        Raises:
            BackendUnavailableError: the cluster did not answer.
        """
        pod = self._pod()
        text = "" if pod is None else self._text(pod, lines)
        found = [shown(line) for line in text.split("\n")[: None if not text.endswith("\n") else -1]]
        if not text:
            found = self._copy()
        yield from found if lines is None else found[max(0, len(found) - lines) :]

    def _copy(self) -> list[str]:
        try:
            return [shown(line) for line in self.kept.read_text(encoding="utf-8").splitlines()]
        except OSError:
            return []

    def _text(self, pod: Pod, lines: int | None) -> str:
        query: dict[str, Any] = {"container": MAIN} | ({} if lines is None else {"tailLines": lines})
        try:
            return self.api.text(paths.log(self.api.namespace, pod.name), **query)
        except ApiError as exc:
            # A container that waits has none yet, and that of a machine that is gone is lost.
            if exc.status in {_NOT_YET, 404} or exc.is_busy:
                return ""
            raise as_unavailable(exc, self.api.namespace) from None

    def _pod(self) -> Pod | None:
        try:
            found = self.api.items(
                paths.core(self.api.namespace, "pods"), labelSelector=f"job-name={self.handle}"
            )
        except ApiError as exc:
            raise as_unavailable(exc, self.api.namespace) from None
        return newest_of_each(map(pod_of, found)).get(self.node)

    def followed(self, *, lines: int | None) -> Iterator[str]:
        """Yield the log as it grows, until the attempt has ended.

        Raises:
            BackendUnavailableError: the cluster has not answered for several looks.
        """
        failures, tail = 0, lines
        while True:
            was_over = self.has_ended()
            try:
                pod = self._pod()
                before = self._last
                if pod is not None and (pod.started_at is not None or was_over):
                    yield from self._stream(pod, tail)
                    tail = None
                failures = 0
            except BackendUnavailableError:
                failures += 1
                if failures >= _FAILURES:
                    raise
            else:
                if was_over:
                    if not before and not self._last:
                        yield from self.lines(lines=lines)
                    return
            self.pause(_LOOK_EVERY_S)

    def _stream(self, pod: Pod, tail: int | None) -> Iterator[str]:
        """Yield the lines that were not told yet, until the container ends or the connection does."""
        query: dict[str, Any] = {"container": MAIN, "timestamps": "true", "follow": "true"}
        if tail is not None:
            query["tailLines"] = tail
        if self._last:
            # In whole seconds, so what was told is left out below.
            query["sinceTime"] = f"{self._last.partition('.')[0].rstrip('Z')}Z"
        try:
            with self.api.stream(paths.log(self.api.namespace, pod.name), **query) as lines:
                for line in lines:
                    stamp, text = _split(line)
                    if stamp and self._last and stamp <= self._last:
                        continue
                    self._last = stamp or self._last
                    yield shown(text)
        except ApiError as exc:
            if exc.status not in {_NOT_YET, 404} and not exc.is_busy:
                raise as_unavailable(exc, self.api.namespace) from None


@dataclass(slots=True)
class LogKeeper:
    """Copies the ends of logs while pods live; one thread for each that is followed.

    Attributes:
        api: which is asked.
        directory: gets `TOKEN/node_N.log`.
    """

    api: Api
    directory: Path
    _followed: dict[tuple[Handle, int], threading.Thread] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def path(self, handle: Handle, node: int) -> Path:
        """Return where the copy of a log is, if there is one."""
        return self.directory / str(handle) / f"node_{node}.log"

    def follow(self, handle: Handle, pod: Pod) -> None:
        """Copy the log of a running pod from now on, unless that is done or too many are."""
        key = handle, pod.index
        with self._lock:
            if self.is_followed(*key):
                return
            self._followed.pop(key, None)
            if len(self._followed) >= MOST_FOLLOWED:
                self._followed = {k: thread for k, thread in self._followed.items() if thread.is_alive()}
            if len(self._followed) >= MOST_FOLLOWED:
                return
            thread = threading.Thread(
                target=self._copy, args=(handle, pod), name=f"log-{handle}-{pod.index}", daemon=True
            )
            self._followed[key] = thread
            thread.start()

    def is_followed(self, handle: Handle, node: int) -> bool:
        """Whether a log is being copied."""
        thread = self._followed.get((handle, node))
        return thread is not None and thread.is_alive()

    def settle(self, handle: Handle, timeout_s: float) -> None:
        """Wait a moment for the copies of an attempt whose pods are gone."""
        with self._lock:
            copies = [thread for (one, _), thread in self._followed.items() if one == handle]
        for thread in copies:
            thread.join(timeout_s)

    def keep_tail(self, handle: Handle, pod: Pod) -> None:
        """Keep the end of a log that nobody follows, as it is now."""
        query = {"container": MAIN, "tailLines": 500, "limitBytes": _MOST_KEPT_BYTES}
        try:
            text = self.api.text(paths.log(self.api.namespace, pod.name), **query)
        except (ApiError, BackendUnavailableError):
            return
        if text:
            self._write(handle, pod.index, text)

    def _copy(self, handle: Handle, pod: Pod) -> None:
        kept: deque[str] = deque()
        size = 0
        query = {"container": MAIN, "follow": "true", "tailLines": 1000}
        try:
            with self.api.stream(paths.log(self.api.namespace, pod.name), **query) as lines:
                for line in lines:
                    kept.append(line)
                    size += len(line) + 1
                    while size > _MOST_KEPT_BYTES and len(kept) > 1:
                        size -= len(kept.popleft()) + 1
        except (ApiError, BackendUnavailableError):
            # What was read until then is kept.
            pass
        if kept:
            self._write(handle, pod.index, "\n".join(kept) + "\n")

    def _write(self, handle: Handle, node: int, text: str) -> None:
        path = self.path(handle, node)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_suffix(".new")
            aside.write_text(text, encoding="utf-8", errors="replace")
            aside.replace(path)
        except OSError:
            # A full disk here is no reason to end anything there.
            return

"""Waiting for processes to end, without looking again and again."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import threading
import time
from collections.abc import Hashable

from airflows.backends.local.processes import open_pidfd, start_ticks

_LOOK_EVERY_S = 0.05


class Watch:
    """The processes that are still running, by a key of the caller's. May be used by several threads."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        # Reports each that has ended every time it is asked, all with one call.
        self._ended = select.epoll()
        self._descriptors: dict[Hashable, int] = {}
        self._keys: dict[int, Hashable] = {}
        # Where there are no descriptors for processes (Linux before 5.3), or none left: pid and start.
        self._bare: dict[Hashable, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def add(self, key: Hashable, pid: int, started: int, *, is_child: bool = False) -> bool:
        """Watch a process; return False when it has ended already.

        Args:
            key: names it.
            pid: process id.
            started: its start in clock ticks, 0 when it is known to have ended.
            is_child: it is a child of this process that was not waited for yet.
        """
        try:
            descriptor = open_pidfd(pid, started, is_child=is_child)
        except (OSError, AttributeError):
            with self._lock:
                self._bare[key] = (pid, started)
            return not self.has_ended(key)
        if descriptor is None:
            return False
        with self._lock:
            self._descriptors[key], self._keys[descriptor] = descriptor, key
            self._ended.register(descriptor, select.EPOLLIN)
        self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
        return True

    def has_ended(self, key: Hashable) -> bool:
        """Whether a process has ended, or is not watched."""
        with self._lock:
            descriptor = self._descriptors.get(key)
            if descriptor is not None:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                return bool(poll.poll(0))
        bare = self._bare.get(key)
        return bare is None or _has_ended(*bare)

    def going(self) -> set[Hashable]:
        """Return the keys of the processes that have not ended, of those that have descriptors."""
        with self._lock:
            if not self._keys:
                return set()
            ended = self._ended.poll(0, len(self._keys))
            return set(self._descriptors) - {self._keys[descriptor] for descriptor, _ in ended}

    def descriptor(self, key: Hashable) -> int | None:
        """Return the process's descriptor for signals, where there is one."""
        return self._descriptors.get(key)

    def drop(self, key: Hashable) -> None:
        """Stop watching a process."""
        with self._lock:
            self._bare.pop(key, None)
            descriptor = self._descriptors.pop(key, None)
            if descriptor is not None:
                del self._keys[descriptor]
                os.close(descriptor)

    def wait(self, timeout_s: float) -> None:
        """Return when a process has ended since the last call, or after `timeout_s` seconds."""
        until = time.monotonic() + timeout_s
        while True:
            left = max(0.0, until - time.monotonic())
            step = min(left, _LOOK_EVERY_S) if self._bare else left
            # Each process is reported once; whoever polls it then drops it.
            if self._poll(step) or any(_has_ended(*bare) for bare in list(self._bare.values())):
                return
            if left <= step:
                return

    def _poll(self, timeout_s: float) -> bool:
        with contextlib.suppress(InterruptedError):
            return bool(self._epoll.poll(timeout_s))
        return False

    def close(self) -> None:
        """Give all descriptors back."""
        for key in [*self._descriptors, *self._bare]:
            self.drop(key)
        self._epoll.close()
        self._ended.close()


def _has_ended(pid: int, started: int) -> bool:
    if not started or start_ticks(pid) != started:
        return True
    try:
        # A child of this process that ended stays until it is asked for.
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except OSError as exc:
        return exc.errno != errno.ECHILD

"""Processes of this machine, told apart from later ones with the same pid, as /proc shows them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

MARK = "AIRFLOWS_LAUNCH_DIR"
"""Variable that all processes of an attempt have, and no others."""

_START_FIELD = 19


def start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks after boot; 0 when there is no such process."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return 0
    try:
        line = os.read(descriptor, 4096)
    except OSError:
        return 0
    finally:
        os.close(descriptor)
    # The name, in parentheses, may hold spaces and parentheses.
    return int(line[line.rindex(b")") + 2 :].split()[_START_FIELD])


def open_pidfd(pid: int, started: int, *, is_child: bool = False) -> int | None:
    """Return a descriptor that becomes readable when the process ends; None when it has ended already.

    Args:
        pid: process id.
        started: its start in ticks; another process that has got the pid since is not taken for it.
        is_child: it is a child that was not waited for yet, so nobody else can have its pid.

    Raises:
        OSError: the kernel has no such descriptors, or none is left.
    """
    if not started:
        return None
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if not is_child and start_ticks(pid) != started:
        os.close(descriptor)
        return None
    return descriptor


def marked(launch_dir: str) -> set[int]:
    """Return the living processes of an attempt: its command and what that started, in any session.

    The preamble itself is not among them. Processes of other users cannot be seen.
    """
    mark = os.fsencode(f"{MARK}={launch_dir}")
    found = set()
    with os.scandir("/proc") as entries:
        pids = [entry.name for entry in entries if entry.name.isdigit()]
    for pid in pids:
        with contextlib.suppress(OSError):
            environ = Path("/proc", pid, "environ").read_bytes()
            if mark in environ and mark in environ.split(b"\0"):
                found.add(int(pid))
    return found


def end_all(launch_dir: str, *, patience_s: float) -> bool:
    """Send SIGKILL to all that is left of an attempt; return whether nothing is left after a while."""
    for pids in _rounds(launch_dir):
        descriptors = [fd for pid in pids if (fd := _kill(pid)) is not None]
        try:
            if not _all_end(descriptors, patience_s):
                return False
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
    return not marked(launch_dir)


def _rounds(launch_dir: str) -> Iterator[set[int]]:
    """Look again, since a process may have started another one just before it was killed."""
    for _ in range(3):
        found = marked(launch_dir)
        if not found:
            return
        yield found


def _kill(pid: int) -> int | None:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        return None
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    return descriptor


def _all_end(descriptors: list[int], patience_s: float) -> bool:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    left = len(descriptors)
    while left:
        ready = poll.poll(patience_s * 1000)
        if not ready:
            return False
        for descriptor, _ in ready:
            poll.unregister(descriptor)
        left -= len(ready)
    return True

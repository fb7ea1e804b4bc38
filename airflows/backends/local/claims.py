"""One file an attempt, `claims/<token>`: what makes sure that an attempt is started once.

The driver locks the file and hands the lock to the preamble, which writes `pid launch_dir` into it before it
does anything else. So, whatever was killed in between:

    locked            a preamble is alive (or about to be: its first act is a moment away)
    free, written     the preamble has gone; there is an exit file, or it was killed
    free, empty       the command was never started, and never will be
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from airflows.errors import BackendUnavailableError

_STARTING_S = 0.001
_STARTED_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim says.

    Attributes:
        pid: of the preamble.
        launch_dir: of the attempt.
        is_held: the preamble is alive.
    """

    pid: int
    launch_dir: str
    is_held: bool


def take(path: Path) -> int | None:
    """Lock the claim of an attempt that was never started; return the descriptor that holds the lock.

    Returns:
        None when the attempt was started before, or is being started.

    Raises:
        OSError: the file cannot be made.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_size == 0:
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def look(path: Path, *, pause: Callable[[float], None] = time.sleep) -> Claim | None:
    """Return what a claim says, None when the attempt was never started and is not being started.

    Args:
        path: the claim.
        pause: sleeps for seconds, while a preamble is alive that has not yet written its claim.

    Raises:
        BackendUnavailableError: that takes suspiciously long.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        for _ in range(int(_STARTED_WITHIN_S / _STARTING_S)):
            is_held = _is_held(descriptor)
            text = os.fsdecode(os.pread(descriptor, 8192, 0))
            if text.endswith("\n"):
                pid, _, launch_dir = text.rstrip("\n").partition(" ")
                return Claim(int(pid), launch_dir, is_held)
            if not is_held:
                return None
            pause(_STARTING_S)
    finally:
        os.close(descriptor)
    message = f"the attempt with the claim {path} has been starting for {_STARTED_WITHIN_S:.0f} s."
    raise BackendUnavailableError(message, hint="Is this machine overloaded, or is a process stopped?")


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False

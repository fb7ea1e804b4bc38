"""Waiting for what another process does: asked again and again, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_Found = TypeVar("_Found")

PATIENCE_S = 60.0


def until(
    is_so: Callable[[], _Found],
    what: str | Callable[[], str],
    *,
    patience_s: float = PATIENCE_S,
    pause: Callable[[float], object] = time.sleep,
    pause_s: float = 0.05,
) -> _Found:
    """Return what is asked for, once it is something.

    Args:
        is_so: asked again and again.
        what: it is, for the error; called when it takes more than words that are known before.
        patience_s: how long it may take.
        pause: waits so many seconds.
        pause_s: between two questions.

    Raises:
        TimeoutError: it never was.
    """
    deadline = time.monotonic() + patience_s
    while not (found := is_so()):
        if time.monotonic() > deadline:
            message = f"waited {patience_s:g} s in vain for {what if isinstance(what, str) else what()}"
            raise TimeoutError(message)
        pause(pause_s)
    return found

"""Lets things happen on time when nobody asks, such as a deadline that a watch is to tell of."""

from __future__ import annotations

import math
import threading

from airflows.testing.cluster.world import World


class Ticker:
    """A thread that settles the cluster when something is due; none while its clock stands."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._changed = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start, if time passes by itself."""
        if self._world.clock.scale:
            self._world.wake = self._changed.set
            self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the end."""
        self._is_over = True
        self._changed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._is_over:
            self._changed.clear()
            self._world.settle()
            delay = self._world.real_delay()
            self._changed.wait(None if math.isinf(delay) else delay)

"""The fake workspace's clock, and what is to happen by it."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field


class Clock:
    """Seconds since the epoch: standing until advanced (scale 0), real (1), or so many times as fast."""

    def __init__(self, start: float | None = None, scale: float = 0.0) -> None:
        self._base = time.time() if start is None else start
        self._origin = time.monotonic()
        self.scale = scale

    def now(self) -> float:
        """Return the time."""
        return self._base + self.scale * (time.monotonic() - self._origin)

    def advance(self, seconds: float) -> None:
        """Move on at once."""
        self._base += seconds

    def real_delay(self, until: float) -> float:
        """Return how many real seconds are left until a time; infinite while the clock stands."""
        if not self.scale:
            return math.inf
        return max(0.0, (until - self.now()) / self.scale)


@dataclass(order=True, slots=True)
class Appointment:
    """Something that is to happen at a time, unless it is called off."""

    time: float
    order: int
    action: Callable[[float], None] = field(compare=False)
    is_off: bool = field(default=False, compare=False)


class Timeline:
    """What is to happen, in order. Not for several threads at once: the workspace's lock is held."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._heap: list[Appointment] = []
        self._orders = itertools.count()

    def at(self, moment: float, action: Callable[[float], None]) -> Appointment:
        """Let an action happen at a time; it is told that time, even when it comes to be run later."""
        appointment = Appointment(moment, next(self._orders), action)
        heapq.heappush(self._heap, appointment)
        return appointment

    def settle(self) -> None:
        """Let all happen that is due by now, each at its own time."""
        now = self.clock.now()
        while self._heap and self._heap[0].time <= now:
            appointment = heapq.heappop(self._heap)
            if not appointment.is_off:
                appointment.action(appointment.time)

    def next_time(self) -> float:
        """Return when the next thing happens; infinite when nothing will."""
        while self._heap and self._heap[0].is_off:
            heapq.heappop(self._heap)
        return self._heap[0].time if self._heap else math.inf

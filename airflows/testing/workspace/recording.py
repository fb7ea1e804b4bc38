"""What was asked of the fake workspace: every request in order, counts, and the most at once."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

_MOST_KEPT = 200_000


@dataclass(slots=True)
class Recorded:
    """One request.

    Attributes:
        number: counted from 0 in the order of arrival.
        time: of the workspace's clock.
        route: the endpoint's short name; empty for an unknown path.
        method: in capitals.
        path: decoded.
        query: last value of each parameter.
        user: whose token it carried.
        is_job: it came from a run's own processes.
        status: of the answer; 0 when the connection was closed without one; None while it goes on.
        fault: what the injected fault did, such as `429 before`; empty for none.
        has_authorization: it carried an Authorization header.
        at_once: requests that went on when it began, itself included, jobs' own aside.
        body: the JSON body, for routes that take one.
    """

    number: int
    time: float
    route: str
    method: str
    path: str
    query: Mapping[str, str]
    user: str = ""
    is_job: bool = False
    status: int | None = None
    fault: str = ""
    has_authorization: bool = False
    at_once: int = 0
    body: Any = None

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


@dataclass(slots=True)
class Recorder:
    """All requests but those to `/__fake__/`."""

    requests: deque[Recorded] = field(default_factory=lambda: deque(maxlen=_MOST_KEPT))
    counts: Counter[str] = field(default_factory=Counter)
    job_counts: Counter[str] = field(default_factory=Counter)
    most_at_once: int = 0
    most_at_once_by_route: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    _now: Counter[str] = field(default_factory=Counter)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, recorded: Recorded) -> None:
        """Note that a request has come."""
        with self._lock:
            recorded.number = next(self._numbers)
            self.requests.append(recorded)
            if recorded.is_job:
                self.job_counts[recorded.route] += 1
                return
            self.counts[recorded.route] += 1
            self._now[recorded.route] += 1
            recorded.at_once = self._now.total()
            self.most_at_once = max(self.most_at_once, recorded.at_once)
            at_once = max(self.most_at_once_by_route[recorded.route], self._now[recorded.route])
            self.most_at_once_by_route[recorded.route] = at_once

    def end(self, recorded: Recorded, status: int) -> None:
        """Note that it was answered."""
        with self._lock:
            recorded.status = status
            if not recorded.is_job:
                self._now[recorded.route] -= 1

    def of(self, route: str) -> list[Recorded]:
        """Return the requests of an endpoint, in order."""
        with self._lock:
            return [recorded for recorded in self.requests if recorded.route == route]

    def routes(self) -> list[str]:
        """Return the endpoints that were asked, in order, jobs' own requests aside."""
        with self._lock:
            return [recorded.route for recorded in self.requests if not recorded.is_job]

    def forget(self) -> None:
        """Start counting anew."""
        with self._lock:
            self.requests.clear()
            self.counts.clear()
            self.job_counts.clear()
            self.most_at_once = 0
            self.most_at_once_by_route.clear()

    def summary(self) -> dict[str, Any]:
        """Return the counts for JSON."""
        with self._lock:
            return {
                "total": self.counts.total(),
                "by_route": dict(self.counts),
                "by_route_from_jobs": dict(self.job_counts),
                "most_at_once": self.most_at_once,
                "most_at_once_by_route": dict(self.most_at_once_by_route),
                "broken": list(self.broken),
            }

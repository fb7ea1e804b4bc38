"""A world of two places: a cluster with a queue, out of which runs can be taken, and one behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflows.backends.burst import BurstBackend, BurstSettings
from airflows.engine.site import Site
from airflows.ids import Token
from airflows.ledger import Ledger
from airflows.testing.crash import CALLS, TRACKING, WRITES, Boundaries, Watched, World, make_world
from airflows.testing.fake import FakeBackend, FakeCluster, FakeRun, ManualClock, QueueingBackend, Script
from airflows.tracking import open_tracker
from airflows.trial import Handle

QUEUE, CLOUD = "queue", "cloud"
SETTINGS: Mapping[str, Any] = {
    "first": {"type": QUEUE, "name": QUEUE, "concurrent": 3},
    "then": {"type": CLOUD, "name": CLOUD, "concurrent": 2},
    "after": 5,
}


@dataclass
class Clusters:
    """Both clusters as the crash suite looks at them: one clock, all runs.

    Attributes:
        by_name: the clusters.
        clock: of both.
    """

    by_name: dict[str, FakeCluster]
    clock: ManualClock

    @classmethod
    def of(cls, scripts: Callable[..., Script]) -> Clusters:
        """Return two empty clusters."""
        clock = ManualClock()
        return cls({name: FakeCluster(clock, scripts) for name in (QUEUE, CLOUD)}, clock)

    @property
    def runs(self) -> Mapping[Token, FakeRun]:
        """All runs by token."""
        return {token: run for cluster in self.by_name.values() for token, run in cluster.runs.items()}

    @property
    def submissions(self) -> Sequence[Token]:
        """The tokens of all accepted submissions."""
        return [token for cluster in self.by_name.values() for token in cluster.submissions]


class WatchedQueue(Watched):
    """A backend with a queue, at whose calls the driver may die."""

    def withdraw(self, handles: Sequence[Handle]) -> None:
        """Pass it on."""
        self._boundaries.cross("before withdraw")
        self._inner.withdraw(handles)
        self._boundaries.cross("after withdraw")


@dataclass
class BurstWorld(World):
    """What is still there when the driver of a sweep on two places has died.

    Attributes:
        settings: of the backend.
        prepare: is told of each place's connection that a driver makes, by name.
        withdraws: runs can be taken out of the queue of the first place; else they are cancelled.
    """

    settings: Mapping[str, Any] = field(default_factory=lambda: SETTINGS)
    prepare: Callable[[str, FakeBackend], None] = lambda _name, _fake: None
    withdraws: bool = True

    def site(
        self, backend: Any = None, ledger: Ledger | None = None, boundaries: Boundaries | None = None
    ) -> Site:
        """Return what a process works with; at one of the boundaries it dies."""
        del backend
        watched = boundaries or Boundaries()
        tracker = self.tracker or open_tracker(self.tracking_uri, self.home, clock=self.cluster.clock)
        burst = BurstBackend(
            BurstSettings(**self.settings),
            self.home,
            open_one=lambda options, _home: self._place(options["type"], watched),
        )
        known = Watched(ledger or self.ledger, WRITES, watched)
        asked: Any = Watched(tracker, TRACKING, watched)
        return Site(self.home, self.sweep, known, burst, asked)  # type: ignore[arg-type]

    def _place(self, name: str, boundaries: Boundaries) -> Any:
        has_queue = name == QUEUE and self.withdraws
        kind = QueueingBackend if has_queue else FakeBackend
        clusters: Any = self.cluster
        made = kind(clusters.by_name[name], self.home / name, visible_after_s=self.visible_after_s)
        self.prepare(name, made)
        return (WatchedQueue if has_queue else Watched)(made, CALLS, boundaries)


def burst_world(
    home: Path, scripts: Callable[..., Script], tree: dict[str, Any], **fields: Any
) -> BurstWorld:
    """A sweep of a few points on two places."""
    made = make_world(home, scripts=scripts, tree={"limits": {}, **tree})
    known = {name: getattr(made, name) for name in ("home", "sweep", "database")}
    clusters: Any = Clusters.of(scripts)
    return BurstWorld(cluster=clusters, **known, **fields)

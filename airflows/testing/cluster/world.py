"""What all parts of the fake cluster share: its time, its objects, and one lock over them."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from airflows.testing.cluster.access import Access
from airflows.testing.cluster.defaults import managed_by, with_defaults, with_metadata, written_time
from airflows.testing.cluster.events import Events
from airflows.testing.cluster.faults import Faults
from airflows.testing.cluster.kinds import Kind
from airflows.testing.cluster.messages import Json
from airflows.testing.cluster.settings import Settings
from airflows.testing.cluster.store import Change, Store
from airflows.testing.workspace.clock import Appointment, Clock, Timeline
from airflows.testing.workspace.recording import Recorder


class ClusterClock(Clock):
    """The cluster's time; advancing lets all that is due by then happen."""

    def __init__(self, world: World, start: float | None, scale: float) -> None:
        super().__init__(start, scale)
        self._world = world

    def advance(self, seconds: float) -> None:
        """Move on at once, and let all that is due happen, each at its own time."""
        with self._world.lock:
            super().advance(seconds)
            self._world.settle()


class World:
    """The state of a cluster. Whoever reads or changes it holds `lock`."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self.settings, self.directory = settings, directory
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.clock = ClusterClock(self, settings.clock_start, settings.clock_scale)
        self.timeline = Timeline(self.clock)
        self.store = Store(settings.seed, settings.history)
        self.store.on_change = self._tell
        self.access = Access({user.token: user for user in settings.users})
        self.faults = Faults(settings.seed)
        self.recorder = Recorder()
        self.events = Events(self.store, self.written_now)
        self.closing = threading.Event()
        self.listeners: list[Callable[[Change], None]] = []
        self.wake: Callable[[], object] = lambda: None
        self._moment: float | None = None

    @property
    def minor(self) -> int:
        """The minor version of Kubernetes."""
        return self.settings.minor

    def now(self) -> float:
        """Return the time: of what is happening, when it comes to be run later than it was due."""
        return self.clock.now() if self._moment is None else self._moment

    def written_now(self) -> str:
        """Return the time as objects have it."""
        return written_time(self.now())

    def after(self, seconds: float, action: Callable[[], None]) -> Appointment:
        """Let something happen later."""
        made = self.timeline.at(self.now() + seconds, lambda moment: self._at(moment, action))
        self.wake()
        return made

    def settle(self) -> None:
        """Let all happen that is due by now."""
        with self.lock:
            if self._moment is None:
                self.timeline.settle()

    def real_delay(self) -> float:
        """Return the real seconds until something is due; infinite when nothing is."""
        with self.lock:
            due = self.timeline.next_time()
            return due if math.isinf(due) else self.clock.real_delay(due)

    def make(self, kind: Kind, body: Json, namespace: str = "", manager: str = "") -> Json:
        """Return a new object as it is stored, with what the server fills in; it is not stored yet."""
        now = self.written_now()
        made = with_metadata(body, kind, namespace, self.store.new_uid(), now)
        made = with_defaults(made, self.minor)
        if manager:
            made["metadata"]["managedFields"] = [
                managed_by({**body, "apiVersion": kind.api_version}, manager, "Update", now)
            ]
        return made

    @contextlib.contextmanager
    def changing(self, kind: Kind, found: Json) -> Iterator[Json]:
        """Give a copy of an object as it is now, and store it when done; nothing if it is gone meanwhile."""
        metadata = found["metadata"]
        current = self.store.get(kind.resource, metadata.get("namespace", ""), metadata["name"])
        is_here = current is not None and current["metadata"]["uid"] == metadata["uid"]
        copied = self.store.edited(current if current is not None and is_here else found)
        yield copied
        if is_here:
            self.store.replace(kind, copied)

    def _at(self, moment: float, action: Callable[[], None]) -> None:
        self._moment = moment
        try:
            action()
        except Exception as exc:  # noqa: BLE001 - a fake that hides its own mistakes is worse than none
            self.recorder.broken.append(f"{action}: {exc!r}")
        finally:
            self._moment = None

    def _tell(self, change: Change) -> None:
        for listener in self.listeners:
            listener(change)
        with self.lock:
            self.changed.notify_all()

"""A world that outlives its drivers, and drivers that die at the k-th boundary, as SIGKILL would end them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from airflows.backends.base import Packing
from airflows.drivers import Owner, current_owner
from airflows.engine.drive import Drive
from airflows.engine.observers import Silent, Snapshot
from airflows.engine.site import Site
from airflows.engine.start import begin
from airflows.ids import Token
from airflows.ledger import Ledger, SweepRow
from airflows.ledger.opening import connect
from airflows.sweepfile import LoadedSweep, sweep_from_mapping
from airflows.testing.fake import FakeBackend, FakeCluster
from airflows.tracking import Tracker, open_tracker
from airflows.trial import Trial

BASE = {
    "experiment_name": "crash",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"lr": 0.1, "seed": 0},
}
WRITES = (
    *("create_sweep", "restore_sweep", "add_points", "apply", "add_scores", "update_sweep", "hold", "renew"),
    "edit",
)
CALLS = ("submit", "find", "poll", "cancel")
TRACKING = ("open_sweep", "create_runs", "reopen", "read", "latest", "close", "verify", "close_sweep")


class Died(BaseException):
    """The driver was killed."""


@dataclass
class Boundaries:
    """Counts the moments before and after each commit and each call out; the driver dies at one of them.

    Attributes:
        die_at: at the k-th, counted from 1; None for never.
        die_if: or at the first for whose name this is true.
        names: those crossed so far.
        is_dead: the driver has died; whatever it calls now fails too, as in its finally clauses.
    """

    die_at: int | None = None
    die_if: Callable[[str], bool] = lambda _name: False
    names: list[str] = field(default_factory=list)
    is_dead: bool = False

    def cross(self, name: str) -> None:
        """Pass a boundary, or die there."""
        self.live(name)
        self.names.append(name)
        if len(self.names) == self.die_at or self.die_if(name):
            self.is_dead = True
            raise Died(name)

    def live(self, name: str) -> None:
        """Return if the driver is alive."""
        if self.is_dead:
            raise Died(name)


class Watched:
    """An object whose named methods are boundaries, and whose every call fails once the driver is dead."""

    def __init__(self, inner: Any, names: tuple[str, ...], boundaries: Boundaries) -> None:
        self._inner, self._names, self._boundaries = inner, names, boundaries

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            if name not in self._names:
                self._boundaries.live(name)
                return value(*args, **kwargs)
            self._boundaries.cross(f"before {name}")
            result = value(*args, **kwargs)
            self._boundaries.cross(f"after {name}")
            return result

        return call


class Ticks(Silent):
    """Looks on at a driver: calls somebody at some of its ticks, and does not let it go on for ever.

    Args:
        calls: by tick, counted from 1.
        most: ticks after which the driver is stuck.
    """

    def __init__(self, calls: Mapping[int, Callable[[], None]] | None = None, *, most: int = 3000) -> None:
        self._calls = calls or {}
        self._most = most
        self.count = 0
        self.notes: list[str] = []

    def on_tick(self, snapshot: Snapshot) -> None:
        """Count, call, and see to it that there is an end.

        Raises:
            AssertionError: the driver is stuck.
        """
        self.count += 1
        self.notes += [snapshot.note] if snapshot.note else []
        _require(self.count <= self._most, f"no end after {self._most} ticks: {snapshot}")
        self._calls.get(self.count, lambda: None)()


@dataclass
class World:
    """Everything that is still there when a driver has died.

    Attributes:
        home: `$AIRFLOWS_HOME`.
        cluster: the fake cluster.
        sweep: what is driven.
        database: URL of the ledger.
        tracking_uri: of MLflow, `none` for none.
        tracker: in place of the one at `tracking_uri`.
        visible_after_s: how long the cluster's `find` misses a run.
        lose_replies: so many of the first driver's submissions are accepted, but answered as ambiguous.
        packing: how the cluster runs several trials on what one would have.
        generation: drivers started so far.
    """

    home: Path
    cluster: FakeCluster
    sweep: LoadedSweep
    database: str
    tracking_uri: str = "none"
    tracker: Tracker | None = None
    visible_after_s: float = 0.0
    lose_replies: int = 0
    packing: Packing = Packing.NONE
    generation: int = 0

    def drive(self, boundaries: Boundaries, *, dead_for_sure: bool) -> SweepRow:
        """Start a driver as a new process would and let it drive to the end, or die."""
        self.generation += 1
        opened = self.open_ledger()
        fake = self.connect()
        if self.generation == 1:
            fake.lose_replies = self.lose_replies
        site = self.site(fake, opened, boundaries)
        try:
            row = begin(site, now=self.cluster.clock()).row
            return self.driving(site, owner=self.owner(dead_for_sure=dead_for_sure)).run(row.id)
        finally:
            opened.close()

    def connect(self) -> FakeBackend:
        """Connect to the cluster anew."""
        backend = FakeBackend(self.cluster, self.home / "root", visible_after_s=self.visible_after_s)
        backend.packing = self.packing
        return backend

    def site(
        self,
        backend: FakeBackend | None = None,
        ledger: Ledger | None = None,
        boundaries: Boundaries | None = None,
    ) -> Site:
        """Return what a process works with; at one of the boundaries it dies."""
        tracker = self.tracker or open_tracker(self.tracking_uri, self.home, clock=self.cluster.clock)
        parts: list[Any] = [ledger or self.ledger, backend or self.connect(), tracker]
        if boundaries is not None:
            parts = [
                Watched(part, names, boundaries)
                for part, names in zip(parts, (WRITES, CALLS, TRACKING), strict=True)
            ]
        return Site(self.home, self.sweep, *parts)

    def begin(self) -> str:
        """Write the sweep into the ledger, or find it there; return its id."""
        return begin(self.site(), now=self.cluster.clock()).row.id

    def driving(self, site: Site, ticks: Ticks | None = None, **fields: Any) -> Drive:
        """Return what drives the sweep at the cluster's time."""
        return Drive(site, ticks or Ticks(), clock=self.cluster.clock, **fields)

    def drive_for(
        self, sweep: str, ticks: int, *, backend: FakeBackend | None = None, **fields: Any
    ) -> SweepRow:
        """Drive for some ticks, one second each while nothing moves, and let go."""
        drive = self.driving(self.site(backend), **fields)
        drive.observer = Ticks({ticks: drive.pause})
        return drive.run(sweep)

    @property
    def submitted_twice(self) -> list[Token]:
        """The attempts that were handed to the cluster more than once."""
        return [token for token, times in Counter(self.cluster.submissions).items() if times > 1]

    def open_ledger(self) -> Ledger:
        """Open the ledger anew; whoever asks closes it."""
        return Ledger(connect(self.database))

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger, for looking on."""
        return self.open_ledger()

    def close(self) -> None:
        """Give the looker's connection back."""
        self.ledger.close()

    def owner(self, *, dead_for_sure: bool) -> Owner:
        """An owner whose process is proven dead as soon as anybody asks, or one nobody can ask about."""
        here = current_owner()
        if dead_for_sure:
            return Owner(here.host, here.boot, here.namespace, _unused_pid(), 1)
        return Owner(f"host-{self.generation}", "another-boot", "", 1, 1)


def _unused_pid() -> int:
    return int(Path("/proc/sys/kernel/pid_max").read_text(encoding="ascii")) - 1


def make_world(
    home: Path, *, scripts: Callable[..., Any], tree: dict[str, Any] | None = None, **fields: Any
) -> World:
    """A sweep of a few points on a fake cluster."""
    home.mkdir(parents=True, exist_ok=True)
    mapping = {
        "name": "crash",
        "base": BASE,
        "space": {"parameters.lr": [0.1, 0.2, 0.3]},
        "limits": {"concurrent": 2},
        "retry": {"wait": "1s"},
        **(tree or {}),
    }
    fields.setdefault("database", f"sqlite:///{home}/ledger.db")
    return World(home, FakeCluster(scripts=scripts), sweep_from_mapping(mapping, directory=home), **fields)


def check(world: World, sweep: str) -> None:
    """Check that a world is as it must be after any number of deaths.

    One run per token, every trial ended and closed, every run known to the ledger, and each trial's
    events leading from PENDING to where its row is.

    Raises:
        AssertionError: something was lost, run twice, or told differently.
    """
    _require(not world.submitted_twice, f"submitted twice: {world.submitted_twice}")
    ledger = world.ledger
    trials = ledger.trials(sweep)
    unended = [trial.id for trial in trials if not (trial.state.is_final and trial.closed)]
    _require(not unended, f"not ended: {unended}")
    tokens = {attempt.token for attempt in ledger.attempts(sweep)}
    _require(tokens == set(world.cluster.runs), "the ledger's attempts are not the cluster's runs")
    for trial in trials:
        _check_story(ledger, trial)


def _check_story(ledger: Ledger, trial: Trial) -> None:
    state = "pending"
    for event in ledger.events(trial.sweep, trial.number):
        _require(event.from_state == state, f"{trial.id}: {event} does not follow {state}")
        state = event.to_state
    _require(state == trial.state, f"{trial.id}: its events end in {state}, its row is {trial.state}")
    attempts = ledger.attempts(trial.sweep, trial.number)
    numbers = [attempt.attempt for attempt in attempts]
    # What ended while it waited for its next attempt never had that one.
    began = trial.attempt + (trial.claimed_at is not None)
    _require(numbers == list(range(began)), f"{trial.id}: attempts {numbers}")
    _require(attempts[-1].state == trial.state, f"{trial.id}: its last attempt is {attempts[-1].state}")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)

"""Telling a person how a sweep comes along: a live view on a terminal, else a plain line now and then."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from airflows.cli.render import counts_text, handle_text
from airflows.cli.table import number_text, one_line
from airflows.cli.terminal import Session
from airflows.documents import counts_document
from airflows.errors import AirflowsError
from airflows.times import human_duration
from airflows.trial import EventKind, State

if TYPE_CHECKING:
    from airflows.engine.observers import Snapshot
    from airflows.engine.site import Site
    from airflows.ledger import Change
    from airflows.report.live import Scene

PLAIN_EVERY_S = 10.0
LOOK_EVERY_S = 0.5
_SPARED = 19
_WHOLE_FAILURES = 3
_SHORT_FAILURES = 10
_TAIL_LINES = 12


class Gauge(Protocol):
    """Something that shows how far a sweep is."""

    def show(self, snapshot: Snapshot, words: str, left: str) -> None:
        """Show a snapshot in words, and how long is left, empty when not known."""

    def note(self, *lines: str) -> None:
        """Print lines that stay."""

    def close(self) -> None:
        """Leave the terminal as it was found."""


@dataclass(slots=True)
class PlainLines:
    """A line when something changed, at most one in ten seconds.

    Attributes:
        session: where to.
        clock: seconds that only go forward.
    """

    session: Session
    clock: Callable[[], float] = time.monotonic
    _shown: str = ""
    _latest: str = ""
    _due: float = float("-inf")

    def show(self, snapshot: Snapshot, words: str, left: str) -> None:
        """Print the words when they are due and new."""
        now = self.clock()
        self._latest = f"{snapshot.sweep}: {words}"
        if self._latest != self._shown and now >= self._due:
            self._shown, self._due = self._latest, now + PLAIN_EVERY_S
            self.session.note(f"{self._latest}{left}")

    def note(self, *lines: str) -> None:
        """Print lines."""
        self.session.note(*lines)

    def close(self) -> None:
        """Print how it stands, when that is news."""
        if self._latest != self._shown:
            self.session.note(self._latest)


class Quiet:
    """Shows no progress: something else is on the screen."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def show(self, snapshot: Snapshot, words: str, left: str) -> None:
        """Do nothing."""

    def note(self, *lines: str) -> None:
        """Print lines."""
        self._session.note(*lines)

    def close(self) -> None:
        """Do nothing."""


class Looks(Protocol):
    """What looks at a sweep."""

    def look(self, note: str = "") -> Scene:
        """Return what is to be seen of it."""

    def close(self) -> None:
        """Look no more."""


class Display(Protocol):
    """What shows a scene."""

    def show(self, scene: Scene) -> None:
        """Draw this soon."""

    def note(self, *lines: str) -> None:
        """Print lines above."""

    def remark(self, text: str) -> None:
        """Print a line above soon, without a lock."""

    def close(self) -> None:
        """Leave the terminal as it was found."""


@dataclass(slots=True)
class LiveGauge:
    """The live view below what is printed. A look takes the driver's time, and at most a twentieth of it.

    Attributes:
        onlooker: looks.
        display: draws.
        clock: seconds that only go forward.
    """

    onlooker: Looks
    display: Display
    clock: Callable[[], float] = time.monotonic
    _due: float = float("-inf")

    def show(self, snapshot: Snapshot, words: str, left: str) -> None:  # noqa: ARG002 - it has more to say
        """Look again when that is due; without an answer the last picture stays."""
        began = self.clock()
        if began < self._due:
            return
        with contextlib.suppress(AirflowsError):
            self.display.show(self.onlooker.look(one_line(snapshot.note)))
        now = self.clock()
        self._due = now + max(LOOK_EVERY_S, _SPARED * (now - began))

    def note(self, *lines: str) -> None:
        """Print lines above the view."""
        self.display.note(*lines)

    def close(self) -> None:
        """Remove the view."""
        self.onlooker.close()
        self.display.close()


def live_gauge(session: Session, sweep: str, site: Site) -> LiveGauge:
    """Return the live view of a sweep on stderr."""
    from airflows.cli.live import LiveDisplay  # noqa: PLC0415 - only a terminal needs it
    from airflows.engine.onlooker import Onlooker  # noqa: PLC0415

    row = site.ledger.sweep(sweep)
    onlooker = Onlooker(site.ledger, row, site.spec, site.home, drives=True)
    return LiveGauge(onlooker, LiveDisplay(sys.stderr, color=session.note_style.color, alone=False))


def _ended(snapshot: Snapshot) -> int:
    return sum(count for state, count in snapshot.counts.items() if state.is_final)


@dataclass(slots=True)
class Pace:
    """How fast trials end, for an estimate of the rest.

    Attributes:
        began: when watching began; None before the first look.
    """

    began: float | None = None
    _ended: int = 0

    def left_s(self, ended: int, total: int | None, now: float) -> float | None:
        """Return the seconds until all trials have ended at this pace; None while nothing is known."""
        if self.began is None:
            self.began, self._ended = now, ended
        done, took = ended - self._ended, now - self.began
        if total is None or done <= 0 or took <= 0 or total <= ended:
            return None
        return (total - ended) * took / done


def words_for(snapshot: Snapshot) -> str:
    """Return `12 of 27 ended, 2 running, best 0.972 (trial 14)`."""
    words = [counts_text(counts_document(snapshot.counts, snapshot.total))]
    if snapshot.best is not None:
        value, number = snapshot.best
        words.append(f"best {number_text(value)} (trial {number})")
    text = ", ".join(words)
    return f"{text}; {one_line(snapshot.note)}" if snapshot.note else text


def left_text(left_s: float | None) -> str:
    """Return `, about 40s left`, empty when not known."""
    return "" if left_s is None else f", about {human_duration(left_s)} left"


@dataclass(slots=True)
class Reporter:
    """The observer that talks to people. What it prints is never worth more than the sweep itself.

    Attributes:
        session: where to.
        site: what the sweep works with, once known: for the last lines of failures.
        gauge: made on the first tick.
        on_attempt: is told of every change, too.
    """

    session: Session
    site: Site | None = None
    gauge: Gauge | None = None
    on_attempt: Callable[[Change], None] | None = None
    _pace: Pace = field(default_factory=Pace)
    _failures: int = 0
    _signatures: dict[str, str] = field(default_factory=dict)
    _avoided: frozenset[str] = frozenset()
    _unseen: str = ""

    def on_tick(self, snapshot: Snapshot) -> None:
        """Show how far it is."""
        self._tell_of_hosts(snapshot)
        self._tell_of_names(snapshot)
        left = self._pace.left_s(_ended(snapshot), snapshot.total, snapshot.at)
        self._open(snapshot.sweep).show(snapshot, words_for(snapshot), left_text(left))

    def _tell_of_hosts(self, snapshot: Snapshot) -> None:
        avoided = {each.host: each.sentence for each in snapshot.avoided}
        for host in sorted(avoided.keys() - self._avoided):
            self.note(f"From now on host {host} is avoided: {avoided[host]}.")
        for host in sorted(self._avoided - avoided.keys()):
            self.note(f"Host {host} is no longer avoided: trials fail elsewhere, too.")
        self._avoided = frozenset(avoided)

    def _tell_of_names(self, snapshot: Snapshot) -> None:
        if snapshot.unseen and snapshot.unseen != self._unseen:
            self.note(f"warning: {snapshot.unseen}")
        self._unseen = snapshot.unseen

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Tell of failures as they happen."""
        for change in changes:
            if self.on_attempt is not None:
                self.on_attempt(change)
            # A trial that fails while it waits for a retry was told of when its attempt failed.
            is_failure = change.event.kind in {EventKind.FAILED, EventKind.REJECTED, EventKind.RETRIED}
            if is_failure and change.before.state is not State.PENDING:
                self._tell(change)

    def note(self, *lines: str) -> None:
        """Print lines that stay."""
        if self.gauge is None:
            self.session.note(*lines)
        else:
            self.gauge.note(*lines)

    def remark(self, text: str) -> bool:
        """Print a line above the view soon, for a signal handler; False where no view is drawn."""
        gauge = self.gauge
        if not isinstance(gauge, LiveGauge):
            return False
        gauge.display.remark(text)
        return True

    def close(self) -> None:
        """Leave the terminal as it was found."""
        if self.gauge is not None:
            self.gauge.close()
            self.gauge = None

    def _open(self, sweep: str) -> Gauge:
        if self.gauge is None:
            if self.session.shows_progress and self.site is not None:
                self.gauge = live_gauge(self.session, sweep, self.site)
            else:
                self.gauge = PlainLines(self.session)
        return self.gauge

    def _tell(self, change: Change) -> None:
        attempt = f"{change.before.id}.{change.before.attempt}"
        signature = str(change.event.changes.get("signature", ""))
        known = self._signatures.get(signature) if signature else None
        self._failures += 1
        is_final = change.after.state is State.FAILED
        if known is None and len(self._signatures) < _WHOLE_FAILURES:
            self._signatures[signature or attempt] = attempt
            self.note(*failure_lines(change, self._tail(change), self._log(change), self.session))
        elif self._failures <= _SHORT_FAILURES:
            again = "" if is_final else ", to be tried again"
            why = f" as {known} did{again}" if known else f"{again}: {one_line(change.event.detail)}"
            self.note(f"{attempt} failed{why}")
        elif self._failures == _SHORT_FAILURES + 1:
            self.note(f"Further failures are only counted; see airflows get {change.before.sweep}.")

    def _tail(self, change: Change) -> list[str]:
        if self.site is None or change.before.handle is None:
            return []
        try:
            logs = self.site.backend.logs(change.before.handle, node=0, follow=False, lines=_TAIL_LINES)
            return list(logs)
        except (AirflowsError, OSError):
            return []

    def _log(self, change: Change) -> str:
        """Return the log's file, where there is one on this machine."""
        if self.site is None:
            return ""
        from airflows.backends.places import place_named  # noqa: PLC0415 - help does without

        trial = change.before
        root = place_named(self.site.backend, trial.backend).own.root
        path = root / "runs" / trial.sweep / str(trial.number) / f"a{trial.attempt}" / "logs" / "node_0.log"
        return str(path) if path.exists() else ""


def failure_lines(change: Change, tail: Sequence[str], log: str, session: Session) -> list[str]:
    """Return what a person needs of a failed attempt: which, where, why, its last lines, what to do.

    Args:
        change: the transition.
        tail: last lines of its log.
        log: the log's file, empty when there is none here.
        session: how it looks.
    """
    trial, style = change.before, session.note_style
    is_final = change.after.state is State.FAILED
    where = f" ({handle_text(trial.backend, trial.handle)})" if trial.handle else ""
    what = style.paint("failed", "red") if is_final else style.paint("failed, to be tried again", "yellow")
    lines = [f"{trial.id}.{trial.attempt} {what}{where}: {one_line(change.event.detail)}"]
    lines += [f"  | {one_line(line)}" for line in tail]
    if log:
        lines.append(style.paint(f"  log: {log}", "dim"))
    following = f"airflows logs {trial.id} --attempt {trial.attempt}"
    if is_final:
        following += f", and after a fix: airflows resume {trial.sweep} --failed"
    return [*lines, style.paint(f"  next: {following}", "dim")]

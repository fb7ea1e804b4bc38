"""Who is told what happens while a sweep is driven."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from airflows.hosts import AvoidedHost
from airflows.ledger import Change
from airflows.trial import State


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How a sweep stands.

    Attributes:
        sweep: its id.
        at: seconds since the epoch, UTC.
        total: trials planned, None when not known.
        counts: trials created so far by state.
        best: (value, trial number) of the best single trial so far.
        note: what is being waited for, empty when all is well.
        avoided: hosts on which nothing is started any more.
        unseen: that the metric is logged under another name, empty while that is not known.
    """

    sweep: str
    at: float
    total: int | None
    counts: Mapping[State, int]
    best: tuple[float, int] | None
    note: str = ""
    avoided: Sequence[AvoidedHost] = ()
    unseen: str = ""


class Observer(Protocol):
    """Somebody who is told what happens; must not raise and must not take long."""

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Transitions that were just written."""

    def on_tick(self, snapshot: Snapshot) -> None:
        """The sweep after a tick."""


class Shielded:
    """An observer whose terminal or file may go away: what is printed is never worth more than the sweep."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Tell of them, if anybody can still be told."""
        with contextlib.suppress(OSError, ValueError):
            self._observer.on_changes(changes)

    def on_tick(self, snapshot: Snapshot) -> None:
        """Tell of it, if anybody can still be told."""
        with contextlib.suppress(OSError, ValueError):
            self._observer.on_tick(snapshot)


class Silent:
    """An observer that does nothing."""

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Do nothing."""

    def on_tick(self, snapshot: Snapshot) -> None:
        """Do nothing."""

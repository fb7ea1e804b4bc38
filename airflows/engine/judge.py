"""Who looks at trials while they run and says which are to end: a stopping rule, or a rehearsal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from airflows.engine.metricnames import Unseen
from airflows.ledger import Lease, Ledger
from airflows.planner import Orders
from airflows.trial import Trial


class Judge(Protocol):
    """What a driver asks.

    Attributes:
        held: trials that wait and do not run.
        note: what is being waited for, empty when all is well.
        unseen: whether the metrics that decide are logged at all.
    """

    held: int
    note: str
    unseen: Unseen

    def take_over(self, ledger: Ledger, sweep: str) -> None:
        """Take what an earlier driver has left."""

    def expect(self, trials: Iterable[Trial]) -> None:
        """Take new trials."""

    def follow(self, trial: Trial) -> None:
        """Take a trial as it stands after a transition."""

    def look(self, ledger: Ledger, lease: Lease, now: float) -> None:
        """Look at what runs."""

    def orders(self, *, planned: int | None, may_start: bool) -> Orders:
        """Return which trials are to end, and which are to be resumed."""

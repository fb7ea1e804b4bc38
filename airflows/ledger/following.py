"""Questions of who follows a sweep as it comes along: what has changed since the last look."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from airflows.ledger import schema
from airflows.ledger.outcomes import Outcomes
from airflows.trial import State

# More numbers than these are not listed: to read all rows is quicker.
_MOST_LISTED = 500


class FollowedAttempt(NamedTuple):
    """What an attempt has cost so far, and why it ended."""

    number: int
    attempt: int
    state: str
    reason: str
    signature: str
    message: str
    started_at: float | None
    ended_at: float | None
    accelerators: float


class FollowedEnd(NamedTuple):
    """A trial that has ended. `closed`: its metric was read, or will never be."""

    number: int
    state: str
    ended_at: float | None
    value: float | None
    closed: bool


class Following(Outcomes):
    """Reads whose cost follows what has changed, not the size of the sweep."""

    def touched(self, sweep: str, after: int) -> tuple[int, dict[int, int]]:
        """Return (id of the newest event, id -> trial number of the sweep's events after that id).

        On PostgreSQL ids do not become visible in their order: another transaction may still be open.
        """
        table = schema.events.c
        # By id alone: with the sweep in the condition SQLite reads all of its events by the other index.
        rows = self._rows(
            sa.select(table.id, table.sweep, table.number).where(table.id > after).order_by(table.id)
        )
        newest = rows[-1].id if rows else after
        return newest, {row.id: row.number for row in rows if row.sweep == sweep}

    def newest_event(self) -> int:
        """Return the id of the newest event of any sweep, 0 for none."""
        return int(self._rows(sa.select(sa.func.max(schema.events.c.id)))[0][0] or 0)

    def followed_attempts(
        self, sweep: str, numbers: Collection[int] | None = None
    ) -> Iterator[FollowedAttempt]:
        """Yield the attempts at these trials, or at all, by trial and attempt."""
        table = schema.attempts
        columns = [table.c[name] for name in FollowedAttempt._fields]
        rows = self._of(table, columns, sweep, numbers)
        yield from (FollowedAttempt(*row) for row in rows)

    def followed_ends(self, sweep: str, numbers: Collection[int] | None = None) -> Iterator[FollowedEnd]:
        """Yield those of these trials, or of all, that have ended."""
        table = schema.trials
        columns = [table.c[name] for name in FollowedEnd._fields]
        final = table.c.state.in_([state for state in State if state.is_final])
        yield from (FollowedEnd(*row) for row in self._of(table, columns, sweep, numbers, final))

    def followed_points(self, sweep: str, numbers: Collection[int]) -> dict[int, Mapping[str, Any]]:
        """Return number -> overrides of these points."""
        table = schema.points
        rows = self._of(table, [table.c.number, table.c.overrides], sweep, numbers)
        return {row.number: json.loads(row.overrides) for row in rows}

    def _of(
        self,
        table: sa.Table,
        columns: Sequence[Any],
        sweep: str,
        numbers: Collection[int] | None,
        *conditions: Any,
    ) -> Sequence[Any]:
        if numbers is not None and not numbers:
            return ()
        statement = sa.select(*columns).where(table.c.sweep == sweep, *conditions).order_by(table.c.number)
        if numbers is not None and len(numbers) <= _MOST_LISTED:
            statement = statement.where(table.c.number.in_(sorted(numbers)))
        return self._rows(statement)

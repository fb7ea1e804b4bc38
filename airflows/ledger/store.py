"""Writes to the ledger: short transactions, compare-and-set, and the lease that fences them.

No network is ever called inside a transaction here. A write by a driver checks its lease in the same
transaction (the first wall) and each row's version (the second).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from airflows.drivers import Owner
from airflows.errors import LeaseHeldError, LeaseLostError
from airflows.ledger import schema
from airflows.ledger.changes import (
    Prepared,
    insert_trials,
    write_changes,
    write_closings,
    write_scores,
    write_stories,
)
from airflows.ledger.following import Following
from airflows.ledger.opening import translated
from airflows.ledger.reads import no_sweep
from airflows.ledger.records import Change, Closing, Lease, PointRow, StoredScore, SweepRow, SweepState, Wish
from airflows.times import to_iso
from airflows.trial import Trial

_INSERT_POINTS = sa.insert(schema.points)
_LEASE_TOKEN = Prepared(
    sa.select(schema.sweeps.c.lease_token)
    .where(schema.sweeps.c.id == sa.bindparam("sweep"))
    # FOR SHARE keeps a PostgreSQL takeover waiting until this commit; SQLite has one writer anyway.
    .with_for_update(read=True)
)


class Ledger(Following):
    """A ledger on one database.

    Safe to use from one thread at a time, but for `renew`, which a lease thread may call beside it.
    Several processes may hold the same database open. Final rows never change but for their value;
    `Trial` snapshots handed out never change.
    """

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    @property
    def is_shared(self) -> bool:
        """Whether drivers on several machines can use it (a database server)."""
        return self._engine.dialect.name != "sqlite"

    def survive_power_cuts(self) -> None:
        """Write every commit through to the disk: for backends whose runs outlive this machine."""
        if self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "checkout", _synchronous_full)

    @contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        with translated(self._engine), self._engine.begin() as connection:
            yield connection

    # Sweeps

    def create_sweep(self, row: SweepRow) -> bool:
        """Insert a sweep; False when its id is there already (somebody else was first)."""
        return self.restore_sweep(row, [], [], [])

    def restore_sweep(
        self,
        row: SweepRow,
        points: Sequence[PointRow],
        trials: Sequence[Trial],
        changes: Sequence[Change],
    ) -> bool:
        """Insert a sweep with all that became of it, in one transaction; False when its id is there already.

        Args:
            row: the sweep.
            points: its first points.
            trials: of these, as they stand.
            changes: that led there, those of each trial in order.
        """
        values = {field.name: getattr(row, field.name) for field in fields(SweepRow)}
        with translated(self._engine):
            try:
                with self._engine.begin() as connection:
                    connection.execute(sa.insert(schema.sweeps).values(**values))
                    _insert_points(connection, row.id, points)
                    write_stories(connection, trials, changes)
            except sa.exc.IntegrityError:
                if not self._rows(sa.select(schema.sweeps.c.id).where(schema.sweeps.c.id == row.id)):
                    raise
                return False
        return True

    def update_sweep(self, lease: Lease, **values: Any) -> None:
        """Set columns of the sweep, as its driver. A `wish` does not replace a person's STOP.

        Raises:
            LeaseLostError: the lease is another driver's now.
        """
        if "wish" in values:
            kept = schema.sweeps.c.wish
            values["wish"] = sa.case((kept == Wish.STOP.value, kept), else_=values["wish"].value)
        with self._write() as connection:
            self._fence(connection, lease)
            _set(connection, lease.sweep, values)

    def delete_sweep(self, sweep: str) -> None:
        """Remove a sweep that never started anything."""
        with self._write() as connection:
            connection.execute(sa.delete(schema.sweeps).where(schema.sweeps.c.id == sweep))

    def wish(self, sweep: str, wish: Wish) -> None:
        """Write down what is wanted of a sweep; its driver sees it at its next tick."""
        with self._write() as connection:
            connection.execute(
                sa.update(schema.sweeps)
                .where(schema.sweeps.c.id == sweep)
                .values(wish=wish, requests=schema.sweeps.c.requests + 1)
            )

    def request_cancel(self, sweep: str, numbers: Collection[int]) -> None:
        """Write down that these trials are to be cancelled; the driver does it at its next tick."""
        with self._write() as connection:
            _request(connection, sweep, numbers, cancel=True)
            connection.execute(
                sa.update(schema.sweeps)
                .where(schema.sweeps.c.id == sweep)
                .values(requests=schema.sweeps.c.requests + 1)
            )

    # Trials

    def add_points(
        self, lease: Lease, points: Sequence[PointRow], trials: Sequence[Trial], **progress: Any
    ) -> None:
        """Append points and their trials, and set the sweep's `progress` columns, in one transaction.

        Raises:
            LeaseLostError: the lease is another driver's now; nothing was written.
        """
        with self._write() as connection:
            self._fence(connection, lease)
            _insert_points(connection, lease.sweep, points)
            insert_trials(connection, trials)
            if progress:
                _set(connection, lease.sweep, progress)

    def apply(
        self,
        lease: Lease,
        changes: Sequence[Change],
        closings: Sequence[Closing] = (),
        sweep: Mapping[str, Any] | None = None,
    ) -> None:
        """Write transitions with their events and attempts, closings and sweep columns, all or nothing.

        Raises:
            LeaseLostError: the lease is another driver's now.
            StaleTrialError: a row has another version than the change started from.
        """
        if not (changes or closings or sweep):
            return
        with self._write() as connection:
            self._fence(connection, lease)
            write_changes(connection, changes)
            write_closings(connection, lease.sweep, closings)
            if sweep:
                _set(connection, lease.sweep, sweep)

    def edit(
        self,
        lease: Lease,
        changes: Sequence[Change],
        *,
        cancel: Collection[int],
        keep: Collection[int],
        **sweep: Any,
    ) -> None:
        """Write what another sweep file makes of a sweep, all or nothing.

        Args:
            lease: of whoever edits.
            changes: transitions of trials that run again.
            cancel: trials that the next driver cancels.
            keep: trials that it no longer cancels.
            **sweep: the sweep's columns.

        Raises:
            LeaseLostError: the lease is another driver's now.
            StaleTrialError: a row has another version than the change started from.
        """
        with self._write() as connection:
            self._fence(connection, lease)
            write_changes(connection, changes)
            _request(connection, lease.sweep, keep, cancel=False)
            _request(connection, lease.sweep, cancel, cancel=True)
            _set(connection, lease.sweep, sweep)

    def add_scores(self, lease: Lease, scores: Sequence[StoredScore]) -> None:
        """Write values of curves; one that is there already stays as it was first read.

        Raises:
            LeaseLostError: the lease is another driver's now.
        """
        if scores:
            with self._write() as connection:
                self._fence(connection, lease)
                write_scores(connection, lease.sweep, scores)

    # Leases

    def hold(self, sweep: str, owner: Owner, *, now: float, ttl_s: float, token: str) -> Lease:
        """Take the lease of a sweep.

        A lease that has run out, or whose holder is proven dead on this host, is taken over at once.

        Args:
            sweep: the sweep's id.
            owner: who asks.
            now: seconds since the epoch, UTC.
            ttl_s: for how long without `renew`.
            token: new and unique for every call.

        Raises:
            LeaseHeldError: somebody else drives; the message says who and since when.
            NotFoundError: there is no such sweep.
        """
        table = schema.sweeps
        with self._write() as connection:
            row = connection.execute(
                sa.select(table.c.lease_owner, table.c.lease_since, table.c.lease_until, table.c.doubt_until)
                .where(table.c.id == sweep)
                .with_for_update()
            ).first()
            if row is None:
                raise no_sweep(sweep)
            holder = Owner.from_text(row.lease_owner) if row.lease_owner else None
            dead = holder is not None and holder.is_dead()
            if holder is not None and not dead and (row.lease_until or 0) > now:
                raise _held(sweep, holder, row.lease_since)
            doubt_until = row.doubt_until
            if holder is not None and not dead:
                doubt_until = max(doubt_until, now + ttl_s)
            connection.execute(
                sa.update(table)
                .where(table.c.id == sweep)
                .values(
                    lease_owner=owner.to_text(),
                    lease_token=token,
                    lease_since=now,
                    lease_until=now + ttl_s,
                    doubt_until=doubt_until,
                )
            )
        return Lease(sweep, token, owner.to_text(), doubt_until)

    def renew(self, lease: Lease, *, now: float, ttl_s: float) -> None:
        """Extend a lease.

        Raises:
            LeaseLostError: it is another driver's now.
        """
        table = schema.sweeps
        with self._write() as connection:
            done = connection.execute(
                sa.update(table)
                .where(table.c.id == lease.sweep, table.c.lease_token == lease.token)
                .values(lease_until=now + ttl_s)
            )
        if done.rowcount != 1:
            raise _lost(lease.sweep)

    def release(self, lease: Lease) -> None:
        """Give the lease back; nothing happens when it is another driver's already."""
        table = schema.sweeps
        with self._write() as connection:
            connection.execute(
                sa.update(table)
                .where(table.c.id == lease.sweep, table.c.lease_token == lease.token)
                .values(lease_owner="", lease_token="", lease_since=None, lease_until=None)
            )

    def _fence(self, connection: sa.Connection, lease: Lease) -> None:
        row = _LEASE_TOKEN.first(connection, {"sweep": lease.sweep})
        if row is None or row[0] != lease.token:
            raise _lost(lease.sweep)


def _set(connection: sa.Connection, sweep: str, values: Mapping[str, Any]) -> None:
    connection.execute(sa.update(schema.sweeps).where(schema.sweeps.c.id == sweep).values(**values))


def _request(connection: sa.Connection, sweep: str, numbers: Collection[int], *, cancel: bool) -> None:
    table = schema.trials
    for chunk in _chunks(sorted(numbers)):
        connection.execute(
            sa.update(table)
            .where(table.c.sweep == sweep, table.c.number.in_(chunk))
            .values(cancel_requested=cancel)
        )


def _insert_points(connection: sa.Connection, sweep: str, points: Sequence[PointRow]) -> None:
    if not points:
        return
    rows = [
        {
            "sweep": sweep,
            "number": p.number,
            "overrides": json.dumps(p.overrides),
            "digest": p.digest,
            "memo": p.memo,
            "same_as": p.same_as,
        }
        for p in points
    ]
    connection.execute(_INSERT_POINTS, rows)


def _synchronous_full(connection: Any, _record: Any, _proxy: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _held(sweep: str, holder: Owner, since: float | None) -> LeaseHeldError:
    when = "" if since is None else f", since {to_iso(since)}"
    return LeaseHeldError(
        f"sweep {sweep} is driven by process {holder.pid} on {holder.host}{when}.",
        owner=f"{holder.host}:{holder.pid}",
        hint=f"Look on with: airflows watch {sweep}",
    )


def _lost(sweep: str) -> LeaseLostError:
    return LeaseLostError(
        f"another driver has taken over sweep {sweep}; this one stops.",
        hint=f"Look on with: airflows watch {sweep}",
    )


def _chunks(numbers: Sequence[int], size: int = 500) -> Iterator[Sequence[int]]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


__all__ = ["Ledger", "SweepState"]

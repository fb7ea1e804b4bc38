"""Writes to the ledger: short transactions, compare-and-set, and the lease that fences them.

No network is ever called inside a transaction here. A write by a driver checks its lease in the same
transaction (the first wall) and each row's version (the second).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from airflows.drivers import Owner
from airflows.errors import LeaseHeldError, LeaseLostError, StaleTrialError
from airflows.ledger import schema
from airflows.ledger.connect import translated
from airflows.ledger.reads import Reads
from airflows.ledger.records import Change, Closing, Lease, PointRow, SweepRow, SweepState, Wish
from airflows.times import to_iso
from airflows.trial import EventKind, Trial, attempt_after

_TRIAL_FIELDS = tuple(field.name for field in fields(Trial))
_INSERT_POINTS = sa.insert(schema.points)
_INSERT_TRIALS = sa.insert(schema.trials)
_INSERT_EVENTS = sa.insert(schema.events)
_INSERT_ATTEMPTS = sa.insert(schema.attempts)
_KEYS = ("sweep", "number", "point", "replicate")
_UPDATE_TRIALS = (
    sa.update(schema.trials)
    .where(
        schema.trials.c.sweep == sa.bindparam("k_sweep"),
        schema.trials.c.number == sa.bindparam("k_number"),
        schema.trials.c.version == sa.bindparam("k_version"),
    )
    # A person's request to cancel comes from another process: only REOPENED may clear it.
    .values({n: sa.bindparam(f"v_{n}") for n in _TRIAL_FIELDS if n not in {*_KEYS, "cancel_requested"}})
)
_ATTEMPT_VALUES = (
    *("batch", "handle", "host", "state", "reason", "signature", "message", "exit_code"),
    *("claimed_at", "submitted_at", "started_at", "ended_at", "resumed_from"),
)
_THE_ATTEMPT = (
    schema.attempts.c.sweep == sa.bindparam("k_sweep"),
    schema.attempts.c.number == sa.bindparam("k_number"),
    schema.attempts.c.attempt == sa.bindparam("k_attempt"),
)
_UPDATE_ATTEMPTS = (
    sa.update(schema.attempts)
    .where(*_THE_ATTEMPT)
    .values({n: sa.bindparam(f"v_{n}") for n in _ATTEMPT_VALUES})
)
_DELETE_ATTEMPTS = sa.delete(schema.attempts).where(*_THE_ATTEMPT)


class Ledger(Reads):
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
        values = {field.name: getattr(row, field.name) for field in fields(SweepRow)}
        with self._write() as connection:
            there = connection.execute(
                sa.select(schema.sweeps.c.id).where(schema.sweeps.c.id == row.id)
            ).first()
            if there is not None:
                return False
            connection.execute(sa.insert(schema.sweeps).values(**values))
        return True

    def update_sweep(self, lease: Lease, **values: Any) -> None:
        """Set columns of the sweep, as its driver.

        Raises:
            LeaseLostError: the lease is another driver's now.
        """
        with self._write() as connection:
            self._fence(connection, lease)
            connection.execute(
                sa.update(schema.sweeps).where(schema.sweeps.c.id == lease.sweep).values(**values)
            )

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
        table = schema.trials
        with self._write() as connection:
            for chunk in _chunks(sorted(numbers)):
                connection.execute(
                    sa.update(table)
                    .where(table.c.sweep == sweep, table.c.number.in_(chunk))
                    .values(cancel_requested=True)
                )
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
            if points:
                connection.execute(
                    _INSERT_POINTS,
                    [
                        {
                            "sweep": lease.sweep,
                            "number": p.number,
                            "overrides": json.dumps(p.overrides),
                            "digest": p.digest,
                        }
                        for p in points
                    ],
                )
            if trials:
                connection.execute(
                    _INSERT_TRIALS, [{n: getattr(t, n) for n in _TRIAL_FIELDS} for t in trials]
                )
            if progress:
                connection.execute(
                    sa.update(schema.sweeps).where(schema.sweeps.c.id == lease.sweep).values(**progress)
                )

    def apply(self, lease: Lease, changes: Sequence[Change], closings: Sequence[Closing] = ()) -> None:
        """Write transitions with their events and attempts, and closings, all or nothing.

        Raises:
            LeaseLostError: the lease is another driver's now.
            StaleTrialError: a row has another version than the change started from.
        """
        if not changes and not closings:
            return
        with self._write() as connection:
            self._fence(connection, lease)
            self._apply_changes(connection, changes)
            for closing in closings:
                _close(connection, lease.sweep, closing)

    def _apply_changes(self, connection: sa.Connection, changes: Sequence[Change]) -> None:
        if not changes:
            return
        done = connection.execute(_UPDATE_TRIALS, [_trial_values(change) for change in changes])
        if done.rowcount != len(changes):
            names = ", ".join(change.before.id for change in changes[:3])
            message = f"the ledger moved on under {names}; nothing was written."
            raise StaleTrialError(message)
        reopened = [c for c in changes if c.event.kind is EventKind.REOPENED]
        for change in reopened:
            connection.execute(
                sa.update(schema.trials)
                .where(
                    schema.trials.c.sweep == change.after.sweep,
                    schema.trials.c.number == change.after.number,
                )
                .values(cancel_requested=False)
            )
        _write_attempts(connection, changes)
        connection.execute(_INSERT_EVENTS, [_event_values(change) for change in changes])

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
        """
        table = schema.sweeps
        with self._write() as connection:
            row = connection.execute(
                sa.select(table.c.lease_owner, table.c.lease_since, table.c.lease_until)
                .where(table.c.id == sweep)
                .with_for_update()
            ).one()
            holder = Owner.from_text(row.lease_owner) if row.lease_owner else None
            dead = holder is not None and holder.is_dead()
            if holder is not None and not dead and (row.lease_until or 0) > now:
                raise _held(sweep, holder, row.lease_since)
            connection.execute(
                sa.update(table)
                .where(table.c.id == sweep)
                .values(
                    lease_owner=owner.to_text(), lease_token=token, lease_since=now, lease_until=now + ttl_s
                )
            )
        return Lease(sweep, token, owner.to_text(), alone=holder is None or dead)

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
        table = schema.sweeps.c
        # FOR SHARE keeps a PostgreSQL takeover waiting until this commit; SQLite has one writer anyway.
        row = connection.execute(
            sa.select(table.lease_token).where(table.id == lease.sweep).with_for_update(read=True)
        ).first()
        if row is None or row.lease_token != lease.token:
            raise _lost(lease.sweep)


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


def _trial_values(change: Change) -> dict[str, Any]:
    after = change.after
    values: dict[str, Any] = {f"v_{name}": getattr(after, name) for name in _TRIAL_FIELDS}
    values |= {"k_sweep": after.sweep, "k_number": after.number, "k_version": change.before.version}
    return values


def _event_values(change: Change) -> dict[str, Any]:
    before, after, event = change.before, change.after, change.event
    return {
        "sweep": after.sweep,
        "number": after.number,
        "attempt": before.attempt,
        "at": event.at,
        "kind": event.kind,
        "from_state": before.state,
        "to_state": after.state,
        "reason": event.reason,
        "detail": event.detail,
    }


def _write_attempts(connection: sa.Connection, changes: Sequence[Change]) -> None:
    made = [c for c in changes if c.event.kind is EventKind.CLAIMED]
    # What was never sent never ran: its number is used again, and the events tell the story.
    unsent = [c for c in changes if c.event.kind is EventKind.UNSENT]
    moved = [c for c in changes if c.before.state.is_in_flight and c.event.kind is not EventKind.UNSENT]
    if unsent:
        connection.execute(_DELETE_ATTEMPTS, [_attempt_key(c) for c in unsent])
    if made:
        connection.execute(_INSERT_ATTEMPTS, [_new_attempt(c) for c in made])
    if moved:
        connection.execute(_UPDATE_ATTEMPTS, [_moved_attempt(c) for c in moved])


def _attempt_key(change: Change) -> dict[str, Any]:
    before = change.before
    return {"k_sweep": before.sweep, "k_number": before.number, "k_attempt": before.attempt}


def _new_attempt(change: Change) -> dict[str, Any]:
    after = change.after
    empty = dict.fromkeys(("host", "reason", "signature", "message", "resumed_from"), "")
    return empty | {
        "sweep": after.sweep,
        "number": after.number,
        "attempt": after.attempt,
        "token": change.token,
        "backend": after.backend,
        "batch": after.batch,
        "state": after.state,
        "claimed_at": after.claimed_at,
        "code": change.code,
        "accelerators": change.accelerators,
    }


def _moved_attempt(change: Change) -> dict[str, Any]:
    known = attempt_after(change.before, change.event)
    values = {f"v_{name}": known[name] for name in _ATTEMPT_VALUES}
    return values | _attempt_key(change)


def _close(connection: sa.Connection, sweep: str, closing: Closing) -> None:
    values: dict[str, Any] = {
        "closed": True,
        "value": closing.value,
        "value_step": closing.value_step,
        "raw_value": closing.raw_value,
    }
    if closing.reason is not None:
        values["reason"] = closing.reason
    if closing.message is not None:
        values["message"] = closing.message
    table = schema.trials
    connection.execute(
        sa.update(table).where(table.c.sweep == sweep, table.c.number == closing.number).values(**values)
    )
    if closing.scores:
        kept = schema.scores
        connection.execute(
            sa.delete(kept).where(kept.c.sweep == sweep, kept.c.number == closing.number)
        )
        connection.execute(
            sa.insert(kept),
            [
                {"sweep": sweep, "number": closing.number, "metric": metric, "step": step, "value": repr(value)}
                for metric, step, value in closing.scores
            ],
        )


__all__ = ["Ledger", "SweepState"]

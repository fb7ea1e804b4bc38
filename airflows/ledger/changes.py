"""How transitions and closings become rows of trials, attempts, events and scores.

A driver does little else, so these statements are compiled once, and executed by the database's driver:
SQLAlchemy's own work on each execution takes longer than SQLite's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from airflows.errors import StaleTrialError
from airflows.ledger import schema
from airflows.ledger.records import Change, Closing, StoredScore
from airflows.trial import EventKind, State, Trial, attempt_after


class Prepared:
    """A statement that is compiled once for each kind of database, and takes plain values only."""

    def __init__(self, statement: sa.Select[Any] | sa.UpdateBase) -> None:
        self._statement = statement
        self._compiled: dict[str, tuple[str, Sequence[str] | None]] = {}

    def run(self, connection: sa.Connection, rows: Iterable[Mapping[str, Any]]) -> int:
        """Execute it once for each row of values; return how many rows were changed."""
        text, order = self._compiled.get(connection.dialect.name) or self._compile(connection.dialect)
        cursor = connection.connection.cursor()
        cursor.executemany(text, [_arguments(row, order) for row in rows])
        return cursor.rowcount

    def first(self, connection: sa.Connection, values: Mapping[str, Any]) -> Sequence[Any] | None:
        """Execute it once; return the first row, None for none."""
        text, order = self._compiled.get(connection.dialect.name) or self._compile(connection.dialect)
        cursor = connection.connection.cursor()
        cursor.execute(text, _arguments(values, order))
        return cursor.fetchone()

    def _compile(self, dialect: sa.Dialect) -> tuple[str, Sequence[str] | None]:
        compiled = self._statement.compile(dialect=dialect)
        found = str(compiled), getattr(compiled, "positiontup", None)
        self._compiled[dialect.name] = found
        return found


def _arguments(values: Mapping[str, Any], order: Sequence[str] | None) -> Any:
    """Return values as the driver takes them: by name, or in an order."""
    return dict(values) if order is None else tuple(map(values.__getitem__, order))


def _placed(names: Iterable[str]) -> dict[str, sa.BindParameter[Any]]:
    return {name: sa.bindparam(f"v_{name}") for name in names}


def _insert(table: sa.Table, names: Iterable[str]) -> Prepared:
    return Prepared(sa.insert(table).values({name: sa.bindparam(name) for name in names}).inline())


_TRIALS, _ATTEMPTS, _SCORES = schema.trials, schema.attempts, schema.scores
_KEYS = ("sweep", "number", "point", "replicate")
_TRIAL_FIELDS = tuple(field.name for field in fields(Trial))
# A person's request to cancel comes from another process: only REOPENED may clear it.
_TRIAL_VALUES = tuple(name for name in _TRIAL_FIELDS if name not in {*_KEYS, "cancel_requested"})
_ATTEMPT_VALUES = (
    *("batch", "handle", "host", "state", "reason", "signature", "message", "exit_code"),
    *("claimed_at", "submitted_at", "started_at", "ended_at", "resumed_from"),
)
_NEW_ATTEMPT = ("sweep", "number", "attempt", "token", "backend", "code", "accelerators", *_ATTEMPT_VALUES)
_EVENT = ("sweep", "number", "attempt", "at", "kind", "from_state", "to_state", "reason", "detail")


def _is_trial(table: sa.Table) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.sweep == sa.bindparam("k_sweep"), table.c.number == sa.bindparam("k_number"))


_THE_ATTEMPT = sa.and_(_is_trial(_ATTEMPTS), _ATTEMPTS.c.attempt == sa.bindparam("k_attempt"))
_UPDATE_TRIALS = Prepared(
    sa.update(_TRIALS)
    .where(_is_trial(_TRIALS), _TRIALS.c.version == sa.bindparam("k_version"))
    .values(_placed(_TRIAL_VALUES))
)
_FORGET_CANCEL = Prepared(sa.update(_TRIALS).where(_is_trial(_TRIALS)).values(cancel_requested=sa.false()))
_INSERT_TRIALS = _insert(_TRIALS, _TRIAL_FIELDS)
_INSERT_ATTEMPTS = _insert(_ATTEMPTS, _NEW_ATTEMPT)
_UPDATE_ATTEMPTS = Prepared(sa.update(_ATTEMPTS).where(_THE_ATTEMPT).values(_placed(_ATTEMPT_VALUES)))
_DELETE_ATTEMPTS = Prepared(sa.delete(_ATTEMPTS).where(_THE_ATTEMPT))
_INSERT_EVENTS = _insert(schema.events, _EVENT)
_CLOSE_TRIALS = Prepared(
    sa.update(_TRIALS)
    .where(_is_trial(_TRIALS))
    .values(
        closed=sa.true(),
        **_placed(("value", "value_step", "raw_value")),
        reason=sa.func.coalesce(sa.bindparam("v_reason"), _TRIALS.c.reason),
        message=sa.func.coalesce(sa.bindparam("v_message"), _TRIALS.c.message),
    )
)
# Steps below 0 are what a closing writes; the others are values of a curve, read while the trial ran.
_DELETE_SCORES = Prepared(
    sa.delete(_SCORES).where(_is_trial(_SCORES), _SCORES.c.step < sa.literal_column("0"))
)
_DELETE_CURVES = Prepared(
    sa.delete(_SCORES).where(_is_trial(_SCORES), _SCORES.c.step >= sa.literal_column("0"))
)
_INSERT_SCORES = _insert(_SCORES, ("sweep", "number", "metric", "step", "value"))
_SCORE = sa.and_(
    *(_SCORES.c[name] == sa.bindparam(f"k_{name}") for name in ("sweep", "number", "metric", "step"))
)
_HAS_SCORE = Prepared(sa.select(_SCORES.c.step).where(_SCORE))


def insert_trials(connection: sa.Connection, trials: Sequence[Trial]) -> None:
    """Write new trials."""
    if trials:
        _INSERT_TRIALS.run(connection, [_values(trial, _TRIAL_FIELDS) for trial in trials])


def write_changes(connection: sa.Connection, changes: Sequence[Change]) -> None:
    """Write transitions: the trials, their attempts, and the events that tell of them.

    Raises:
        StaleTrialError: a row has another version than the change started from.
    """
    if not changes:
        return
    done = _UPDATE_TRIALS.run(connection, [_trial_values(change) for change in changes])
    if done != len(changes):
        names = ", ".join(change.before.id for change in changes[:3])
        message = f"the ledger moved on under {names}; nothing was written."
        raise StaleTrialError(message)
    kinds = {change.event.kind for change in changes}
    if EventKind.REOPENED in kinds:
        reopened = [_key(c) for c in changes if c.event.kind is EventKind.REOPENED]
        _FORGET_CANCEL.run(connection, reopened)
        # What an earlier attempt logged says nothing about one that may run other code.
        _DELETE_CURVES.run(connection, reopened)
    # What was never sent never ran: its number is used again, and the events tell the story.
    if EventKind.UNSENT in kinds:
        _DELETE_ATTEMPTS.run(connection, [_key(c) for c in changes if c.event.kind is EventKind.UNSENT])
    if EventKind.CLAIMED in kinds:
        _INSERT_ATTEMPTS.run(
            connection, [_new_attempt(c) for c in changes if c.event.kind is EventKind.CLAIMED]
        )
    moved = [c for c in changes if c.before.state.is_in_flight and c.event.kind is not EventKind.UNSENT]
    if moved:
        _UPDATE_ATTEMPTS.run(connection, [_moved_attempt(change) for change in moved])
    _INSERT_EVENTS.run(connection, [_event(change) for change in changes])


def write_stories(connection: sa.Connection, trials: Sequence[Trial], changes: Sequence[Change]) -> None:
    """Write new trials as they stand at the end of a story, with the attempts and events that tell it.

    Args:
        connection: a transaction.
        trials: as they stand.
        changes: of all of them, those of each trial in order. None of them is UNSENT.
    """
    insert_trials(connection, trials)
    claimed = [_new_attempt(change) for change in changes if change.event.kind is EventKind.CLAIMED]
    if claimed:
        _INSERT_ATTEMPTS.run(connection, claimed)
    moved = [_moved_attempt(change) for change in changes if change.before.state.is_in_flight]
    if moved:
        _UPDATE_ATTEMPTS.run(connection, moved)
    if changes:
        _INSERT_EVENTS.run(connection, [_event(change) for change in changes])


def write_closings(connection: sa.Connection, sweep: str, closings: Sequence[Closing]) -> None:
    """Write what MLflow said of final trials."""
    if not closings:
        return
    _CLOSE_TRIALS.run(connection, [_closing_values(sweep, closing) for closing in closings])
    scored = [closing for closing in closings if closing.scores]
    if scored:
        _DELETE_SCORES.run(connection, [{"k_sweep": sweep, "k_number": c.number} for c in scored])
        _INSERT_SCORES.run(connection, [row for closing in scored for row in _scores(sweep, closing)])


def write_scores(connection: sa.Connection, sweep: str, scores: Iterable[StoredScore]) -> None:
    """Write values of curves; one that is there already stays as it was first read."""
    for score in scores:
        row = {"sweep": sweep, **score._asdict(), "value": repr(score.value)}
        if _HAS_SCORE.first(connection, {f"k_{name}": row[name] for name in row if name != "value"}) is None:
            _INSERT_SCORES.run(connection, [row])


def _values(trial: Trial, names: Iterable[str], prefix: str = "") -> dict[str, Any]:
    values = {f"{prefix}{name}": getattr(trial, name) for name in names}
    values[f"{prefix}message"] = _storable(trial.message)
    return values


def _storable(text: str) -> str:
    """Return a text without what a database refuses: NUL, and bytes of a log that were no UTF-8."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def _key(change: Change) -> dict[str, Any]:
    before = change.before
    return {"k_sweep": before.sweep, "k_number": before.number, "k_attempt": before.attempt}


def _trial_values(change: Change) -> dict[str, Any]:
    return {
        **_values(change.after, _TRIAL_VALUES, "v_"),
        "k_sweep": change.after.sweep,
        "k_number": change.after.number,
        "k_version": change.before.version,
    }


def _event(change: Change) -> dict[str, Any]:
    before, after, event = change.before, change.after, change.event
    # A trial that fails while it waits for the next attempt: that is the end of the last one's story.
    waited = before.state is State.PENDING and event.kind is EventKind.FAILED
    return {
        "sweep": after.sweep,
        "number": after.number,
        "attempt": before.attempt - waited,
        "at": event.at,
        "kind": event.kind,
        "from_state": before.state,
        "to_state": after.state,
        "reason": event.reason,
        "detail": _storable(event.detail),
    }


def _new_attempt(change: Change) -> dict[str, Any]:
    after = change.after
    return {
        **dict.fromkeys(_ATTEMPT_VALUES),
        **dict.fromkeys(("host", "reason", "signature", "message", "resumed_from"), ""),
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
    values["v_message"] = _storable(known["message"])
    return values | _key(change)


def _closing_values(sweep: str, closing: Closing) -> dict[str, Any]:
    return {
        "k_sweep": sweep,
        "k_number": closing.number,
        "v_value": closing.value,
        "v_value_step": closing.value_step,
        "v_raw_value": closing.raw_value,
        "v_reason": closing.reason,
        "v_message": None if closing.message is None else _storable(closing.message),
    }


def _scores(sweep: str, closing: Closing) -> list[dict[str, Any]]:
    return [
        {"sweep": sweep, "number": closing.number, "metric": metric, "step": step, "value": repr(value)}
        for metric, step, value in closing.scores
    ]

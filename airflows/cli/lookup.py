"""From the words a person types to rows of the ledger."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflows.cli.failure import UsageError
from airflows.drivers import Owner
from airflows.errors import NotFoundError, SpecError
from airflows.ids import canonical_json
from airflows.ledger import Ledger, SweepRow, open_ledger
from airflows.trial import Trial

if TYPE_CHECKING:
    from airflows.engine.results import SweepResults


@dataclass(frozen=True, slots=True)
class Found:
    """What an id names: a sweep, one of its trials, or one attempt at that."""

    row: SweepRow
    number: int | None = None
    attempt: int | None = None

    @property
    def id(self) -> str:
        """The id in full."""
        text = self.row.id if self.number is None else f"{self.row.id}/{self.number}"
        return text if self.attempt is None else f"{text}.{self.attempt}"


def existing_ledger(home: Path) -> Ledger | None:
    """Return the ledger for reading; None when nothing was ever started here, and nothing is made."""
    if not os.environ.get("AIRFLOWS_LEDGER_URL") and not (home / "ledger.db").exists():
        return None
    return open_ledger(home, create=False)


def reading(home: Path) -> Ledger:
    """Return the ledger for reading.

    Raises:
        NotFoundError: nothing was ever started here.
    """
    ledger = existing_ledger(home)
    if ledger is None:
        message = f"nothing was started under {home} yet."
        raise NotFoundError(message, hint="AIRFLOWS_HOME says where sweeps are kept; see `airflows sweep`.")
    return ledger


def find(ledger: Ledger, text: str) -> Found:
    """Return what an id names: `SWEEP`, `SWEEP/12`, `SWEEP/12.0` or a backend's own id.

    Raises:
        NotFoundError: nothing has this id.
        SpecError: it is no id.
    """
    if ":" in text:
        return _by_handle(ledger, text)
    row, number, attempt = ledger.resolve(text)
    if number is None or attempt is None:
        return Found(row, number)
    if all(made.attempt != attempt for made in ledger.attempts(row.id, number)):
        message = f"trial {row.id}/{number} has no attempt {attempt}."
        raise NotFoundError(message, hint=f"`airflows get {row.id}/{number}` shows those it has.")
    return Found(row, number, attempt)


def _by_handle(ledger: Ledger, text: str) -> Found:
    backend, _, rest = text.partition(":")
    for handle in (text, rest):
        known = ledger.attempt_by_handle(backend, handle)
        if known is not None:
            sweep, number, attempt = known
            return Found(ledger.sweep(sweep), number, attempt)
    several = ledger.attempts_by_job(backend, rest)
    if several:
        # Job ids start again some day: the newest submission is meant.
        sweep, number, attempt = several[0]
        row = ledger.sweep(sweep)
        is_one = all(other[:2] == (sweep, number) for other in several if other[0] == sweep)
        if not is_one and "_" in rest:
            made = next(each for each in ledger.attempts(sweep, number) if each.attempt == attempt)
            # An element of an array is one trial, unless several are packed into it.
            is_one = "/" not in (made.handle or "").partition("@")[0]
        return Found(row, number, attempt) if is_one else Found(row)
    message = f"no trial was run as {text!r}."
    raise NotFoundError(message, hint="`airflows list --runs --all` shows the backends' ids.")


def the_trial(found: Found) -> Found:
    """Return the id with a trial: of a sweep with a single trial that one.

    Raises:
        UsageError: it names a sweep of several trials.
    """
    if found.number is not None:
        return found
    if found.row.single or found.row.total == 1:
        return Found(found.row, 0)
    message = f"{found.row.id} has {found.row.total or 'many'} trials."
    raise UsageError(message, hint=f"Name one, such as {found.row.id}/0, or say --all-trials.")


def the_sweep(ledger: Ledger, text: str) -> SweepRow:
    """Return a sweep by id or name; the id of a trial names its sweep."""
    return find(ledger, text).row


def driver_of(row: SweepRow, now: float | None = None) -> Owner | None:
    """Return who drives a sweep now, None when nobody does."""
    if not row.lease_owner or (row.lease_until or 0.0) < (time.time() if now is None else now):
        return None
    owner = Owner.from_text(row.lease_owner)
    return None if owner.is_dead() else owner


def conditions(texts: Sequence[str] | None, option: str = "--where") -> dict[str, Any]:
    """Return `KEY=VALUE` texts as a mapping; values are read as those of overrides.

    Raises:
        UsageError: a text has another form.
    """
    from airflows import train  # noqa: PLC0415 - most have no conditions

    try:
        given = dict(train.parse_override(text) for text in texts or ())
    except SpecError as exc:
        message = f"{option}: {exc.message}"
        raise UsageError(message, hint="Write it like parameters.lr=0.1.") from exc
    return {key: train.normalised(key, value) for key, value in given.items()}


def overrides_of(ledger: Ledger, row: SweepRow, trials: Sequence[Trial]) -> Mapping[int, Mapping[str, Any]]:
    """Return the overrides of trials by number, the replicates' values included."""
    from airflows.engine.site import reload  # noqa: PLC0415 - `list` needs none of it
    from airflows.engine.source import Replicates, open_overrides  # noqa: PLC0415

    return open_overrides(ledger, row.id, trials, Replicates(reload(row).spec))


def best_value(results: SweepResults) -> float | None:
    """Return the winner's value, finished or not."""
    winner = None if results.ranking is None else results.ranking.winner
    return None if winner is None else winner.group.value


def has_overrides(overrides: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether the overrides hold all these values; numbers are compared as numbers."""
    return all(key in overrides and _is_same(overrides[key], value) for key, value in where.items())


def _is_same(one: Any, other: Any) -> bool:
    if _is_number(one) and _is_number(other):
        return bool(one == other)
    return canonical_json(one) == canonical_json(other)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

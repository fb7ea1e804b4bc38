"""What the ledger hands out: frozen snapshots of rows, and what it takes: changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from airflows.trial import Event, Trial


class Wish(StrEnum):
    """What people want of a sweep. PAUSED: nobody drives, trials go on. HALT: nothing new starts."""

    RUN = "run"
    PAUSED = "paused"
    HALT = "halt"
    STOP = "stop"


class SweepState(StrEnum):
    """How a sweep stands, as in the JSON documents."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One sweep. Times are seconds since the epoch, UTC; `total` counts trials, None when unknown.

    `nonce` is drawn when the row is made. Two ledgers give the same sweep the same id; in an MLflow store
    that both use it tells whose runs are whose. `host` is the only machine that may drive it, since the
    trials are processes there; empty where any machine may. `plan` is the hash of the plan it was started by;
    `edits` says which files it had before, and which points the present one no longer has (`airflows.edits`).
    """

    id: str
    name: str
    definition: str
    instance: str
    source: str
    directory: str
    backend: str
    root: str
    code: str
    single: bool
    wish: Wish
    requests: int
    state: SweepState
    message: str
    halted: str
    expanded: int
    exhausted: bool
    total: int | None
    created_at: float
    resumed_at: float | None
    ended_at: float | None
    tracking_uri: str
    experiment_id: str
    parent_run_id: str
    winner: dict[str, Any] | None
    lease_owner: str
    lease_token: str
    lease_since: float | None
    lease_until: float | None
    doubt_until: float
    nonce: str = ""
    host: str = ""
    plan: str = ""
    edits: str = ""


@dataclass(frozen=True, slots=True)
class PointRow:
    """One point: overrides by key, in the order of the file.

    Attributes:
        digest: of the overrides, unique in the sweep; of a repeat, of its number and the other's.
        memo: what an adaptive method keeps with it, as JSON.
        same_as: the earlier point with these overrides, whose value it shares; it has no trials of its own.
    """

    number: int
    overrides: dict[str, Any]
    digest: str
    memo: str | None = None
    same_as: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt at a trial."""

    number: int
    attempt: int
    token: str
    backend: str
    batch: str
    handle: str | None
    host: str
    state: str
    reason: str
    signature: str
    message: str
    exit_code: int | None
    claimed_at: float | None
    submitted_at: float | None
    started_at: float | None
    ended_at: float | None
    resumed_from: str
    code: str
    accelerators: float


@dataclass(frozen=True, slots=True)
class EventRow:
    """One transition, as it was written with the row it explains."""

    number: int
    attempt: int
    at: float
    kind: str
    from_state: str
    to_state: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Change:
    """A trial before and after an event.

    `token`, `code` and `accelerators` (over all nodes; of a packed trial its share) go to the attempt's row
    when it is made.
    """

    before: Trial
    after: Trial
    event: Event
    token: str
    code: str = ""
    accelerators: float = 1


@dataclass(frozen=True, slots=True)
class Closing:
    """What is written of a final trial once MLflow has answered. `scores` are metric, step and value."""

    number: int
    value: float | None = None
    value_step: int | None = None
    raw_value: str = ""
    reason: str | None = None
    message: str | None = None
    scores: Sequence[tuple[str, int, float]] = ()


class StoredScore(NamedTuple):
    """A value of a trial's curve, as a stopping rule needs it."""

    number: int
    metric: str
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to drive one sweep.

    Attributes:
        token: changes with each holder; every write checks it.
        doubt_until: until then an earlier holder that is not proven dead may still be handing something
            to a backend, seconds since the epoch; 0 when all of them are known to be done. It is kept in
            the ledger, so that the holders in between do not make anybody forget it.
    """

    sweep: str
    token: str
    owner: str
    doubt_until: float

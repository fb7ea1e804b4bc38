"""The one state machine: what a trial is, what may happen to it, and why it ended. Pure.

A trial is one point of the space times one replicate. It is run by attempts, one at a time.
Only `advance` makes a new state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NewType

Handle = NewType("Handle", str)


class State(StrEnum):
    """Nine states, four of them final."""

    PENDING = "pending"
    SUBMITTING = "submitting"
    QUEUED = "queued"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing but a person's `resume` leaves this state."""
        return self in FINAL

    @property
    def is_in_flight(self) -> bool:
        """Whether a backend may be holding a run of it."""
        return self in IN_FLIGHT


FINAL = frozenset({State.SUCCEEDED, State.FAILED, State.STOPPED, State.CANCELLED})
IN_FLIGHT = frozenset({State.SUBMITTING, State.QUEUED, State.RUNNING, State.STOPPING})


class Reason(StrEnum):
    """Why a trial or an attempt is where it is. Variety lives here, not in `State`."""

    NONE = ""
    NO_METRIC = "no_metric"
    ERROR = "error"
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    PREEMPTED = "preempted"
    NODE_FAILED = "node_failed"
    LOST = "lost"
    INVALID = "invalid"
    DUPLICATE = "duplicate"
    CODE_DAMAGED = "code_damaged"
    NO_RENDEZVOUS = "no_rendezvous"
    UNSENT = "unsent"
    USER = "user"
    LIMIT = "limit"
    RULE = "rule"
    MOVED = "moved"
    NO_ROOM = "no_room"
    PAUSED = "paused"
    RESUMED = "resumed"

    @property
    def is_infrastructure(self) -> bool:
        """Whether the place failed rather than the program: retried without using up `retry.max`."""
        return self in _INFRASTRUCTURE

    @property
    def sentence(self) -> str:
        """One line for people."""
        return _SENTENCES[self]


FAILURE_CLASSES = frozenset(
    {
        Reason.ERROR,
        Reason.OUT_OF_MEMORY,
        Reason.TIMED_OUT,
        Reason.PREEMPTED,
        Reason.NODE_FAILED,
        Reason.LOST,
        Reason.INVALID,
        Reason.DUPLICATE,
        Reason.CODE_DAMAGED,
        Reason.NO_RENDEZVOUS,
    }
)
"""The reasons that are a class of failure."""
_INFRASTRUCTURE = frozenset({Reason.PREEMPTED, Reason.NODE_FAILED, Reason.LOST, Reason.NO_RENDEZVOUS})
_SENTENCES: Mapping[Reason, str] = {
    Reason.NONE: "",
    Reason.NO_METRIC: "It exited with 0, but never logged the objective's metric.",
    Reason.ERROR: "The command exited with an error.",
    Reason.OUT_OF_MEMORY: "It ran out of memory.",
    Reason.TIMED_OUT: "It reached the time limit of one attempt.",
    Reason.PREEMPTED: "The scheduler took its place for another job.",
    Reason.NODE_FAILED: "The machine it ran on failed.",
    Reason.LOST: "The backend no longer knows the run and it left no exit status.",
    Reason.INVALID: "The backend refused the run.",
    Reason.DUPLICATE: "A second copy of the attempt was started and left at once.",
    Reason.CODE_DAMAGED: "The code snapshot was missing or incomplete on the machine.",
    Reason.NO_RENDEZVOUS: "The nodes of the run did not find each other in time.",
    Reason.UNSENT: "The submission did not get through; it is tried again.",
    Reason.USER: "It was cancelled by a person.",
    Reason.LIMIT: "A limit of the sweep was reached.",
    Reason.RULE: "An early-stopping rule ended it.",
    Reason.NO_ROOM: "The place had no room for it; it is offered to the next.",
    Reason.MOVED: "It waited too long in one place and was moved to another.",
    Reason.PAUSED: "It waits at a rung; the best go on from their checkpoints.",
    Reason.RESUMED: "It was taken up again by `resume`.",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """A snapshot of one row of the ledger; only the ledger makes them durable.

    `attempt` is the number of the attempt that is next (PENDING) or current (all other states).
    Times are seconds since the epoch, UTC.
    """

    sweep: str
    number: int
    point: int
    replicate: int
    state: State = State.PENDING
    reason: Reason = Reason.NONE
    message: str = ""
    attempt: int = 0
    version: int = 0
    not_before: float = 0.0
    backend: str = ""
    handle: Handle | None = None
    batch: str = ""
    claimed_at: float | None = None
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    host: str = ""
    resumed_from: str = ""
    errors: int = 0
    stalled: int = 0
    signature: str = ""
    checkpoint: str = ""
    checkpoint_step: int = -1
    run_id: str = ""
    cancel_requested: bool = False
    closed: bool = False
    value: float | None = None
    value_step: int | None = None
    raw_value: str = ""

    @property
    def id(self) -> str:
        """`SWEEP/number`."""
        return f"{self.sweep}/{self.number}"


class EventKind(StrEnum):
    """What may happen to a trial."""

    CLAIMED = "claimed"
    RECLAIMED = "reclaimed"
    ACCEPTED = "accepted"
    UNSENT = "unsent"
    REJECTED = "rejected"
    STARTED = "started"
    SUCCEEDED = "succeeded"
    RETRIED = "retried"
    FAILED = "failed"
    STOP_ASKED = "stop_asked"
    GONE = "gone"
    REOPENED = "reopened"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened at a time.

    Attributes:
        at: seconds since the epoch, UTC.
        reason: why, when the event has a reason.
        detail: words for people.
        facts: what became known of the attempt: `handle`, `host`, `started_at`, `ended_at`, `exit_code`…
        changes: further fields of the trial that it sets, such as `errors` or `not_before`.
    """

    kind: EventKind
    at: float
    reason: Reason = Reason.NONE
    detail: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)


class IllegalTransitionError(ValueError):
    """The table has no such transition: a defect in airflows, never a user's mistake."""


_NO_ATTEMPT: Mapping[str, Any] = {
    "handle": None,
    "batch": "",
    "claimed_at": None,
    "submitted_at": None,
    "started_at": None,
    "ended_at": None,
    "exit_code": None,
    "host": "",
    "resumed_from": "",
}


def _claim(_trial: Trial, event: Event) -> Mapping[str, Any]:
    return {**_NO_ATTEMPT, "state": State.SUBMITTING, "claimed_at": event.at, "message": ""}


def _reclaim(_trial: Trial, event: Event) -> Mapping[str, Any]:
    return {"claimed_at": event.at}


def _accept(_trial: Trial, event: Event) -> Mapping[str, Any]:
    return {"state": State.QUEUED, "submitted_at": event.at, "message": ""}


def _unsend(_trial: Trial, _event: Event) -> Mapping[str, Any]:
    return {"state": State.PENDING}


def _start(_trial: Trial, event: Event) -> Mapping[str, Any]:
    return {"state": State.RUNNING, "started_at": event.at}


def _succeed(_trial: Trial, event: Event) -> Mapping[str, Any]:
    return {"state": State.SUCCEEDED, "ended_at": event.at, "exit_code": 0, "message": ""}


def _fail(_trial: Trial, event: Event) -> Mapping[str, Any]:
    return {"state": State.FAILED, "ended_at": event.at}


def _retry(trial: Trial, event: Event) -> Mapping[str, Any]:
    return {"state": State.PENDING, "ended_at": event.at, "attempt": trial.attempt + 1}


def _ask_stop(trial: Trial, event: Event) -> Mapping[str, Any]:
    if trial.state is State.PENDING:
        return {"state": _stopped_as(event.reason), "ended_at": event.at}
    return {"state": State.STOPPING}


def _go(trial: Trial, event: Event) -> Mapping[str, Any]:
    gone = {"reason": trial.reason, "ended_at": event.at}
    if trial.reason in {Reason.MOVED, Reason.PAUSED}:
        return {**gone, "state": State.PENDING, "attempt": trial.attempt + 1}
    return {**gone, "state": _stopped_as(trial.reason)}


def _stopped_as(reason: Reason) -> State:
    return State.STOPPED if reason in {Reason.LIMIT, Reason.RULE} else State.CANCELLED


def _reopen(trial: Trial, _event: Event) -> Mapping[str, Any]:
    return {
        **_NO_ATTEMPT,
        "state": State.PENDING,
        "attempt": trial.attempt + (trial.claimed_at is not None),
        "errors": 0,
        "stalled": 0,
        "signature": "",
        "cancel_requested": False,
        "closed": False,
        "value": None,
        "value_step": None,
        "raw_value": "",
        "not_before": 0.0,
        "message": "",
    }


_TABLE: Mapping[tuple[State, EventKind], Callable[[Trial, Event], Mapping[str, Any]]] = {
    (State.PENDING, EventKind.CLAIMED): _claim,
    (State.PENDING, EventKind.STOP_ASKED): _ask_stop,
    (State.PENDING, EventKind.FAILED): _fail,
    (State.SUBMITTING, EventKind.RECLAIMED): _reclaim,
    (State.SUBMITTING, EventKind.ACCEPTED): _accept,
    (State.SUBMITTING, EventKind.UNSENT): _unsend,
    (State.SUBMITTING, EventKind.REJECTED): _fail,
    (State.QUEUED, EventKind.STARTED): _start,
    (State.QUEUED, EventKind.SUCCEEDED): _succeed,
    (State.QUEUED, EventKind.RETRIED): _retry,
    (State.QUEUED, EventKind.FAILED): _fail,
    (State.QUEUED, EventKind.STOP_ASKED): _ask_stop,
    (State.RUNNING, EventKind.SUCCEEDED): _succeed,
    (State.RUNNING, EventKind.RETRIED): _retry,
    (State.RUNNING, EventKind.FAILED): _fail,
    (State.RUNNING, EventKind.STOP_ASKED): _ask_stop,
    # It was only to be taken out of a queue, and was quicker.
    (State.STOPPING, EventKind.STARTED): _start,
    (State.STOPPING, EventKind.SUCCEEDED): _succeed,
    (State.STOPPING, EventKind.GONE): _go,
    (State.FAILED, EventKind.REOPENED): _reopen,
    (State.STOPPED, EventKind.REOPENED): _reopen,
    (State.CANCELLED, EventKind.REOPENED): _reopen,
}


def advance(trial: Trial, event: Event) -> Trial:
    """Return the trial after the event, one version on.

    Raises:
        IllegalTransitionError: the state and the event do not go together.
    """
    made = _made(trial, event)
    if made["state"] is State.PENDING:
        made |= _NO_ATTEMPT
    return replace(trial, **{**made, **event.changes}, version=trial.version + 1)


def attempt_after(trial: Trial, event: Event) -> dict[str, Any]:
    """Return what the event makes of the attempt that the trial was at, as fields of `Trial`.

    A trial that goes back to PENDING forgets its attempt; the attempt's own row must not. The state of
    an attempt that is followed by another is FAILED, or STOPPED when it was moved.
    """
    made = _made(trial, event)
    fields = {name: getattr(trial, name) for name in (*_NO_ATTEMPT, "message")} | made
    # The trial's own signature is that of an earlier attempt.
    fields["signature"] = event.changes.get("signature", "")
    if made["state"] is State.PENDING:
        fields["state"] = State.STOPPED if event.kind is EventKind.GONE else State.FAILED
    return fields


def _made(trial: Trial, event: Event) -> dict[str, Any]:
    make = _TABLE.get((trial.state, event.kind))
    if make is None:
        message = f"{trial.id}: {event.kind} cannot happen to a trial that is {trial.state}"
        raise IllegalTransitionError(message)
    made: dict[str, Any] = {"state": trial.state, "reason": event.reason, **make(trial, event), **event.facts}
    if event.detail:
        made["message"] = event.detail
    return made

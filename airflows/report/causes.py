"""Why trials failed: attempts grouped by their last error, with the values that all of them share. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflows.report.separation import Condition, separating
from airflows.trial import Reason, State, Trial

if TYPE_CHECKING:
    from airflows.ledger import AttemptRow

Ended = Sequence[tuple[Trial, Mapping[str, Any]]]
Telling = Sequence[tuple[int, Mapping[str, Any]]]

_NO_FIX = frozenset({Reason.PREEMPTED, Reason.NODE_FAILED, Reason.LOST, Reason.NO_RENDEZVOUS})
_TELLING = frozenset({State.SUCCEEDED, State.FAILED})
# However many trials there are, a condition is looked for among so many and then tried on all.
_SAMPLE = 200
_ROUNDS = 5
_MORE = 20
_MOST_SEPARATED = 10
_MOST_KEYS = 24


@dataclass(slots=True)
class Cause:
    """Something that attempts failed of.

    Attributes:
        sweep: whose attempts.
        reason: the class of failure.
        signature: the error with numbers, addresses and paths levelled.
        example: the first attempt that failed of it.
        attempts: how many did.
        numbers: the trials that they were attempts at.
        failed: how many of those failed for good with it.
        condition: which values, or which host, these trials have and no other that ended; empty where
            nothing tells.
        hosts: where each trial failed of it.
    """

    sweep: str
    reason: str
    signature: str
    example: AttemptRow
    attempts: int = 0
    numbers: set[int] = field(default_factory=set)
    failed: int = 0
    condition: str = ""
    hosts: dict[int, str] = field(default_factory=dict)

    @property
    def trial(self) -> str:
        """The trial of the example."""
        return f"{self.sweep}/{self.example.number}"

    @property
    def said(self) -> str:
        """What the example said, without the sentence of its class, which says nothing new."""
        known = Reason(self.reason).sentence if self.reason in set(Reason) else ""
        return self.example.message.removeprefix(known).strip()

    @property
    def next(self) -> str:
        """The command to type next."""
        if self.reason in _NO_FIX:
            return f"airflows resume {self.sweep} --failed --class {self.reason}"
        if self.example.handle is None:
            return f"airflows get {self.trial}"
        return f"airflows logs {self.trial} --attempt {self.example.attempt}"


def causes(sweep: str, attempts: Iterable[AttemptRow], trials: Ended = ()) -> list[Cause]:
    """Return why attempts failed, what most trials failed of first.

    What the place did to a run counts only where the trial failed for good with it.

    Args:
        sweep: its id.
        attempts: all of its attempts, by trial and attempt.
        trials: all of its trials with their overrides; without them nothing is told apart.
    """
    lost = {trial.number: trial for trial, _ in trials if trial.state is State.FAILED}
    last: dict[int, AttemptRow] = {}
    found: dict[tuple[str, str], Cause] = {}
    for attempt in attempts:
        last[attempt.number] = attempt
        if attempt.signature:
            _add(found, sweep, attempt)
    for number in sorted(lost.keys() & last.keys()):
        attempt = last[number]
        if not attempt.signature and attempt.reason:
            _add(found, sweep, attempt)
        cause = found.get((attempt.reason, attempt.signature))
        if cause is not None:
            cause.failed += 1
    ordered = sorted(found.values(), key=lambda cause: (-len(cause.numbers), -cause.attempts))
    telling = [(trial.number, overrides) for trial, overrides in trials if trial.state in _TELLING]
    ran_on = {number: attempt.host for number, attempt in last.items()}
    for cause in ordered[:_MOST_SEPARATED]:
        condition = _condition(cause.numbers, _with_hosts(telling, {**ran_on, **cause.hosts}))
        cause.condition = "" if condition is None else condition.text
    return ordered


def _with_hosts(telling: Telling, hosts: Mapping[int, str]) -> Telling:
    """Return the overrides with the host of each trial, which may be what is broken, if there are several."""
    if len({hosts.get(number) for number, _ in telling}) < 2:  # noqa: PLR2004 - nothing to tell apart
        return telling
    return [(number, {**overrides, "host": hosts.get(number) or "unknown"}) for number, overrides in telling]


def _add(found: dict[tuple[str, str], Cause], sweep: str, attempt: AttemptRow) -> None:
    key = (attempt.reason, attempt.signature)
    cause = found.get(key)
    if cause is None:
        cause = found[key] = Cause(sweep, attempt.reason, attempt.signature, attempt)
    cause.attempts += 1
    cause.numbers.add(attempt.number)
    cause.hosts[attempt.number] = attempt.host


def _condition(numbers: set[int], telling: Telling) -> Condition | None:
    """Return what holds for these trials and no others; found in a sample, which grows by what refutes it."""
    these = [overrides for number, overrides in telling if number in numbers]
    others = [overrides for number, overrides in telling if number not in numbers]
    if len({key for overrides in these for key in overrides}) > _MOST_KEYS:
        return None
    some, rest = _spread(these), _spread(others)
    for _ in range(_ROUNDS):
        condition = separating(some, rest)
        if condition is None:
            return None
        wrong = [overrides for overrides in these if not condition.holds(overrides)]
        mistaken = [overrides for overrides in others if condition.holds(overrides)]
        if not (wrong or mistaken):
            return condition
        some += _spread(wrong, _MORE)
        rest += _spread(mistaken, _MORE)
    return None


def _spread(trials: Sequence[Mapping[str, Any]], most: int = _SAMPLE) -> list[Mapping[str, Any]]:
    """Return at most so many of these, from all over."""
    step = max(1, -(-len(trials) // most))
    return list(trials[::step])

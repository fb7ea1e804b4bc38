"""What attempts cost, what of it was lost, and how far a sweep will come within its limits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from airflows.trial import State

if TYPE_CHECKING:
    from airflows.ledger import AttemptRow

_KEPT = frozenset({State.SUCCEEDED, State.STOPPED})


@dataclass(frozen=True, slots=True)
class Spent:
    """What one or several attempts took, in seconds.

    Attributes:
        queue_s: from being accepted by the backend until they ran.
        run_s: of running.
        useful_s: accelerator-seconds whose result was kept.
        lost_s: accelerator-seconds that failures and repeats took.
    """

    queue_s: float = 0.0
    run_s: float = 0.0
    useful_s: float = 0.0
    lost_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON documents show it."""
        hours = {"useful": self.useful_s / 3600, "lost": self.lost_s / 3600}
        return {"queue_s": self.queue_s, "run_s": self.run_s, "accelerator_hours": hours}

    def __add__(self, other: Spent) -> Spent:
        """Return the sum."""
        return Spent(
            self.queue_s + other.queue_s,
            self.run_s + other.run_s,
            self.useful_s + other.useful_s,
            self.lost_s + other.lost_s,
        )


def spent_by_trial(attempts: Sequence[AttemptRow], now: float) -> dict[int, list[Spent]]:
    """Return what each attempt took so far, by trial.

    Useful is an attempt that succeeded or was stopped early, one that still runs, and one whose checkpoint
    the next attempt went on from, as long as the trial itself did not fail in the end.

    Args:
        attempts: by trial and attempt.
        now: seconds since the epoch, UTC.
    """
    return {
        number: _spent(list(own), now) for number, own in groupby(attempts, lambda attempt: attempt.number)
    }


def total(spent: Iterable[Spent]) -> Spent:
    """Return the sum of all."""
    return sum(spent, Spent())


def _spent(attempts: Sequence[AttemptRow], now: float) -> list[Spent]:
    """Return what the attempts at one trial took; the last one says whether what led to it was lost."""
    last = attempts[-1]
    comes_to_something = last.ended_at is None or last.state in _KEPT
    made = [_of(last, now, is_kept=comes_to_something)]
    resumed = ""
    for at in range(len(attempts) - 2, -1, -1):
        attempt, after = attempts[at], attempts[at + 1]
        if _says_where_it_began(after):
            # One that began at the beginning makes all before it worth nothing.
            resumed = after.resumed_from
            comes_to_something = comes_to_something and bool(resumed)
        is_known = at == 0 or _says_where_it_began(attempt)
        is_kept = comes_to_something and is_known and resumed not in {"", attempt.resumed_from}
        made.append(_of(attempt, now, is_kept=is_kept))
    return made[::-1]


def _says_where_it_began(attempt: AttemptRow) -> bool:
    """Whether it is known; of one that was lost it may not be."""
    return bool(attempt.resumed_from) or attempt.exit_code is not None or attempt.state in _KEPT


def _of(attempt: AttemptRow, now: float, *, is_kept: bool) -> Spent:
    began, submitted = attempt.started_at, attempt.submitted_at
    ended = now if attempt.ended_at is None else attempt.ended_at
    waited_until = ended if began is None else began
    queue_s = 0.0 if submitted is None else max(0.0, waited_until - submitted)
    run_s = 0.0 if began is None else max(0.0, ended - began)
    accelerator_s = run_s * attempt.accelerators
    return Spent(queue_s, run_s, accelerator_s * is_kept, accelerator_s * (not is_kept))


@dataclass(frozen=True, slots=True)
class Forecast:
    """How many trials will have ended when a limit is reached.

    Attributes:
        trials: so many at this pace, at most all.
        total: trials in all.
        limit: the limit that is reached first, empty when all trials come before it.
        left_s: seconds until then at this pace.
    """

    trials: int
    total: int
    limit: str
    left_s: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON documents show it."""
        return {
            "trials": self.trials,
            "total": self.total,
            "limit": self.limit or None,
            "left_s": self.left_s,
        }


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a sweep has come.

    Attributes:
        ended: trials that have ended.
        total: trials in all.
        elapsed_s: seconds since it was started or resumed.
        ended_since: how many trials have ended in the last `driven_s`.
        accelerator_s: accelerator-seconds so far.
        driven_s: seconds since its driver took it up, None for `elapsed_s`.
    """

    ended: int
    total: int
    elapsed_s: float
    ended_since: int
    accelerator_s: float
    driven_s: float | None = None


def forecast(standing: Standing, limits: Mapping[str, float | None]) -> Forecast | None:
    """Return how far a sweep comes at this pace; None while nothing is known.

    Args:
        standing: how far it is.
        limits: `limits.wall_time` and `limits.accelerator_hours` in seconds, None for no limit.
    """
    left = standing.total - standing.ended
    driven_s = standing.elapsed_s if standing.driven_s is None else standing.driven_s
    if left <= 0 or min(standing.ended, standing.ended_since) <= 0 or driven_s <= 0:
        return None
    each_s = driven_s / standing.ended_since
    each_accelerator_s = standing.accelerator_s / standing.ended
    room = {"": left}
    wall, spend = limits.get("limits.wall_time"), limits.get("limits.accelerator_hours")
    if wall is not None:
        room["limits.wall_time"] = int(max(0.0, wall - standing.elapsed_s) / each_s)
    if spend is not None and each_accelerator_s > 0:
        room["limits.accelerator_hours"] = int(max(0.0, spend - standing.accelerator_s) / each_accelerator_s)
    limit = min(room, key=lambda name: (room[name], bool(name)))
    return Forecast(standing.ended + room[limit], standing.total, limit, room[limit] * each_s)

"""What each of several places was for a sweep: which trials ran there, and what that took. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflows.report.accounting import Spent, spent_by_trial
from airflows.trial import Reason

if TYPE_CHECKING:
    from airflows.ledger import AttemptRow


@dataclass(slots=True)
class PlaceSpent:
    """What one place was for a sweep.

    Attributes:
        place: its name.
        numbers: of the trials whose last attempt is there, the one that counts.
        attempts: how many there were.
        moved: how many of them never started and went on to another place.
        spent: by all of them.
    """

    place: str
    numbers: list[int] = field(default_factory=list)
    attempts: int = 0
    moved: int = 0
    spent: Spent = field(default_factory=Spent)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON documents show it."""
        return {
            "place": self.place,
            "trials": list(self.numbers),
            "attempts": self.attempts,
            "moved": self.moved,
            **self.spent.to_dict(),
        }


def spent_by_place(attempts: Sequence[AttemptRow], now: float) -> list[PlaceSpent]:
    """Return the places in the order in which they were first used.

    Args:
        attempts: by trial and attempt.
        now: seconds since the epoch, UTC.
    """
    places: dict[str, PlaceSpent] = {}
    costs = [cost for own in spent_by_trial(attempts, now).values() for cost in own]
    last = {attempt.number: attempt for attempt in attempts}
    for attempt, cost in zip(attempts, costs, strict=True):
        place = places.setdefault(attempt.backend, PlaceSpent(attempt.backend))
        place.attempts += 1
        # What a halt took back goes nowhere.
        place.moved += attempt.reason == Reason.MOVED and last[attempt.number] is not attempt
        place.spent += cost
        if last[attempt.number] is attempt:
            place.numbers.append(attempt.number)
    return list(places.values())


def place_of(places: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Return trial number -> its place, from what JSON documents show."""
    return {number: one["place"] for one in places for number in one["trials"]}

"""What packing saves: how many allocations trials took that would have had one each. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflows.ledger import AttemptRow

# A handle of one of several in an array element, up to its place there.
_IN_ELEMENT = re.compile(r"(\d+_\d+)/\d+@(.+)")


@dataclass(frozen=True, slots=True)
class Gain:
    """What packing saves.

    Attributes:
        pack: so many trials share what one would have.
        used: array elements, or slots of a machine.
        alone: how many there would be without packing.
        kind: which of the two, as a word.
        accelerator_s: accelerator-seconds, of each trial its share; None before anything has run.
    """

    pack: int
    used: int
    alone: int
    kind: str
    accelerator_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON documents show it."""
        hours = None if self.accelerator_s is None else self.accelerator_s / 3600
        return {
            "pack": self.pack,
            "kind": self.kind,
            "used": self.used,
            "alone": self.alone,
            "accelerator_hours": hours,
            "accelerator_hours_alone": None if hours is None else hours * self.pack,
        }


def planned_gain(pack: int, trials: int | None, at_once: int, *, allocates: bool) -> Gain | None:
    """Return what packing will save; None where nothing is packed, or nobody knows how many trials there are.

    Args:
        pack: as the sweep file has it.
        trials: in all.
        at_once: trials in flight at the most.
        allocates: a pack is an allocation of the backend, rather than a slot that is used again.
    """
    if pack == 1 or trials is None:
        return None
    if allocates:
        return Gain(pack, -(-trials // min(pack, at_once)), trials, "array elements")
    running = min(trials, at_once)
    return Gain(pack, -(-running // pack), running, "slots")


def gain_of(attempts: Sequence[AttemptRow], pack: int) -> Gain | None:
    """Return what packing has saved; None where nothing is packed, or nothing has run.

    Args:
        attempts: of the sweep.
        pack: as the sweep file has it.
    """
    ran = [attempt for attempt in attempts if attempt.handle and attempt.started_at is not None]
    if pack == 1 or not ran:
        return None
    spent = sum(
        max(0.0, attempt.ended_at - attempt.started_at) * attempt.accelerators
        for attempt in ran
        if attempt.started_at is not None and attempt.ended_at is not None
    )
    found = [_IN_ELEMENT.fullmatch(attempt.handle or "") for attempt in ran]
    elements = [match.groups() for match in found if match is not None]
    if elements:
        return Gain(pack, len(set(elements)), len(elements), "array elements", spent)
    most = most_at_once(ran)
    return Gain(pack, -(-most // pack), most, "slots", spent)


def most_at_once(ran: Iterable[AttemptRow]) -> int:
    """Return how many ran at the same time at the most."""
    changes = [(attempt.started_at or 0.0, 1) for attempt in ran]
    changes += [(attempt.ended_at, -1) for attempt in ran if attempt.ended_at is not None]
    # One that ended as it started leaves no trace in the sums.
    return max(1, *accumulate(change for _, change in sorted(changes)))


def gain_text(document: dict[str, Any]) -> str:
    """Return a gain in a sentence.

    Example:
        >>> gain_text(Gain(4, 4, 16, "array elements", 3600).to_dict())
        '4 array elements in place of 16, 1 accelerator-hours in place of 4'
    """
    kind = document["kind"] if document["used"] > 1 else document["kind"].removesuffix("s")
    text = f"{document['used']} {kind} in place of {document['alone']}"
    if document["accelerator_hours"] is None:
        return text
    hours, alone = document["accelerator_hours"], document["accelerator_hours_alone"]
    return f"{text}, {hours:.3g} accelerator-hours in place of {alone:.3g}"

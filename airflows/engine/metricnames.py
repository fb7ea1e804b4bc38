"""Whether trials log the metrics that decide under the names that the sweep file has. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import SequenceMatcher

_SHOWN = 4


class Unseen:
    """Watches the names that trials log until all that are expected were seen.

    Attributes:
        words: what is missing and what is there in its place, empty while there is nothing to say.
    """

    def __init__(self, expected: Iterable[str]) -> None:
        self._missing = list(dict.fromkeys(expected))
        self.words = ""

    @property
    def is_settled(self) -> bool:
        """Whether nothing is expected any more."""
        return not self._missing

    def look(self, logged: Collection[str], *, has_ended: bool) -> None:
        """Take what a trial has logged so far.

        While it runs a metric may still come, unless one is there already that differs from it in
        nothing but case, spaces and punctuation.
        """
        self._missing = [name for name in self._missing if name not in logged]
        same = {_bare(name) for name in logged}
        sure = [name for name in self._missing if has_ended or _bare(name) in same]
        if not self._missing:
            self.words = ""
        elif sure:
            self.words = f"{' and '.join(sure)} not seen; logged: {_nearest(sure[0], logged)}"


def _nearest(wanted: str, logged: Collection[str]) -> str:
    """Return the names most like the wanted one, quoted so that spaces can be seen."""
    if not logged:
        return "nothing"
    ranked: Sequence[str] = sorted(logged, key=lambda name: (*_unlikeness(wanted, name), name))
    more = f" and {len(ranked) - _SHOWN} more" if len(ranked) > _SHOWN else ""
    return ", ".join(repr(name) for name in ranked[:_SHOWN]) + more


def _unlikeness(one: str, other: str) -> tuple[float, float]:
    """Return less for names that are more alike: without punctuation first, then as they are."""
    bare = SequenceMatcher(None, _bare(one), _bare(other)).ratio()
    return -bare, -SequenceMatcher(None, one, other).ratio()


def _bare(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())

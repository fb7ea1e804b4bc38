"""Changes of a text at places of the text as it was. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """Put a text in the place of another.

    Attributes:
        start: where the old text begins.
        end: where it ends; the same place for an insertion.
        text: what stands there afterwards.
    """

    start: int
    end: int
    text: str = ""


def removal(text: str, start: int, end: int) -> Edit:
    """Return what removes a part of a text, with its lines where nothing else stands on them."""
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", end)
    last = len(text) if last < 0 else last + 1
    if text[first:start].strip() or text[end:last].strip():
        return Edit(start, end)
    return Edit(first, last)


def applied(text: str, edits: Iterable[Edit]) -> str:
    """Return the text with all edits made; one inside another, or a second of the same, has no effect."""
    made, at = "", 0
    for edit in _outermost(edits):
        made += text[at : edit.start] + edit.text
        at = edit.end
    return made + text[at:]


def _outermost(edits: Iterable[Edit]) -> list[Edit]:
    kept: list[Edit] = []
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end > edit.start, -edit.end)):
        is_inside = kept and edit.start < kept[-1].end
        is_same = kept and edit.start == kept[-1].start and edit.end == kept[-1].end > edit.start
        if not is_inside and not is_same:
            kept.append(edit)
    return kept

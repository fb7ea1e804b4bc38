"""Text in columns, and values as people read them. Pure."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

from airflows.cli.terminal import Style
from airflows.ids import canonical_json

NOTHING = "-"
_GAP = "  "
_LEAST = 6
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | {9: " ", 10: "⏎", 13: ""}


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], style: Style, *, right: frozenset[str] = frozenset()
) -> list[str]:
    """Return lines in columns under a header.

    Where the terminal is narrow, the widest columns give way, and then the last ones are left out.

    Args:
        header: names of the columns.
        rows: cells, as many as there are columns.
        style: colour and width.
        right: columns whose cells stand to the right, as numbers do.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    columns = zip(header, *cells, strict=True)
    widths = [max(map(text_width, column)) for column in columns]
    widths = _fitting(_as_many_as_fit(widths, style.width), style.width)
    to_right = [name in right for name in header]
    lines = [style.paint(_line(header, widths, to_right), "bold")]
    return lines + [_line(row, widths, to_right) for row in cells]


def _as_many_as_fit(widths: Sequence[int], room: int) -> list[int]:
    """Return the widths without the last columns that would not fit however narrow all were."""
    kept = list(widths)
    while len(kept) > 1 and sum(min(width, _LEAST) for width in kept) + len(_GAP) * (len(kept) - 1) > room:
        kept.pop()
    return kept


def _fitting(widths: Sequence[int], room: int) -> list[int]:
    """Return the widths, the widest cut down until they fit."""
    fitted = list(widths)
    over = sum(fitted) + len(_GAP) * (len(fitted) - 1) - room
    while over > 0 and max(fitted) > _LEAST:
        widest = max(fitted)
        at = fitted.index(widest)
        second = max([width for width in fitted if width < widest], default=_LEAST)
        cut = min(over, max(1, widest - max(second, _LEAST)))
        fitted[at] -= cut
        over -= cut
    return fitted


def _line(cells: Sequence[str], widths: Sequence[int], to_right: Sequence[bool]) -> str:
    padded = [
        _padded(cell, width, right=right) for cell, width, right in zip(cells, widths, to_right, strict=False)
    ]
    return _GAP.join(padded).rstrip()


def _padded(text: str, width: int, *, right: bool) -> str:
    """Return a cell as wide as its column."""
    fitted = shortened(text, width)
    # Most are plain, and there may be very many.
    room = width if fitted.isascii() else width - text_width(fitted) + len(fitted)
    return fitted.rjust(room) if right else fitted.ljust(room)


def shortened(text: str, width: int) -> str:
    """Return the text cut to a width, with `…` where something is missing."""
    if text_width(text) <= width:
        return text
    kept, used = "", 1
    for character in text:
        used += text_width(character)
        if used > width:
            break
        kept += character
    return f"{kept}…"


def text_width(text: str) -> int:
    """Return how many columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def one_line(text: str) -> str:
    """Return a text without what would move the cursor or change colours."""
    return text if text.isprintable() else text.translate(_CONTROLS)


# Values


def value_text(value: Any) -> str:
    """Return an override's value: text as it stands, numbers and trees as JSON."""
    return value if isinstance(value, str) and value else canonical_json(value)


def number_text(value: Any, digits: int = 6) -> str:
    """Return a number for people; the words of numbers that are none stand as they are."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    return f"{value:.{digits}g}" if math.isfinite(value) else str(value)


def short_keys(keys: Iterable[str]) -> dict[str, str]:
    """Return the keys as they head columns: without `parameters.` where nothing else has that name."""
    whole = list(dict.fromkeys(keys))
    short = {key: key.removeprefix("parameters.") for key in whole}
    taken = list(short.values())
    return {key: name if taken.count(name) == 1 else key for key, name in short.items()}


def overrides_text(overrides: Mapping[str, Any], names: Mapping[str, str] | None = None) -> str:
    """Return `lr=0.1 opt=adam`."""
    shown = short_keys(overrides) if names is None else names
    return " ".join(f"{shown.get(key, key)}={value_text(value)}" for key, value in overrides.items())


def when(iso: str | None, zone: tzinfo | None = None) -> str:
    """Return a time of a document in the local time zone, such as `2026-01-31 08:00:00`."""
    if iso is None:
        return NOTHING
    return datetime.fromisoformat(iso).astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")


def seconds_between(earlier: str | None, later: str | None) -> float | None:
    """Return the seconds from one time of a document to another; None as the later one is now."""
    if earlier is None:
        return None
    end = datetime.now(UTC) if later is None else datetime.fromisoformat(later)
    return max(0.0, (end - datetime.fromisoformat(earlier)).total_seconds())

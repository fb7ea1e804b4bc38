"""A parsed YAML document that remembers where everything stands. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning about a file: the run goes on.

    Attributes:
        message: what a person should know, a sentence or two.
        file: the file it is about, as the user named it.
        line: line in that file, counted from 1.
        field: dotted key in that file.
    """

    message: str
    file: str
    line: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        """Return the place and the message on one line."""
        place = f"{self.file}:{self.line}" if self.line is not None else self.file
        return ": ".join(part for part in (place, self.field, self.message) if part)


@dataclass(slots=True)
class Mark:
    """Where a value stands: its line, the source text of a scalar, and the same of what is inside."""

    line: int
    text: str | None = None
    inside: dict[str, Mark] | list[Mark] | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed YAML document.

    Attributes:
        value: plain tree of dict, list, str, int, float, bool and None; None also for an empty text.
        file: the file it came from, as the user named it.
        notices: what other YAML readers would take differently.
        empty: whether the text holds no document at all.
        mark: where everything stands; None for a value that was never a text.
    """

    value: Any
    file: str
    notices: tuple[Notice, ...] = ()
    empty: bool = False
    mark: Mark | None = field(default=None, repr=False, compare=False)

    def line(self, path: Sequence[str | int]) -> int | None:
        """Return the line of the key or item at the path, or of its nearest ancestor in the file."""
        line = None
        mark = self.mark
        for part in path:
            line = mark.line if mark else line
            mark = _below(mark, part)
        return mark.line if mark else line

    def text(self, path: Sequence[str | int]) -> str | None:
        """Return the source text of the scalar at the path, without quotes; None where no scalar stands."""
        mark = self.mark
        for part in path:
            mark = _below(mark, part)
        return mark.text if mark else None

    def source(self, path: Sequence[str | int], value: Any) -> Any:
        """Return the source text at the path if `value` is what it was read as, else `value` itself."""
        text = self.text(path)
        if text is None:
            return value
        node = self.value
        for part in path:
            node = node[part]
        return text if node is value else value


def _below(mark: Mark | None, part: str | int) -> Mark | None:
    inside = mark.inside if mark else None
    if isinstance(inside, dict) and isinstance(part, str):
        return inside.get(part)
    if isinstance(inside, list) and isinstance(part, int) and 0 <= part < len(inside):
        return inside[part]
    return None

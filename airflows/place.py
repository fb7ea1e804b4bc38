"""Where in which file something stands, so that errors and notices can say it. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NoReturn

from airflows.errors import SpecError
from airflows.yamlio import Document, Notice

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A path in a file, or in a mapping that Python handed over.

    Attributes:
        file: the file, as the user named it.
        path: keys and list positions from the top.
        document: the parsed file, for lines; None for a mapping.
        changed: paths that `--set` wrote, which therefore have no line.
    """

    file: str
    path: Path = ()
    document: Document | None = None
    changed: Collection[Path] = ()

    def at(self, *parts: str | int) -> Place:
        """Return the place of what is inside."""
        return replace(self, path=(*self.path, *parts))

    @property
    def field(self) -> str | None:
        """The path as people write it, None for the file as a whole: `space.parameters.lr[2]`."""
        text = ""
        for part in self.path:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text or None

    @property
    def line(self) -> int | None:
        """The line of it in the file, counted from 1."""
        if self.document is None or self._by_set:
            return None
        return self.document.line(self.path)

    @property
    def source(self) -> str:
        """The file, or the option that wrote the value."""
        return "--set" if self._by_set else self.file

    @property
    def _by_set(self) -> bool:
        return any(self.path[: len(path)] == path for path in self.changed)

    def fail(self, message: str, hint: str | None = None) -> NoReturn:
        """Raise an error about this place.

        Raises:
            SpecError: always.
        """
        raise self.error(message, hint)

    def error(self, message: str, hint: str | None = None) -> SpecError:
        """Return (not raise) an error about this place."""
        return SpecError(message, file=self.source, line=self.line, field=self.field, hint=hint)

    def notice(self, message: str) -> Notice:
        """Return a warning about this place."""
        return Notice(message, self.source, self.line, self.field)

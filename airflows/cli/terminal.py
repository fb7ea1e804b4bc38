"""Where output goes and how it looks: results to stdout, notes to stderr, colour only where wanted."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TextIO

from airflows.documents import to_json

_PIPE_WIDTH = 10_000
_CODES: Mapping[str, str] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}

Output = Literal["text", "json"]


@dataclass(frozen=True, slots=True)
class Style:
    """How text for people looks.

    Attributes:
        color: escape codes are wanted.
        width: columns there are.
    """

    color: bool = False
    width: int = _PIPE_WIDTH

    def paint(self, text: str, *looks: str) -> str:
        """Return the text in these looks (`bold`, `red`…), or as it is where there is no colour."""
        if not self.color or not text:
            return text
        codes = ";".join(_CODES[look] for look in looks if look)
        return f"\x1b[{codes}m{text}\x1b[0m" if codes else text


def style_of(stream: TextIO, *, no_color: bool, environment: Mapping[str, str] = os.environ) -> Style:
    """Return the style of a stream: plain and as wide as it likes unless it is a terminal."""
    if not is_terminal(stream):
        return Style()
    dumb = environment.get("TERM", "dumb") == "dumb"
    width = shutil.get_terminal_size().columns
    return Style(color=not (no_color or environment.get("NO_COLOR") or dumb), width=max(20, width))


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person sees this stream."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def can_draw(stream: TextIO | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a stream is a terminal on which a person sees a picture change, and not the log of some CI."""
    if stream is None or not is_terminal(stream) or environment.get("CI"):
        return False
    can_go_back = environment.get("TERM", "") not in {"", "dumb", "unknown"}
    return can_go_back and (stream.encoding or "").lower().replace("-", "") == "utf8"


@dataclass(slots=True)
class Session:
    """One call of the command: its manners.

    Attributes:
        output: what stdout holds, text or JSON.
        no_color: no escape codes, whatever the terminal.
        debug: tracebacks are wanted.
    """

    output: Output = "text"
    no_color: bool = False
    debug: bool = False
    style: Style = field(init=False)
    note_style: Style = field(init=False)

    def __post_init__(self) -> None:
        self.style = style_of(sys.stdout, no_color=self.no_color)
        self.note_style = style_of(sys.stderr, no_color=self.no_color)

    @property
    def is_json(self) -> bool:
        """Whether stdout holds JSON and nothing else."""
        return self.output == "json"

    @property
    def shows_progress(self) -> bool:
        """Whether progress is drawn on stderr."""
        return can_draw(sys.stderr)

    def document(self, document: Mapping[str, Any]) -> None:
        """Print the one JSON document."""
        self._json(document, indent=2)

    def record(self, document: Mapping[str, Any]) -> None:
        """Print one of several JSON documents, a line each."""
        self._json(document, indent=None)

    def _json(self, document: Mapping[str, Any], *, indent: int | None) -> None:
        ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
        self.text(to_json(document, indent=indent, ascii_only=ascii_only))

    def text(self, *lines: str) -> None:
        """Print results for people."""
        sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()

    def note(self, *lines: str) -> None:
        """Tell people something that is no result."""
        # The terminal or whoever reads may be gone; what is told is not worth failing for.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.writelines(f"{line}\n" for line in lines)
            sys.stderr.flush()

    def answer(self, document: Mapping[str, Any], lines: Sequence[str]) -> None:
        """Print a result: the document with `-o json`, else the lines."""
        if self.is_json:
            self.document(document)
        else:
            self.text(*lines)

    def can_ask(self) -> bool:
        """Whether there is a person to ask."""
        return is_terminal(sys.stdin) and is_terminal(sys.stderr)

    def ask(self, question: str) -> bool:
        """Ask a person; anything but yes is no."""
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in {"y", "yes"}


def be_unbreakable() -> None:
    """Let no character keep a line from being printed, whatever the locale."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Nobody reads stdout any more: let what is still to be written go nowhere, quietly."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)

"""What a word consists of: literal text, variables, commands, arithmetic. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as Choice

from airflows.migrate.shell import scan

_NAME = re.compile(r"[A-Za-z_]\w*|\d|[@*#?$!-]", re.ASCII)
_BRACED = re.compile(r"(#|!)?([A-Za-z_]\w*|\d+|[@*#?$!-])", re.ASCII)
_ESCAPABLE = frozenset('$`"\\\n')
_ANSI = re.compile(r"\\(?:([abefnrtv\\'\"?])|x([0-9a-fA-F]{1,2})|([0-7]{1,3}))")
_ANSI_CHARS = {
    "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Literal:
    """Text that stands for itself."""

    start: int
    end: int
    text: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class Variable:
    """`$NAME`, `${NAME}`, `${NAME[subscript]}`, `${#NAME}`, `${NAME:-word}` and their like.

    Attributes:
        start: where it begins in the word.
        end: where it ends.
        name: the variable; a digit or a sign for special ones.
        subscript: what stands in brackets, None without.
        op: what follows, operator and argument: `:-word`, `%pattern`.
        prefix: `#` for the length, `!` for indirection.
        quoted: stands in double quotes.
    """

    start: int
    end: int
    name: str
    subscript: str | None
    op: str
    prefix: str
    quoted: bool

    @property
    def is_plain(self) -> bool:
        """Whether it is just the value of a variable."""
        return self.subscript is None and not self.op and not self.prefix


@dataclass(frozen=True, slots=True)
class Inner:
    """`$(command)` or `$((arithmetic))`, or something this reader does not know."""

    start: int
    end: int
    kind: Choice["command", "arithmetic", "unknown"]
    text: str
    quoted: bool


Part = Literal | Variable | Inner


def parts_of(text: str) -> list[Part]:
    """Return the parts of a word as it is written."""
    return list(_parts(text, 0, len(text), quoted=False))


def parts_of_heredoc(text: str) -> list[Part]:
    """Return the parts of text that is read as in double quotes, where the quotes themselves are plain."""
    return list(_quoted_parts(text, 0, len(text), heredoc=True))


def _parts(text: str, at: int, stop: int, *, quoted: bool) -> Iterator[Part]:
    while at < stop:
        char = text[at]
        if char == "'":
            end = text.index("'", at + 1)
            yield Literal(at, end + 1, text[at + 1 : end], quoted=True)
            at = end + 1
        elif char == '"':
            end = scan.double_end(text, at + 1)
            yield Literal(at, at + 1, "", quoted=True)
            yield from _quoted_parts(text, at + 1, end)
            at = end + 1
        elif char == "\\":
            kept = text[at + 1 : at + 2]
            yield Literal(at, min(at + 2, stop), "" if kept == "\n" else kept, quoted=True)
            at += 2
        elif char in "$`" or (char in "<>" and text[at + 1 : at + 2] == "("):
            part = _expansion(text, at, quoted=quoted)
            yield part
            at = part.end
        else:
            end = at + 1
            while end < stop and text[end] not in "'\"\\$`<>":
                end += 1
            yield Literal(at, end, text[at:end], quoted=quoted)
            at = end


def _quoted_parts(text: str, at: int, stop: int, *, heredoc: bool = False) -> Iterator[Part]:
    start, plain = at, ""
    escapable = _ESCAPABLE - {'"'} if heredoc else _ESCAPABLE
    while at < stop:
        char = text[at]
        if char == "\\" and text[at + 1 : at + 2] in escapable and at + 1 < stop:
            plain += "" if text[at + 1] == "\n" else text[at + 1]
            at += 2
        elif char in "$`":
            if plain:
                yield Literal(start, at, plain, quoted=True)
            part = _expansion(text, at, quoted=True)
            yield part
            start = at = part.end
            plain = ""
        else:
            plain += char
            at += 1
    if plain:
        yield Literal(start, at, plain, quoted=True)


def _expansion(text: str, at: int, *, quoted: bool) -> Part:  # noqa: PLR0911 - one for each form
    if text[at] == "`":
        end = scan.backtick_end(text, at + 1) + 1
        inner = re.sub(r"\\([\\$`])", r"\1", text[at + 1 : end - 1])
        return Inner(at, end, "command", inner, quoted)
    if text[at] in "<>":
        end = scan.substitution_end(text, at + 2) + 1
        return Inner(at, end, "unknown", text[at:end], quoted)
    end = scan.expansion_end(text, at)
    source = text[at:end]
    if source.startswith("$((") and source.endswith("))") and scan.arithmetic_end(text, at + 3) == end - 2:
        return Inner(at, end, "arithmetic", source[3:-2], quoted)
    if source.startswith("$["):
        return Inner(at, end, "arithmetic", source[2:-1], quoted)
    if source.startswith("$("):
        return Inner(at, end, "command", source[2:-1], quoted)
    if source.startswith("$'") and not quoted:
        return _ansi(at, end, source[2:-1], quoted=quoted)
    if source.startswith("${"):
        return _braced(at, end, source[2:-1], quoted=quoted)
    found = _NAME.fullmatch(source[1:])
    if found is None:
        return Literal(at, at + 1, "$", quoted=quoted) if source == "$" else _unknown(at, end, source, quoted)
    return Variable(at, end, found[0], None, "", "", quoted)


def _unknown(at: int, end: int, source: str, quoted: bool) -> Inner:
    return Inner(at, end, "unknown", source, quoted)


def _ansi(at: int, end: int, source: str, *, quoted: bool) -> Part:
    rest = _ANSI.sub("", source)
    if "\\" in rest:
        return _unknown(at, end, source, quoted)

    def char(found: re.Match[str]) -> str:
        if found[1]:
            return _ANSI_CHARS[found[1]]
        return chr(int(found[2], 16) if found[2] else int(found[3], 8))

    return Literal(at, end, _ANSI.sub(char, source), quoted=True)


def _braced(at: int, end: int, source: str, *, quoted: bool) -> Part:
    found = _BRACED.match(source)
    if source == "#":
        return Variable(at, end, "#", None, "", "", quoted)
    if found is None:
        return _unknown(at, end, source, quoted)
    prefix, name = found[1] or "", found[2]
    rest = source[found.end() :]
    subscript = None
    if rest.startswith("["):
        close = scan.bracket_end(rest, 1)
        if close is None:
            return _unknown(at, end, source, quoted)
        subscript, rest = rest[1:close], rest[close + 1 :]
    return Variable(at, end, name, subscript, rest, prefix, quoted)


def literal(text: str) -> str | None:
    """Return the value of a word that holds nothing but literal text, else None."""
    parts = parts_of(text)
    plain = [part.text for part in parts if isinstance(part, Literal)]
    return "".join(plain) if len(plain) == len(parts) else None


def is_glob(text: str) -> bool:
    """Whether a word may stand for the names of files, or for several words by its braces."""
    parts = parts_of(text)
    plain = "".join(part.text for part in parts if isinstance(part, Literal) and not part.quoted)
    return any(char in plain for char in "*?[{")

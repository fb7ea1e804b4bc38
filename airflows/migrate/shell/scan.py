"""Where a word, a quoted text or an expansion ends. Pure."""

from __future__ import annotations

from airflows.migrate.shell.tree import ParseError

_META = frozenset(" \t\n;&|()<>")


def word_end(text: str, at: int) -> int:
    """Return where the word that begins here ends; the same place where none begins."""
    while at < len(text):
        char = text[at]
        if char in "<>" and text[at + 1 : at + 2] == "(":
            at = substitution_end(text, at + 2) + 1
        elif char in _META:
            return at
        elif char == "\\":
            at += 2
        else:
            at = _piece_end(text, at)
    return min(at, len(text))


def _piece_end(text: str, at: int) -> int:
    char = text[at]
    if char == "'":
        return _after(text, "'", at + 1)
    if char == '"':
        return double_end(text, at + 1) + 1
    if char == "`":
        return backtick_end(text, at + 1) + 1
    if char == "$":
        return expansion_end(text, at)
    return at + 1


def _after(text: str, char: str, at: int) -> int:
    found = text.find(char, at)
    if found < 0:
        message = f"{char} is not closed"
        raise ParseError(message, at)
    return found + 1


def expansion_end(text: str, at: int) -> int:  # noqa: PLR0911 - one for each form
    """Return where what `$` begins ends."""
    rest = text[at + 1 : at + 3]
    if rest.startswith("(("):
        close = arithmetic_end(text, at + 3)
        if close is not None:
            return close + 2
    if rest.startswith("("):
        return substitution_end(text, at + 2) + 1
    if rest.startswith("{"):
        return brace_end(text, at + 2) + 1
    if rest.startswith("'"):
        return _ansi_end(text, at + 2)
    if rest.startswith('"'):
        return double_end(text, at + 2) + 1
    if rest.startswith("["):
        close = bracket_end(text, at + 2)
        return at + 1 if close is None else close + 1
    end = at + 1
    while end < len(text) and (text[end].isalnum() or text[end] == "_") and text[end].isascii():
        end += 1
        if text[at + 1].isdigit():
            break
    return end if end > at + 1 else min(at + 2, len(text)) if rest[:1] in tuple("@*#?-$!") else at + 1


def _ansi_end(text: str, at: int) -> int:
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == "'":
            return at + 1
        else:
            at += 1
    message = "' is not closed"
    raise ParseError(message, at)


def double_end(text: str, at: int) -> int:
    """Return where the closing double quote stands."""
    while at < len(text):
        char = text[at]
        if char == '"':
            return at
        if char == "\\":
            at += 2
        elif char == "`":
            at = backtick_end(text, at + 1) + 1
        elif char == "$" and text[at + 1 : at + 2] in ("(", "{"):
            at = expansion_end(text, at)
        else:
            at += 1
    message = 'a " is not closed'
    raise ParseError(message, min(at, len(text)))


def backtick_end(text: str, at: int) -> int:
    """Return where the closing backtick stands."""
    while at < len(text):
        if text[at] == "`":
            return at
        at += 2 if text[at] == "\\" else 1
    message = "a ` is not closed"
    raise ParseError(message, min(at, len(text)))


def brace_end(text: str, at: int) -> int:
    """Return where the `}` of `${…}` stands."""
    while at < len(text):
        char = text[at]
        if char == "}":
            return at
        if char == "\\":
            at += 2
        elif char in "'\"`$":
            at = _piece_end(text, at)
        else:
            at += 1
    message = "${ is not closed"
    raise ParseError(message, min(at, len(text)))


def bracket_end(text: str, at: int) -> int | None:
    """Return where the `]` of a subscript stands, None where there is none."""
    depth = 0
    while at < len(text):
        char = text[at]
        if char == "]" and not depth:
            return at
        if char == "\n":
            return None
        depth += (char == "[") - (char == "]")
        at = _piece_end(text, at) if char in "'\"`$" else at + 1
    return None


def arithmetic_end(text: str, at: int) -> int | None:
    """Return where the `))` of an arithmetic expression stands, None where it is something else."""
    depth = 0
    while at < len(text):
        char = text[at]
        if char == "(":
            depth += 1
        elif char == ")":
            if not depth:
                return at if text.startswith("))", at) else None
            depth -= 1
        if char in "'\"`$":
            at = _piece_end(text, at)
        else:
            at += 1
    return None


def substitution_end(text: str, at: int) -> int:
    """Return where the `)` of `$(…)` stands.

    Raises:
        ParseError: it is not closed, or holds a `case` or a here-document, whose own `)` are not told apart.
    """
    depth, start = 0, at
    while at < len(text):
        char = text[at]
        if char == ")":
            if not depth:
                return at
            depth -= 1
        depth += char == "("
        if _is_unsupported(text, at, start):
            message = "a `case` or a here-document inside $( ) is not supported"
            raise ParseError(message, at)
        if char == "#" and text[at - 1] in _META:
            at = _line_end(text, at)
        elif char == "\\":
            at += 2
        else:
            at = _piece_end(text, at)
    message = "$( is not closed"
    raise ParseError(message, min(at, len(text)))


def _is_unsupported(text: str, at: int, start: int) -> bool:
    if text.startswith("<<", at):
        return text[at + 2 : at + 3] != "<" and text[at - 1] != "<"
    begins = at == start or text[at - 1] in _META
    return begins and text.startswith("case", at) and text[at + 4 : at + 5].isspace()


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found

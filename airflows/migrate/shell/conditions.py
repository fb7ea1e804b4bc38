"""`[ … ]` and `[[ … ]]`: whether a test holds. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from airflows.migrate.shell.arithmetic import UnknownValueError
from airflows.migrate.shell.expand import Expander
from airflows.migrate.shell.tree import Word

_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_TEXTUAL = frozenset({"=", "==", "!="})
_INTEGER = re.compile(r"\s*[-+]?\d{1,18}\s*", re.ASCII)


def holds(words: Sequence[str]) -> bool:  # noqa: PLR0911 - one for each form
    """Return whether `[ words ]` succeeds.

    Raises:
        UnknownValueError: it depends on something else, or is not understood.
    """
    match list(words):
        case []:
            return False
        case ["!", *rest] if len(rest) in {1, 2, 3}:
            return not holds(rest)
        case [one]:
            return bool(one)
        case ["-n", one]:
            return bool(one)
        case ["-z", one]:
            return not one
        case [one, op, other] if op in _TEXTUAL:
            return (one == other) == (op != "!=")
        case [one, op, other] if op in _COMPARE:
            return _COMPARE[op](_number(one), _number(other))
        case _:
            return _combined(list(words))


def _combined(words: Sequence[str]) -> bool:
    for op in ("-o", "-a"):
        if op in words:
            at = words.index(op)
            one, other = holds(words[:at]), holds(words[at + 1 :])
            return (one or other) if op == "-o" else (one and other)
    raise UnknownValueError


def _number(text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise UnknownValueError
    return int(text)


def condition_holds(words: Sequence[Word], expander: Expander) -> bool:  # noqa: PLR0911 - one for each form
    """Return whether `[[ words ]]` succeeds.

    Raises:
        UnknownValueError: it depends on something else, or is not understood.
    """
    texts = [word.text for word in words]
    for joint in ("||", "&&"):
        if joint in texts and "(" not in texts:
            at = texts.index(joint)
            first = condition_holds(words[:at], expander)
            if first == (joint == "||"):
                return first
            return condition_holds(words[at + 1 :], expander)
    match texts:
        case ["!", *_] if len(texts) > 1:
            return not condition_holds(words[1:], expander)
        case [one]:
            return bool(expander.text(one))
        case ["-n", one]:
            return bool(expander.text(one))
        case ["-z", one]:
            return not expander.text(one)
        case [one, op, other] if op in _TEXTUAL:
            found = expander.pattern(other).fullmatch(expander.text(one)) is not None
            return found == (op != "!=")
        case [one, op, other] if op in _COMPARE:
            return _COMPARE[op](expander.number(expander.text(one)), expander.number(expander.text(other)))
        case _:
            raise UnknownValueError

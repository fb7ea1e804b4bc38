"""Arithmetic as bash does it: 64-bit integers, C's operators. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

_TOKEN = re.compile(
    r"\s*(?:(\d+#[\w@]+|0[xX][0-9a-fA-F]+|\d+)|([A-Za-z_]\w*)"
    r"|(<<=|>>=|\*\*|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%<>=!~&|^?:,()\[\]]))",
    re.ASCII,
)
_MAX_DEPTH = 50
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"),
    ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
_ASSIGNING = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^="})
_MAX_SHIFT = 63


class UnknownValueError(Exception):
    """The value depends on what is not known, or the expression is not understood."""


class UnknownNumberError(UnknownValueError):
    """The same of a number: it may be none at all, and then the whole command ends there."""


class Variables(Protocol):
    """Where names get their values."""

    def number_text(self, name: str, subscript: str | None) -> str:
        """Return the text of a variable, which is an expression itself; raise UnknownValueError."""

    def set_number(self, name: str, subscript: str | None, value: int) -> None:
        """Assign to a variable."""


def evaluate(text: str, variables: Variables, depth: int = 0) -> int:
    """Return the value of an expression, `$` expansions already done.

    Raises:
        UnknownValueError: it is not known.
    """
    if depth > _MAX_DEPTH:
        raise UnknownValueError
    if not text.strip():
        return 0
    reader = _Reader(_tokens(text), variables, depth)
    value = reader.comma()
    if reader.at < len(reader.tokens):
        raise UnknownValueError
    return value


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnknownValueError
        kind = "number" if match[1] else "name" if match[2] else "sign"
        found.append((kind, match[1] or match[2] or match[3]))
        at = match.end()
    return found


def _wrapped(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _number(text: str) -> int:
    base, mark, digits = text.partition("#")
    try:
        if mark:
            return int(digits, int(base)) if 2 <= int(base) <= 36 else _refuse()  # noqa: PLR2004
        if text[:2] in ("0x", "0X"):
            return int(text, 16)
        return int(text, 8) if text.startswith("0") and len(text) > 1 else int(text)
    except ValueError as exc:
        raise UnknownValueError from exc


def _refuse() -> int:
    raise UnknownValueError


def _divided(one: int, other: int) -> int:
    if not other:
        raise UnknownValueError
    whole = abs(one) // abs(other)
    return whole if (one < 0) == (other < 0) else -whole


def _shift(one: int, other: int, *, left: bool) -> int:
    if not 0 <= other <= _MAX_SHIFT:
        raise UnknownValueError
    return one << other if left else one >> other


_BINARY: dict[str, Callable[[int, int], int]] = {
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: _shift(a, b, left=True),
    ">>": lambda a, b: _shift(a, b, left=False),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divided,
    "%": lambda a, b: a - b * _divided(a, b),
    "||": lambda a, b: int(bool(a or b)),
    "&&": lambda a, b: int(bool(a and b)),
}


class _Reader:
    """Recursive descent. What bash would not evaluate (`a || b++`) is refused rather than skipped."""

    def __init__(self, tokens: list[tuple[str, str]], variables: Variables, depth: int) -> None:
        self.tokens = tokens
        self.at = 0
        self._variables = variables
        self._depth = depth
        self._has_effects = any(text in _ASSIGNING or text in ("++", "--") for _, text in tokens)

    def _peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def _take(self, text: str) -> None:
        if self._peek() != text:
            raise UnknownValueError
        self.at += 1

    def comma(self) -> int:
        value = self._assignment()
        while self._peek() == ",":
            self.at += 1
            value = self._assignment()
        return value

    def _assignment(self) -> int:
        start = self.at
        target = self._target()
        op = self._peek()
        if target is None or op not in _ASSIGNING:
            self.at = start
            return self._ternary()
        self.at += 1
        value = self._assignment()
        if op != "=":
            value = _BINARY[op[:-1]](self._value(*target), value)
        return self._set(target, value)

    def _target(self) -> tuple[str, str | None] | None:
        if self.at >= len(self.tokens) or self.tokens[self.at][0] != "name":
            return None
        name = self.tokens[self.at][1]
        self.at += 1
        if self._peek() != "[":
            return name, None
        self.at += 1
        index = self.comma()
        self._take("]")
        return name, str(index)

    def _set(self, target: tuple[str, str | None], value: int) -> int:
        value = _wrapped(value)
        self._variables.set_number(*target, value)
        return value

    def _value(self, name: str, subscript: str | None) -> int:
        text = self._variables.number_text(name, subscript)
        return evaluate(text, self._variables, self._depth + 1)

    def _ternary(self) -> int:
        test = self._level(0)
        if self._peek() != "?":
            return test
        self._refuse_effects()
        self.at += 1
        yes = self.comma()
        self._take(":")
        no = self._ternary()
        return yes if test else no

    def _refuse_effects(self) -> None:
        if self._has_effects:
            raise UnknownValueError

    def _level(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._power()
        value = self._level(level + 1)
        while self._peek() in _LEVELS[level]:
            op = self._peek()
            if op in ("||", "&&"):
                self._refuse_effects()
            self.at += 1
            value = _wrapped(_BINARY[op](value, self._level(level + 1)))
        return value

    def _power(self) -> int:
        base = self._unary()
        if self._peek() != "**":
            return base
        self.at += 1
        exponent = self._power()
        if not 0 <= exponent <= 1 << 10:
            raise UnknownValueError
        return _wrapped(base**exponent)

    def _unary(self) -> int:
        sign = self._peek()
        if sign in ("!", "~", "-", "+") and self.tokens[self.at][0] == "sign":
            self.at += 1
            value = self._unary()
            return {"!": int(not value), "~": ~value, "-": -value, "+": value}[sign]
        if sign in ("++", "--"):
            self.at += 1
            target = self._target() or ("", None)
            return self._set(target, self._value(*target) + (1 if sign == "++" else -1))
        return self._atom()

    def _atom(self) -> int:
        if self._peek() == "(":
            self.at += 1
            value = self.comma()
            self._take(")")
            return value
        target = self._target()
        if target is None:
            if self.at >= len(self.tokens) or self.tokens[self.at][0] != "number":
                raise UnknownValueError
            self.at += 1
            return _number(self.tokens[self.at - 1][1])
        value = self._value(*target)
        if self._peek() in ("++", "--"):
            step = 1 if self._peek() == "++" else -1
            self.at += 1
            self._set(target, value + step)
        return value

"""What an unquoted YAML scalar means to AI Runtime's CLI, and where other readers differ. Pure.

The CLI is written in Go; its YAML reader follows YAML 1.2 with some of 1.1 (https://github.com/go-yaml/yaml,
`resolve.go`). PyYAML's own rules differ on `yes`, `1e3`, `1:30` and `0o17`, so they are not used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_NUMBER_START = frozenset("+-.0123456789")
_SWITCH_START = frozenset("yYnNoO")
_INT = re.compile(r"([-+]?)(?:(0[xX][0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_TIME = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:([Tt ])(\d{1,2}):(\d{1,2}):(\d{1,2})(\.\d+)?(Z|[-+]\d{2}:\d{2})?)?",
    re.ASCII,
)
_MAX_DIGITS = 70
_GO_POSITIONAL = range(-4, 6)  # exponents that Go's %g writes without one: 1000000.0 is 1e+06

# What YAML 1.1 readers, YAML 1.2 readers and Go's take for different things.
_SWITCH = re.compile(r"(?:on|yes|y|(off|no|n))", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}(?:[Tt\s].*)?", re.ASCII | re.DOTALL)
_SEXAGESIMAL = re.compile(r"[-+]?\d[\d_]*(?::[0-5]?\d)+(?:\.[\d_]*)?", re.ASCII)
_ODD_BASE = re.compile(r"[-+]?0(?:[0-9_]+|[oObBX][0-9a-fA-F_]+)|[-+]0x[0-9a-fA-F_]+", re.ASCII)
_UNDERSCORED = re.compile(r"[-+]?\.?\d[\w.+-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Doubt:
    """An unquoted scalar that YAML readers disagree about.

    Attributes:
        others: what it is to the other readers, a half sentence.
        fix: what to write instead.
    """

    others: str
    fix: str


def resolve(text: str) -> Scalar:
    """Return the value of an unquoted scalar; a date becomes the text of its timestamp."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    if text[0] == ".":
        return _float(text)
    stamp = _timestamp(text)
    if stamp is not None:
        return stamp
    plain = text.replace("_", "")
    whole = _integer(plain)
    if whole is not None:
        return whole
    number = _float(plain)
    return text if isinstance(number, str) else number


def _integer(plain: str) -> int | None:
    found = _INT.fullmatch(plain) if len(plain) <= _MAX_DIGITS else None
    if found is None:
        return None
    sign, base16, base2, base8, base10 = found.groups()
    digits, base = (base16, 16) if base16 else (base2, 2) if base2 else (base8, 8) if base8 else (base10, 10)
    value = int(digits, base)
    if sign == "-":
        return -value if value <= 1 << 63 else None
    return value if value < 1 << (63 if sign else 64) else None


def _float(plain: str) -> float | str:
    if _FLOAT.fullmatch(plain) is None:
        return plain
    value = float(plain)
    return plain if math.isinf(value) else value


def _timestamp(text: str) -> str | None:
    found = _TIME.fullmatch(text) if text[4:5] == "-" else None
    if found is None:
        return None
    year, month, day, between, hour, minute, second, fraction, zone = found.groups()
    if between is not None and (between == " ") == (zone is not None):
        return None
    try:
        at = datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0))  # noqa: DTZ001
        if zone not in (None, "Z"):
            timezone(timedelta(hours=int(zone[1:3]), minutes=int(zone[4:])))
    except ValueError:
        return None
    return f"{at.isoformat()}{(fraction or '').rstrip('0').rstrip('.')}{zone or 'Z'}"


def doubt(text: str) -> Doubt | None:
    """Return why an unquoted scalar should not be left unquoted, or None where all readers agree."""
    if text[:1] not in _NUMBER_START:
        return _doubtful_word(text) if text[:1] in _SWITCH_START else None
    quotes = _quoted(text)
    if len(text) <= _MAX_DIGITS:
        if _DATE.fullmatch(text):
            return Doubt("a date to other readers", quotes)
        if _SEXAGESIMAL.fullmatch(text):
            number = sexagesimal(text)
            return Doubt(f"{number} to YAML 1.1 readers", f"{number} for the number, or {quotes}")
    value = resolve(text)
    if isinstance(value, str):
        return Doubt("infinity to YAML 1.2 readers", f".inf, or {quotes}") if _FLOAT.fullmatch(text) else None
    numbers = _doubtful_number(text, value)
    return (
        Doubt("another number or text to other readers", f"{numbers} for the number, or {quotes}")
        if numbers
        else None
    )


def _doubtful_word(text: str) -> Doubt | None:
    switch = _SWITCH.fullmatch(text)
    if switch is None:
        return None
    word = "false" if switch[1] else "true"
    return Doubt(f"{word} to YAML 1.1 readers", f"{word} for the boolean, or {_quoted(text)}")


def _doubtful_number(text: str, value: Scalar) -> str:
    digits = text.lstrip("+-").isdigit()
    if isinstance(value, float) and digits:
        return go_text(value)
    if not (_ODD_BASE.fullmatch(text) or ("_" in text and _UNDERSCORED.fullmatch(text))):
        return ""
    number, decimal = go_text(value), str(int(text)) if digits else ""
    return f"{number} or {decimal}" if decimal not in ("", number) else number


def _quoted(text: str) -> str:
    return f"'{shortened(text)}' in quotes for the text"


def sexagesimal(text: str) -> int | float:
    """Return what YAML 1.1 makes of `1:30`: 90."""
    sign = -1 if text.startswith("-") else 1
    *whole, last = text.lstrip("+-").replace("_", "").split(":")
    total: int | float = 0
    for part in whole:
        total = total * 60 + int(part)
    return sign * (total * 60 + (float(last) if "." in last else int(last)))


def go_text(value: object) -> str:
    """Return the text AI Runtime's CLI writes for a scalar, as in `env_variables.N=1e3` -> `1000`."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return _go_float(value)
        case int():
            return int.__repr__(value)
        case _:
            return str(value)


def _go_float(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    shortest = float.__repr__(value)
    digits = shortest.partition("e")[0].replace(".", "").strip("-0")
    scientific = f"{value:.{max(len(digits) - 1, 0)}e}"
    if int(scientific.partition("e")[2]) in _GO_POSITIONAL:
        return shortest.removesuffix(".0")
    return scientific


def described(value: object) -> str:
    """Return a value in words, for messages: `the text 'two'`, `a list`."""
    match value:
        case None:
            return "null"
        case bool() | int() | float():
            return f"the {'boolean' if isinstance(value, bool) else 'number'} {go_text(value)}"
        case str():
            return f"the text {shortened(value)!r}"
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def shortened(text: str, length: int = 60) -> str:
    """Return the text, cut to a length that suits a message."""
    return text if len(text) <= length else f"{text[: length - 3]}..."

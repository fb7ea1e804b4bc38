"""The values that a Hydra override sweeps over, after the grammar of Hydra's command line. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from airflows.errors import SpecError
from airflows.migrate.space import typed_values
from airflows.scalars import go_text

_CALL = re.compile(r"([A-Za-z_]\w*)\((.*)\)", re.ASCII | re.DOTALL)
_NAMED = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)\s*(.*)", re.ASCII | re.DOTALL)
_CASTS: Mapping[str, Callable[[str], str]] = {
    "int": lambda text: str(_whole(text)),
    "float": lambda text: str(float(text)),
    "str": str,
}
_TWICE = "Values that are there twice are tried once."
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Swept:
    """What an override sweeps over.

    Attributes:
        domain: of ours, of the texts that go behind `key=`; None when it has a single value.
        notes: what is lost of it.
    """

    domain: Any
    notes: tuple[str, ...] = ()


def swept(value: str) -> Swept:
    """Return what the part of an override behind `=` sweeps over.

    Args:
        value: as Hydra gets it, after the shell.

    Raises:
        SpecError: it is a sweep that cannot be written out here.

    Example:
        >>> swept("0.1,0.2").domain, swept("tag(log, interval(1e-4, 1))").domain
        ([0.1, 0.2], {'min': 0.0001, 'max': 1.0, 'log': True})
    """
    parts = [part.strip() for part in _split(value)]
    if len(parts) > 1:
        if not all(parts) or any(_is_sweep(part) for part in parts):
            _fail(f"{value}: this list of values is not understood, by Hydra either.", None)
        return _listed(parts)
    call = _CALL.fullmatch(parts[0]) if parts else None
    if call is None:
        return Swept(None)
    return _called(call[1], [part.strip() for part in _split(call[2])], value)


def _is_sweep(part: str) -> bool:
    call = _CALL.fullmatch(part)
    return call is not None and call[1] in _CALLS


def _called(name: str, words: list[str], whole: str) -> Swept:
    make = _CALLS.get(name)
    if make is not None:
        return make(words, whole)
    if name in (*_CASTS, "bool"):
        inner = swept(",".join(words))
        return inner if inner.domain is None else _cast(name, inner, whole)
    # Any other text with brackets is a value.
    return Swept(None)


def _cast(name: str, inner: Swept, whole: str) -> Swept:
    made, domain = _CASTS.get(name), inner.domain
    if isinstance(domain, dict) and name in ("int", "float"):
        kind = int if name == "int" else float
        return Swept({**domain, "min": kind(domain["min"]), "max": kind(domain["max"])}, inner.notes)
    if made is None or isinstance(domain, dict):
        _fail(f"{whole}: this cast of a sweep is not carried over.", "Cast its values one by one.")
    try:
        values = _listed([made(go_text(value)) for value in domain])
    except (ValueError, OverflowError):
        _fail(f"{whole}: not all of these are numbers.", "Cast its values one by one.")
    return Swept(values.domain, (*inner.notes, *values.notes))


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def _listed(parts: list[str]) -> Swept:
    distinct = list(dict.fromkeys(parts))
    return Swept(typed_values(distinct), (_TWICE,) if len(distinct) < len(parts) else ())


def _chosen(words: list[str], whole: str) -> Swept:
    if words == [""]:
        _fail(f"{whole}: there is nothing to choose from.", None)
    return _listed(words)


def _ordered(words: list[str], whole: str) -> Swept:
    inner = swept(",".join(word for word in words if not _NAMED.fullmatch(word)))
    if inner.domain is None:
        # A list that Hydra sorts or shuffles is one value.
        return inner
    if isinstance(inner.domain, dict):
        _fail(f"{whole}: an interval has no order.", None)
    return Swept(inner.domain, (*inner.notes, "Trials come in the order of the values as written."))


def _tagged(words: list[str], whole: str) -> Swept:
    del whole
    *tags, inner = words
    found = swept(inner)
    if found.domain is None:
        return found
    if tags == ["log"] and isinstance(found.domain, dict):
        return Swept({**found.domain, "log": True}, found.notes)
    return Swept(found.domain, (*found.notes, f"The tags {', '.join(tags)} are left out."))


def _range(words: list[str], whole: str) -> Any:
    given = _arguments(words, ("start", "stop", "step"), whole)
    if "start" not in given:
        _fail(f"{whole}: range has no end.", "Write range(3) or range(0,3).")
    if "stop" not in given:
        given = {**given, "start": Decimal(0), "stop": given["start"]}
    start, stop, step = given["start"], given["stop"], given.get("step", Decimal(1))
    if step == 0 or (stop - start) / step > _MOST:
        _fail(f"{whole}: this range has too many values to write out.", None)
    values = []
    while (step > 0 and start < stop) or (step < 0 and start > stop):
        values.append(start)
        start += step
    if not values:
        _fail(f"{whole}: this range is empty.", None)
    return typed_values([_text(one, given.values()) for one in values])


def _text(number: Decimal, bounds: Any) -> str:
    """Return a value as Hydra passes it: of whole bounds a whole number, else a float."""
    if not any(mark in str(bound) for bound in bounds for mark in ".E"):
        return str(int(number))
    return str(float(number))


def _interval(words: list[str], whole: str) -> dict[str, float]:
    given = _arguments(words, ("start", "end"), whole)
    if given.keys() != {"start", "end"}:
        _fail(f"{whole}: interval needs a start and an end.", None)
    return {"min": float(given["start"]), "max": float(given["end"])}


def _arguments(words: list[str], names: tuple[str, ...], whole: str) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for position, word in enumerate(words):
        named = _NAMED.fullmatch(word)
        name, text = (named[1], named[2]) if named else (names[min(position, len(names) - 1)], word)
        try:
            found[name] = Decimal(text.strip())
        except InvalidOperation:
            _fail(f"{whole}: {text!r} is no number.", None)
        if name not in names or not found[name].is_finite():
            _fail(f"{whole}: this is not understood.", None)
    return found


def _split(text: str) -> Iterator[str]:
    """Yield the parts between commas that stand in no quotes and no brackets."""
    depth, quote, begin, position = [], "", 0, 0
    while position < len(text):
        char = text[position]
        if char == "\\":
            position += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in _PAIRS:
            depth.append(_PAIRS[char])
        elif depth and char == depth[-1]:
            depth.pop()
        elif char == "," and not depth:
            yield text[begin:position]
            begin = position + 1
        position += 1
    yield text[begin:]


def _globbed(words: list[str], whole: str) -> Swept:
    del words
    _fail(f"{whole}: which options glob finds is known only to Hydra.", "Write them out, as a,b,c.")


_CALLS: Mapping[str, Callable[[list[str], str], Swept]] = {
    "choice": _chosen,
    "range": lambda words, whole: Swept(_range(words, whole)),
    "interval": lambda words, whole: Swept(_interval(words, whole)),
    "shuffle": _ordered,
    "sort": _ordered,
    "tag": _tagged,
    "glob": _globbed,
}


def _fail(message: str, hint: str | None) -> NoReturn:
    raise SpecError(message, hint=hint)

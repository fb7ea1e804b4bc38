"""The values that a key of the space takes: listed, counted off, or anything between two bounds. Pure.

A domain costs the same memory however many values it stands for, unless they are listed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, cast

from airflows.ids import canonical_json
from airflows.scalars import go_text, resolve

Number = int | float

_SERIES_DIGITS = 14
# Powers and logarithms may differ in their last digits from one machine to another; ids may not.
_DRAWN_DIGITS = 12
_EXACT_INT = 1 << 53
_WHOLE_CHECKED = 100_000


def likeness(value: Any) -> str:
    """Return a text that is the same for values which conditions and rules take for equal, as 1 and 1.0."""
    return canonical_json(_alike(value))


def _alike(value: Any) -> Any:
    match value:
        case bool() | str() | None:
            return value
        case int():
            return float(value) if -_EXACT_INT <= value <= _EXACT_INT else value
        case float():
            return value + 0.0
        case Mapping():
            return {key: _alike(item) for key, item in value.items()}
        case list() | tuple():
            return [_alike(item) for item in value]
        case _:
            return value


def canonical_column(values: Iterable[Any]) -> list[Any]:
    """Return the values of one key; where one of them is a float, all numbers are."""
    column = list(values)
    if not any(type(value) is float for value in column):
        return column
    return [canonical_number(value, is_float=True) for value in column]


def canonical_number(value: Any, *, is_float: bool) -> Any:
    """Return the value, an int as a float where that is the domain's type, and never a negative zero."""
    if type(value) is int and is_float:
        return float(value)
    return value + 0.0 if type(value) is float else value


@dataclass(frozen=True, slots=True)
class Listed:
    """Values given one by one; of a coupled key, tuples of them.

    Attributes:
        values: without repeats, in the order of the file.
        repeats: how often a value stood there again, by its position.
        is_coupled: each value is a tuple, one element for each key.
    """

    values: tuple[Any, ...]
    repeats: Mapping[int, int] = field(default_factory=dict)
    is_coupled: bool = False
    _found: dict[int, dict[str, list[int]]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]], *, is_coupled: bool) -> Listed:
        """Return the domain of rows with one element for each key, equal rows taken together."""
        columns = [canonical_column(column) for column in zip(*rows, strict=True)]
        places: dict[str, int] = {}
        values: list[Any] = []
        repeats: dict[int, int] = {}
        for row in zip(*columns, strict=True):
            place = places.setdefault(canonical_json(row), len(values))
            if place < len(values):
                repeats[place] = repeats.get(place, 0) + 1
            else:
                values.append(row if is_coupled else row[0])
        return cls(tuple(values), repeats, is_coupled)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: int) -> Any:
        return self.values[place]

    def find(self, value: Any, column: int = 0) -> Sequence[int]:
        """Return the positions whose element for the key in `column` is like the value."""
        if column not in self._found:
            index: dict[str, list[int]] = {}
            for place, held in enumerate(self.values):
                index.setdefault(likeness(held[column] if self.is_coupled else held), []).append(place)
            self._found[column] = index
        return self._found[column].get(likeness(value), ())

    def describe(self) -> dict[str, Any]:
        """Return what it is, for the sweep's definition."""
        return {"values": [list(row) for row in self.values] if self.is_coupled else list(self.values)}


@dataclass(frozen=True, slots=True)
class Steps:
    """`(start + i * step) / scale` for i below `count`: decimal steps without rounding errors."""

    start: int
    step: int
    scale: int
    count: int
    is_whole: bool
    is_text: bool = False

    @classmethod
    def of(cls, low: Number, step: Fraction, count: int, *, is_whole: bool) -> Steps:
        """Return the series that begins with `low`."""
        first = exact(low)
        scale = math.lcm(first.denominator, step.denominator)
        return cls(int(first * scale), int(step * scale), scale, count, is_whole)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> Number | str:
        value = self.start + place * self.step
        return _given(value // self.scale if self.is_whole else value / self.scale, is_text=self.is_text)

    def find(self, value: Any, column: int = 0) -> Sequence[int]:  # noqa: ARG002 - one key only
        """Return the position of the value, if it is in the series."""
        number = _read(value, is_text=self.is_text)
        if number is None:
            return ()
        return _around(self, round((exact(number) * self.scale - self.start) / self.step), value)

    def describe(self) -> dict[str, Any]:
        """Return what it is, for the sweep's definition."""
        return {"first": self[0], "last": self[self.count - 1], "count": self.count}


@dataclass(frozen=True, slots=True)
class Powers:
    """`count` values from `low` to `high`, evenly spaced in logarithm."""

    low: Number
    high: Number
    count: int
    is_whole: bool = False
    is_text: bool = False

    @classmethod
    def of(cls, low: Number, high: Number, count: int) -> Powers:
        """Return the series; integers if the bounds are, and every value between them is whole."""
        spread = cls(low, high, count)
        is_whole = (
            isinstance(low, int)
            and isinstance(high, int)
            and count <= _WHOLE_CHECKED
            and all(spread._number(place).is_integer() for place in range(count))
        )
        return cls(low, high, count, is_whole=is_whole)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> Number | str:
        value = self._number(place)
        return _given(int(value) if self.is_whole else value, is_text=self.is_text)

    def _number(self, place: int) -> float:
        if place in {0, self.count - 1}:
            return float(self.high if place else self.low)
        return _rounded(self.low * (self.high / self.low) ** (place / (self.count - 1)), _SERIES_DIGITS)

    def find(self, value: Any, column: int = 0) -> Sequence[int]:  # noqa: ARG002 - one key only
        """Return the position of the value, if it is in the series."""
        number = _read(value, is_text=self.is_text)
        if number is None or number <= 0:
            return ()
        share = math.log(number / self.low) / math.log(self.high / self.low)
        return _around(self, round(share * (self.count - 1)), value)

    def describe(self) -> dict[str, Any]:
        """Return what it is, for the sweep's definition."""
        return {"first": self[0], "last": self[self.count - 1], "count": self.count, "log": True}


def _around(series: Steps | Powers, guess: int, value: Number | str) -> Sequence[int]:
    near = range(max(0, guess - 1), min(len(series), guess + 2))
    return [place for place in near if series[place] == value][:1]


@dataclass(frozen=True, slots=True)
class Interval:
    """Anything from `low` to `high`, both included: whole numbers, or floats."""

    low: Number
    high: Number
    is_log: bool
    is_whole: bool
    is_text: bool = False

    def draw(self, share: float) -> Number | str:
        """Return the value at a share of the interval from 0 up to 1."""
        return _given(self._draw(share), is_text=self.is_text)

    def _draw(self, share: float) -> Number:
        if self.is_whole:
            return self._draw_whole(share)
        if self.is_log:
            low, high = math.log(self.low), math.log(self.high)
            value = math.exp(low + share * (high - low))
        else:
            value = self.low + share * (self.high - self.low)
        return min(max(_rounded(value, _DRAWN_DIGITS), float(self.low)), float(self.high))

    def _draw_whole(self, share: float) -> int:
        low, high = int(self.low), int(self.high)
        if self.is_log:
            value = int(math.exp(math.log(low) + share * (math.log(high + 1) - math.log(low))))
        else:
            value = low + int(share * (high - low + 1))
        return min(max(value, low), high)

    def at(self, number: Number) -> Number | str:
        """Return the value at a number between the bounds, as a draw of it would be."""
        if self.is_whole:
            return _given(min(max(round(number), int(self.low)), int(self.high)), is_text=self.is_text)
        value = min(max(_rounded(number, _DRAWN_DIGITS), float(self.low)), float(self.high))
        return _given(value, is_text=self.is_text)

    def number(self, value: Any) -> Number:
        """Return the number that a value which `holds` stands for."""
        number = cast("Number", _read(value, is_text=self.is_text))
        return int(number) if self.is_whole else float(number)

    def holds(self, value: Any) -> bool:
        """Whether the value may be drawn."""
        number = _read(value, is_text=self.is_text)
        if number is None or not self.low <= number <= self.high:
            return False
        return not self.is_whole or number == int(number)

    def describe(self) -> dict[str, Any]:
        """Return what it is, for the sweep's definition."""
        return {"min": self.low, "max": self.high, "log": self.is_log, "whole": self.is_whole}


Finite = Listed | Steps | Powers
Domain = Finite | Interval


def exact(value: Number) -> Fraction:
    """Return the number as it is written in decimals: a tenth for 0.1."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def _given(number: Number, *, is_text: bool) -> Number | str:
    """Return a number as its key takes it: as the text that AI Runtime would make of it, where that is so."""
    return go_text(number) if is_text else number


def _read(value: Any, *, is_text: bool) -> Number | None:
    """Return the number that `_given` gave, None for what it would not give."""
    number = resolve(value) if is_text and isinstance(value, str) else value
    if not _is_number(number) or (is_text and go_text(number) != value):
        return None
    return cast("Number", number)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")

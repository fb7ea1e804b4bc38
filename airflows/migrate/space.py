"""From the values that an array's tasks have to the `space` of a sweep.yaml, in the array's order. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from airflows.scalars import go_text

_LONG = 12
_INTEGER = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)
_DECIMAL = re.compile(r"-?\d+\.\d+", re.ASCII)


def space_of(keys: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the space whose points are the tasks, in their order.

    Args:
        keys: override key to its value for each task; together they tell all tasks apart.
    """
    typed = {key: typed_values(values) for key, values in keys.items()}
    order = grid_order(keys)
    if order is not None:
        return {key: domain(_distinct(typed[key])) for key in order}
    return {", ".join(typed): [list(row) for row in zip(*typed.values(), strict=True)]}


def typed_values(values: Sequence[str]) -> list[Any]:
    """Return values as numbers, all of one kind, where every one of them keeps its text; else as they are."""
    numbers = [_number(value) for value in values]
    return (
        numbers
        if len({type(number) for number in numbers} - {type(None)}) == 1 and None not in numbers
        else list(values)
    )


def _number(text: str) -> int | float | None:
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text) and go_text(float(text)) == text == str(float(text)):
        return float(text)
    return None


def _distinct(values: Sequence[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def grid_order(keys: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Return the keys from slowest to fastest when the tasks are nested loops over them, else None."""
    distinct = {key: _distinct(values) for key, values in keys.items()}
    count = len(next(iter(keys.values())))
    if math.prod(map(len, distinct.values())) != count:
        return None
    changes = {key: sum(map(str.__ne__, values, values[1:])) for key, values in keys.items()}
    order = sorted(keys, key=lambda key: changes[key])
    rows = zip(*(keys[key] for key in order), strict=True)
    loops = itertools.product(*(distinct[key] for key in order))
    return order if all(row == point for row, point in zip(rows, loops, strict=True)) else None


def domain(values: Sequence[Any]) -> Any:
    """Return values as a domain: a long run of numbers as its bounds."""
    if len(values) <= _LONG or not all(type(value) is int for value in values):
        return list(values)
    step = values[1] - values[0]
    if step <= 0 or list(values) != list(range(values[0], values[-1] + 1, step)):
        return list(values)
    return {"min": values[0], "max": values[-1], "step": step}

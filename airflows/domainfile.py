"""From a value under `space` in a sweep.yaml to a domain. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from airflows.domains import Domain, Interval, Listed, Number, Powers, Steps, exact
from airflows.keys import nearest
from airflows.place import Place
from airflows.train import normalised, takes_text

_KEYS = ("values", "min", "max", "step", "count", "log", "when")
_MOST = 10**15
_FORMS = "Write a list, {values: [...]}, {min, max}, {min, max, step} or {min, max, count}."


@dataclass(frozen=True, slots=True)
class ReadDomain:
    """A domain as it stands in the file; its condition is not looked at yet."""

    domain: Domain
    when: Mapping[str, Any] = field(default_factory=dict)


def read_domain(raw: Any, keys: Sequence[str], place: Place) -> ReadDomain:
    """Return the domain of one key, or of several that are coupled.

    Raises:
        SpecError: the domain makes no sense; the error says why and where.
    """
    if not isinstance(raw, Mapping):
        return ReadDomain(_listed(raw, keys, place))
    for name in raw:
        if name not in _KEYS:
            close = nearest(str(name), _KEYS)
            hint = (
                f"Did you mean {close}?" if close else f"{_FORMS} A mapping as a value is written [{{...}}]."
            )
            place.at(name).fail(f"{name!r} is not a key of a domain.", hint)
    when = raw.get("when", {})
    if not isinstance(when, Mapping) or ("when" in raw and not when):
        place.at("when").fail(
            "A condition is a mapping of keys to values.", "Write when: {parameters.optimizer: sgd}."
        )
    if "values" in raw:
        odd = [name for name in ("min", "max", "step", "count", "log") if name in raw]
        if odd:
            place.at(odd[0]).fail(f"values cannot be combined with {' and '.join(odd)}.")
        return ReadDomain(_listed(raw["values"], keys, place.at("values")), when)
    if len(keys) > 1:
        place.fail("Coupled keys take a list of lists, one inner list for each choice.")
    return ReadDomain(replace(_range(raw, place), is_text=takes_text(keys[0])), when)


def _listed(raw: Any, keys: Sequence[str], place: Place) -> Listed:
    if raw is None:
        place.fail("There is no value here.", "To set null, write [null].")
    if len(keys) == 1:
        values = raw if isinstance(raw, list) else [raw]
        if not values:
            place.fail("The list is empty.", "Give at least one value, or leave the key out.")
        return Listed.of([[normalised(keys[0], value)] for value in values], is_coupled=False)
    rows = [
        [normalised(key, value) for key, value in zip(keys, row, strict=True)]
        for row in _rows(raw, keys, place)
    ]
    return Listed.of(rows, is_coupled=True)


def _rows(raw: Any, keys: Sequence[str], place: Place) -> Sequence[Sequence[Any]]:
    if not isinstance(raw, list) or not raw or not all(isinstance(row, list) for row in raw):
        example = ", ".join(["..."] * len(keys))
        place.fail(
            f"{' and '.join(keys)} are coupled, so they take a list of lists.",
            f"Write one inner list for each choice: [[{example}], [{example}]].",
        )
    odd = [number for number, row in enumerate(raw) if len(row) != len(keys)]
    if odd:
        message, hint = _wrong_lengths(raw, keys)
        place.at(odd[0]).fail(message, hint)
    return list(raw)


def _wrong_lengths(rows: Sequence[Sequence[Any]], keys: Sequence[str]) -> tuple[str, str]:
    lengths = [len(row) for row in rows]
    shown = " and ".join(str(length) for length in dict.fromkeys(lengths))
    message = (
        f"{' and '.join(keys)} are coupled: each inner list sets all {len(keys)} of them,"
        f" but the inner lists have {shown} values."
    )
    if len(rows) != len(keys):
        return message, f"Give each inner list {len(keys)} values."
    columns = ", ".join(f"{key} has {length} values" for key, length in zip(keys, lengths, strict=True))
    return message, f"Taken as columns they do not fit either: {columns}. Write rows, such as [{_row(rows)}]."


def _row(columns: Sequence[Sequence[Any]]) -> str:
    return ", ".join(str(column[0]) if column else "..." for column in columns)


def _range(raw: Mapping[str, Any], place: Place) -> Steps | Powers | Interval:
    for name in ("min", "max"):
        if name not in raw:
            place.fail(f"{name} is missing.", _FORMS)
    low, high = _bound(raw["min"], place.at("min")), _bound(raw["max"], place.at("max"))
    is_log = raw.get("log", False)
    if not isinstance(is_log, bool):
        place.at("log").fail("log is true or false.")
    if low >= high:
        place.at("min").fail(f"min ({low}) must be below max ({high}).")
    if is_log and low <= 0:
        place.at("min").fail(f"log needs min above 0, and it is {low}.")
    if "step" in raw:
        clash = "count" if "count" in raw else "log" if is_log else ""
        if clash:
            place.at(clash).fail(f"step cannot be combined with {clash}.")
        return _distinct(_steps(low, high, raw["step"], place.at("step")), place)
    if "count" in raw:
        return _distinct(_spread(low, high, raw["count"], place.at("count"), is_log=is_log), place)
    is_whole = isinstance(low, int) and isinstance(high, int)
    return Interval(low if is_whole else float(low), high if is_whole else float(high), is_log, is_whole)


def _bound(value: Any, place: Place) -> Number:
    if isinstance(value, bool) or not isinstance(value, int | float):
        hint = "Leave out the quotes." if isinstance(value, str) else None
        place.fail(f"This takes a number, not {value!r}.", hint)
    if not math.isfinite(value):
        place.fail(f"This takes a finite number, not {value}.")
    return value


def _steps(low: Number, high: Number, raw: Any, place: Place) -> Steps:
    step = _bound(raw, place)
    if step <= 0:
        place.fail(f"step must be above 0, and it is {step}.")
    count = int((exact(high) - exact(low)) // exact(step)) + 1
    return Steps.of(low, exact(step), count, is_whole=isinstance(low, int) and isinstance(step, int))


def _spread(low: Number, high: Number, count: Any, place: Place, *, is_log: bool) -> Steps | Powers:
    if isinstance(count, bool) or not isinstance(count, int):
        place.fail(f"count takes a whole number, not {count!r}.")
    if count < 2:  # noqa: PLR2004 - both ends
        place.fail(f"count must be at least 2, for both ends, and it is {count}.")
    if is_log:
        return Powers.of(low, high, count)
    step = (exact(high) - exact(low)) / (count - 1)
    is_whole = isinstance(low, int) and isinstance(high, int) and step == int(step)
    return Steps.of(low, Fraction(step), count, is_whole=is_whole)


def _distinct(series: Steps | Powers, place: Place) -> Steps | Powers:
    if series.count > _MOST:
        place.fail(f"This stands for {series.count:.3g} values, which is more than can be counted.")
    last = len(series) - 1
    if last and (series[0] == series[1] or series[last - 1] == series[last]):
        place.fail("The values lie closer together than floats can tell apart.")
    return series

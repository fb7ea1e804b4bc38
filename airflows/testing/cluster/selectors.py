"""Label and field selectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from airflows.testing.cluster.messages import Json, bad_request

Test: TypeAlias = Callable[[Json], bool]
_SET = re.compile(r"^\s*(?P<key>[^\s!=,()]+)\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)\s*$")
_EQUAL = re.compile(r"^\s*(?P<key>[^\s!=,()]+)\s*(?P<sign>==|=|!=)\s*(?P<value>[^\s!=,()]*)\s*$")
_PART = re.compile(r"(?:[^,(]|\([^)]*\)?)+")
_EXISTS = re.compile(r"^\s*(?P<no>!?)\s*(?P<key>[^\s!=,()]+)\s*$")


def label_test(selector: str) -> Test:
    """Return whether an object fits a label selector.

    Raises:
        ApiError: it cannot be read.
    """
    tests = [_requirement(part) for part in _parts(selector)]
    return lambda found: all(test(found["metadata"].get("labels") or {}) for test in tests)


def required_labels(selector: str) -> dict[str, set[str]]:
    """Return the labels that whatever fits a selector has, each with the values that it may have."""
    required: dict[str, set[str]] = {}
    for part in _parts(selector):
        if (read := _SET.match(part)) and read["word"] == "in":
            required[read["key"]] = {value.strip() for value in read["values"].split(",")}
        elif (read := _EQUAL.match(part)) and read["sign"] != "!=":
            required[read["key"]] = {read["value"]}
    return required


def field_test(selector: str) -> Test:
    """Return whether an object fits a field selector.

    Raises:
        ApiError: it cannot be read.
    """
    tests: list[Test] = []
    for part in filter(None, (part.strip() for part in selector.split(","))):
        read = re.match(r"^(?P<path>[\w.]+)(?P<sign>==|=|!=)(?P<value>.*)$", part)
        if read is None:
            message = f"invalid selector: '{part}'; can't understand '{part}'"
            raise bad_request(message)
        tests.append(_field(read["path"], read["value"], wanted=read["sign"] != "!="))
    return lambda found: all(test(found) for test in tests)


def _field(path: str, value: str, *, wanted: bool) -> Test:
    keys = path.split(".")

    def fits(found: Json) -> bool:
        at: Any = found
        for key in keys:
            at = at.get(key) if isinstance(at, dict) else None
        return (str("" if at is None else at) == value) is wanted

    return fits


def _parts(selector: str) -> list[str]:
    return [part for part in _PART.findall(selector) if part.strip()]


def _requirement(part: str) -> Callable[[Mapping[str, str]], bool]:
    if read := _SET.match(part):
        key, values = read["key"], {value.strip() for value in read["values"].split(",")}
        if read["word"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if read := _EQUAL.match(part):
        key, value = read["key"], read["value"]
        if read["sign"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if read := _EXISTS.match(part):
        key, has = read["key"], not read["no"]
        return lambda labels: (key in labels) is has
    message = f"unable to parse requirement: found '{part.strip()}'"
    raise bad_request(message)

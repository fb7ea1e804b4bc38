"""The tree of a sweep file before it is checked: plain values, `--set KEY=VALUE`, `--backend`. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from airflows.errors import SpecError
from airflows.keys import split_key
from airflows.place import Path, Place
from airflows.yamlio import parse_scalar

_OPTION = "--set"
# What follows in a key is an override key, dots and all.
_HOLDS_KEYS = ("space", "overrides")


def plain(value: Any, place: Place) -> Any:
    """Return the value with nothing in it but what YAML has; keys without a value at the top are left out.

    Raises:
        SpecError: Python handed over something that cannot be written to YAML.
    """
    made = _plain(value, place)
    return {key: _without_nulls(key, item) for key, item in made.items() if item is not None}


def _without_nulls(key: str, value: Any) -> Any:
    if key in {"base", "overrides", "space", "include", "exclude"} or not isinstance(value, dict):
        return value
    return {name: item for name, item in value.items() if item is not None}


def _plain(value: Any, place: Place) -> Any:
    if value is None or type(value) in {bool, str, int, float}:
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item, place.at(str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(item, place.at(at)) for at, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return _plain_scalar(value, place)


def _plain_scalar(value: Any, place: Place) -> Any:
    if getattr(value, "ndim", None) == 0 and callable(getattr(value, "item", None)):
        value = value.item()  # a number of NumPy
    for kind in (bool, str, int, float):
        if isinstance(value, kind):
            return kind(value)
    hint = "Use numbers, text, lists and dicts."
    return place.fail(f"A {type(value).__name__} cannot be written to YAML.", hint)


def apply_sets(
    tree: Mapping[str, Any], sets: Sequence[str], backend: str | None
) -> tuple[dict[str, Any], tuple[Path, ...]]:
    """Return the tree with the changes of the command line, and the paths that they wrote.

    Args:
        tree: the sweep file.
        sets: `KEY=VALUE` texts, applied in order.
        backend: a backend's name; the file's options stay if it is the same one.

    Raises:
        SpecError: a text is no `KEY=VALUE`, or its key goes through a value.
    """
    made = dict(tree)
    changed: list[Path] = []
    for text in sets:
        path, value = _parse(text)
        changed.append(_put(made, path, value, text))
    if backend is not None and _type(made.get("backend", "local")) != backend:
        made["backend"] = backend
        changed.append(("backend",))
    return made, tuple(changed)


def _type(backend: Any) -> Any:
    return backend.get("type") if isinstance(backend, Mapping) else backend


def _parse(text: str) -> tuple[tuple[str, ...], Any]:
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        message = f"{text!r} is not KEY=VALUE."
        raise SpecError(message, file=_OPTION, hint="Write limits.concurrent=4.")
    top, _, rest = key.partition(".")
    path = (top, rest.strip("'\"")) if top in _HOLDS_KEYS and rest else split_key(key)
    if top == "base" and rest:
        message = "--set changes the sweep file; the base has an option of its own."
        raise SpecError(message, file=_OPTION, field=key, hint=f"Write --override {rest}=...")
    try:
        return path, parse_scalar(value, field=key)
    except SpecError as exc:
        raise SpecError(exc.message, file=_OPTION, field=key, hint=exc.hint) from exc


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any, text: str) -> Path:
    """Set the value in place and return the path of what is new: a part that was not there is as a whole."""
    node, new = tree, len(path)
    for depth, part in enumerate(path[:-1], start=1):
        child = node.get(part)
        if part == "backend" and isinstance(child, str):
            child = {"type": child}
        if child is None:
            child, new = {}, min(new, depth)
        if not isinstance(child, Mapping):
            message = f"{text!r} cannot be set: {part} is not a mapping."
            raise SpecError(message, file=_OPTION, field=".".join(path))
        node[part] = dict(child)
        node = node[part]
    if value is None:
        node.pop(path[-1], None)
    else:
        node[path[-1]] = value
    return path[:new]

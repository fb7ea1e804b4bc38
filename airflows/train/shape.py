"""Types of train.yaml: which keys there are and what kind of value each takes. Pure.

A model's fields say their kind in their annotation; everything here is driven by that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Any, NoReturn

from pydantic import BaseModel

from airflows.keys import join_key, nearest
from airflows.scalars import described, go_text
from airflows.yamlio import Document

Path = tuple[str | int, ...]


class Sort(Enum):
    """What kind of value a field takes."""

    TEXT = auto()
    TEXTS = auto()
    TEXT_MAP = auto()
    INTEGER = auto()
    REMOTE = auto()
    OBJECT = auto()
    OBJECTS = auto()
    FREE = auto()


@dataclass(frozen=True, slots=True)
class Kind:
    """The sort of a field, and the model of what is inside where it has one."""

    sort: Sort
    model: type[BaseModel] | None = None

    @property
    def is_open(self) -> bool:
        """Whether any key may be set below it."""
        return self.sort in (Sort.FREE, Sort.TEXT_MAP)


class FieldError(Exception):
    """A value at a path is wrong; turned into a SpecError where the file is known."""

    def __init__(self, path: Path, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.message = message
        self.hint = hint


def fail(path: Path, message: str, hint: str | None = None) -> NoReturn:
    """Raise the `FieldError`."""
    raise FieldError(path, message, hint)


_TEXT = Kind(Sort.TEXT)
_FREE = Kind(Sort.FREE)


@cache
def kinds(model: type[BaseModel]) -> dict[str, Kind]:
    """Return the kind of each field of a model."""
    return {
        name: next(item for item in info.metadata if isinstance(item, Kind))
        for name, info in model.model_fields.items()
    }


def shape(model: type[BaseModel], value: Any, path: Path = ()) -> dict[str, Any]:
    """Return the mapping with known keys only, text as text, integers as int, and no nulls.

    Raises:
        FieldError: a key is unknown or a value has the wrong type; the first in the order of the file.
    """
    known = kinds(model)
    result: dict[str, Any] = {}
    for key, item in _mapping(value, path).items():
        here = (*path, key)
        if key not in known:
            raise unknown(model, here)
        if item is not None:
            result[key] = _value(known[key], item, here)
    return result


def _value(kind: Kind, value: Any, path: Path) -> Any:  # noqa: PLR0911 - one for each sort
    match kind.sort:
        case Sort.TEXT:
            return _text(value, path)
        case Sort.INTEGER:
            return _integer(value, path)
        case Sort.TEXTS:
            return [_text(item, (*path, at)) for at, item in _items(value, path)]
        case Sort.TEXT_MAP:
            return {
                key: "" if item is None else _text(item, (*path, key))
                for key, item in _mapping(value, path).items()
            }
        case Sort.OBJECT:
            return shape(_model(kind), value, path)
        case Sort.OBJECTS:
            return [shape(_model(kind), item, (*path, at)) for at, item in _items(value, path)]
        case Sort.FREE:
            return {key: _plain(item, (*path, key)) for key, item in _mapping(value, path).items()}
        case Sort.REMOTE:
            if not isinstance(value, (str, bool, int, float)):
                fail(path, f"This takes true, false or text, not {described(value)}.")
            return value


def _model(kind: Kind) -> type[BaseModel]:
    assert kind.model is not None  # noqa: S101 - held by the models' own annotations
    return kind.model


def _mapping(value: Any, path: Path) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else go_text(key): item for key, item in value.items()}
    fail(path, f"This takes a mapping, not {described(value)}.")


def _items(value: Any, path: Path) -> Iterator[tuple[int, Any]]:
    if not isinstance(value, (list, tuple)):
        fail(path, f"This takes a list, not {described(value)}.")
    return ((at, item) for at, item in enumerate(value) if item is not None)


def _text(value: Any, path: Path) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return str(value)
    if isinstance(value, (bool, int, float)):
        return go_text(value)
    hint = "Put the text in quotes." if isinstance(value, Mapping) else None
    fail(path, f"This takes text, not {described(value)}.", hint)


def _integer(value: Any, path: Path) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        fail(path, f"This takes a whole number, not {described(value)}.", _unquote(value))
    if isinstance(value, float) and not value.is_integer():
        fail(path, f"This takes a whole number, not {value}.")
    return int(value)


def _unquote(value: Any) -> str | None:
    return "Leave out the quotes." if isinstance(value, str) and value.strip().isdigit() else None


def _plain(value: Any, path: Path) -> Any:
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {key: _plain(item, (*path, key)) for key, item in _mapping(value, path).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, (*path, at)) for at, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        return str(value)
    fail(path, f"A {type(value).__name__} cannot be written to YAML.")


def unknown(model: type[BaseModel], path: Path) -> FieldError:
    """Return the error of a key that its mapping does not have; it names the nearest one, or all."""
    message = f"{path[-1]!r} is not a key of {join_key(path[:-1]) or 'train.yaml'}."
    return FieldError(path, message, _suggestion(model, str(path[-1]), path[:-1]))


def _suggestion(model: type[BaseModel], name: str, above: Path) -> str:
    found = nearest(name, kinds(model))
    if found is not None:
        return f"Did you mean {join_key((*above, found))}?"
    for key, kind in kinds(model).items():
        if kind.sort is Sort.OBJECT and (inner := nearest(name, kinds(_model(kind)))) is not None:
            return f"Did you mean {join_key((*above, key, inner))}?"
    return f"Keys there: {', '.join(sorted(kinds(model)))}."


def keep_text(
    model: type[BaseModel], tree: Any, document: Document, prefix: Path = ()
) -> tuple[Any, set[Path]]:
    """Return the tree with the source text of scalars wherever text belongs, and the paths where that is.

    Nothing is checked: what has the wrong type stays as it is.

    Args:
        model: the model of the tree.
        tree: a plain tree out of `document`.
        document: holds the source text.
        prefix: where the tree begins in the document.
    """
    texts = dict(_text_positions(Kind(Sort.OBJECT, model), tree, prefix))
    return _replaced(
        tree, prefix, {path: document.source(path, value) for path, value in texts.items()}
    ), set(texts)


def _text_positions(kind: Kind, value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    match kind.sort, value:
        case Sort.TEXT, str() | bool() | int() | float():
            yield path, value
        case Sort.TEXTS, list():
            for at, item in enumerate(value):
                yield from _text_positions(_TEXT, item, (*path, at))
        case Sort.TEXT_MAP, dict():
            for key, item in value.items():
                yield from _text_positions(_TEXT, item, (*path, key))
        case Sort.OBJECTS, list():
            for at, item in enumerate(value):
                yield from _text_positions(Kind(Sort.OBJECT, kind.model), item, (*path, at))
        case Sort.OBJECT, dict():
            known = kinds(_model(kind))
            for key in value.keys() & known.keys():
                yield from _text_positions(known[key], value[key], (*path, key))


def takes_text(model: type[BaseModel], parts: tuple[str, ...]) -> bool:
    """Return whether the key at the parts takes text."""
    kind = kinds(model).get(parts[0], _FREE)
    if kind.model is not None and len(parts) > 1:
        return takes_text(kind.model, parts[1:])
    return kind.sort is (Sort.TEXT if len(parts) == 1 else Sort.TEXT_MAP)


def normalised(model: type[BaseModel], parts: tuple[str, ...], value: Any) -> Any:
    """Return a value as `shape` has it at the parts; unchanged where it is of the wrong type."""
    kind = kinds(model).get(parts[0], _FREE)
    if kind.model is not None and len(parts) > 1:
        return normalised(kind.model, parts[1:], value)
    try:
        if len(parts) == 1:
            return value if value is None else _value(kind, value, ())
        return _value(kind, {parts[1]: value}, ())[parts[1]] if kind.sort is Sort.TEXT_MAP else value
    except FieldError:
        return value


def _replaced(value: Any, path: Path, texts: Mapping[Path, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(item, (*path, key), texts) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, (*path, at), texts) for at, item in enumerate(value)]
    return texts.get(path, value)

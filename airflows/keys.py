"""Dotted override keys and the plain trees they point into. Pure, and quick: called a million times.

`parameters.'model.name'` is the key `model.name` under `parameters`; everything else splits on dots.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from airflows.errors import SpecError
from airflows.scalars import described


class _Missing(Enum):
    MISSING = "missing"


MISSING: Final = _Missing.MISSING

_SEGMENT = re.compile(r"""'((?:[^']|'')*)'(?=\.|$)|"([^"]*)"(?=\.|$)|([^.]+)""")
_BARE = re.compile(r"""[^\s.,=\[\]'"](?:[^.,=\[\]]*[^\s.,=\[\]])?""")


@lru_cache(maxsize=4096)
def split_key(key: str) -> tuple[str, ...]:
    """Return the parts of a dotted key; a part in quotes may hold dots.

    Raises:
        SpecError: the key is empty or has an empty part.
    """
    parts: list[str] = []
    at = 0
    while True:
        found = _SEGMENT.match(key, at)
        if found is None:
            message = f"{key!r} is not a key: a part of it is empty."
            raise SpecError(message, field=key or None, hint="Keys look like compute.num_accelerators.")
        single, double, bare = found.groups()
        parts.append(single.replace("''", "'") if single is not None else double if bare is None else bare)
        at = found.end()
        if at == len(key):
            return tuple(parts)
        at += 1


def join_key(parts: Iterable[str | int]) -> str:
    """Return the dotted key of the parts, the inverse of `split_key`; list positions become `[0]`."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            quoted = part if _BARE.fullmatch(part) else "'" + part.replace("'", "''") + "'"
            text += f".{quoted}" if text else quoted
    return text


def get_key(tree: Any, parts: Sequence[str], default: Any = MISSING) -> Any:
    """Return the value at the parts, or `default` where there is none."""
    node = tree
    for part in parts:
        if not isinstance(node, Mapping) or part not in node:
            return default
        node = node[part]
    return node


def set_key(tree: dict[str, Any], parts: Sequence[str], value: Any, *, strict: bool) -> None:
    """Set the value at the parts, in place; a missing or null parent becomes a mapping.

    Args:
        tree: what is changed.
        parts: from `split_key`, not empty.
        value: replaces whatever stood there; mappings are not merged.
        strict: refuse a scalar or list as a parent; otherwise replace it as AI Runtime's CLI does.

    Raises:
        SpecError: `strict`, and a parent is a scalar or a list.
    """
    node = tree
    for depth, part in enumerate(parts[:-1], start=1):
        child = node.get(part)
        if not isinstance(child, dict):
            child = _new_parent(child, parts, depth, strict=strict)
            node[part] = child
        node = child
    node[parts[-1]] = value


def effective(
    tree: Mapping[str, Any], overrides: Mapping[str, Any], *, strict: bool = True
) -> dict[str, Any]:
    """Return the tree with the overrides applied in order; the tree itself stays as it is.

    Branches that no override touches are shared with `tree`, so treat the result as read-only.

    Raises:
        SpecError: `strict`, and an override goes through a scalar or a list.
    """
    result = dict(tree)
    owned: dict[int, dict[str, Any]] = {}
    for key, value in overrides.items():
        parts = split_key(key)
        node = result
        last = len(parts) - 1
        for depth in range(last):
            part = parts[depth]
            child = node.get(part)
            if id(child) not in owned:
                if isinstance(child, dict):
                    child = dict(child)
                else:
                    child = _new_parent(child, parts, depth + 1, strict=strict)
                owned[id(child)] = child
                node[part] = child
            node = child  # type: ignore[assignment]
        node[parts[last]] = value
    return result


def _new_parent(standing: Any, parts: Sequence[str], depth: int, *, strict: bool) -> dict[str, Any]:
    if isinstance(standing, Mapping):
        return dict(standing)
    if strict and standing is not None:
        above, key = join_key(parts[:depth]), join_key(parts)
        message = f"{key} cannot be set: {above} is {described(standing)}, not a mapping."
        raise SpecError(message, field=key, hint=f"Override {above} as a whole, or give it keys in the base.")
    return {}


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the known name that `name` was most likely meant to be, if one is near enough."""
    from difflib import get_close_matches  # noqa: PLC0415 - only an error needs it

    found = get_close_matches(name.lower(), by_lower := {known.lower(): known for known in names}, 1, 0.6)
    return by_lower[found[0]] if found else None

"""Merging the user's pod template into ours, lists of named things by their names. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_KEYS = {"volumeMounts": "mountPath", "ports": "containerPort", "hostAliases": "ip"}
_BY_NAME = frozenset(
    {"containers", "initContainers", "volumes", "env", "imagePullSecrets", "ephemeralContainers"}
)


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Return both, the second winning; null removes a key, as in a strategic merge patch.

    Example:
        >>> merged({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B", "value": "2"}]})
        {'env': [{'name': 'A', 'value': '1'}, {'name': 'B', 'value': '2'}]}
    """
    result = dict(ours)
    for key, value in theirs.items():
        before = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(before, Mapping) and isinstance(value, Mapping):
            result[key] = merged(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            result[key] = _lists(key, before, value)
        else:
            result[key] = value
    return result


def _lists(name: str, ours: Sequence[Any], theirs: Sequence[Any]) -> list[Any]:
    key = "name" if name in _BY_NAME else _KEYS.get(name)
    if name == "tolerations":
        return [*ours, *(each for each in theirs if each not in ours)]
    if key is None:
        return list(theirs)
    rest = {each.get(key): each for each in theirs}
    both = [_item(each, rest.pop(each.get(key), None)) for each in ours]
    return [*both, *rest.values()]


def _item(ours: Mapping[str, Any], theirs: Mapping[str, Any] | None) -> dict[str, Any]:
    if theirs is None:
        return dict(ours)
    # A variable has a value or a reference, not both.
    if "name" in ours and ({"value", "valueFrom"} & set(theirs)):
        ours = {key: value for key, value in ours.items() if key not in {"value", "valueFrom"}}
    return merged(ours, theirs)

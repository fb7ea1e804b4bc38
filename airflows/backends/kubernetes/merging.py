"""Merging the user's pod template into ours, lists of named things by their names. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_KEYS = {"volumeMounts": "mountPath", "ports": "containerPort", "hostAliases": "ip"}
_BY_NAME = frozenset(
    {"containers", "initContainers", "volumes", "env", "imagePullSecrets", "ephemeralContainers"}
)


def unfit(template: Mapping[str, Any]) -> str:
    """Return what in a pod template cannot be merged; empty for nothing.

    Example:
        >>> unfit({"spec": {"containers": [{"name": "main", "env": ["A=1"]}]}})
        'spec.containers.env must be a list of mappings, each with its name'
    """
    for part in ("metadata", "spec"):
        if not isinstance(template.get(part, {}), Mapping):
            return f"{part} must be a mapping"
    return _unfit_lists(template.get("spec", {}), "spec")


def _unfit_lists(tree: Mapping[str, Any], path: str) -> str:
    for name, entries in tree.items():
        key = "name" if name in _BY_NAME else _KEYS.get(str(name))
        if key is None:
            continue
        if not isinstance(entries, list) or not all(_has(each, key) for each in entries):
            return f"{path}.{name} must be a list of mappings, each with its {key}"
        for entry in entries:
            if words := _unfit_lists(entry, f"{path}.{name}"):
                return words
    if not isinstance(tree.get("tolerations", []), list):
        return f"{path}.tolerations must be a list"
    return ""


def _has(entry: Any, key: str) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get(key), str | int)


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

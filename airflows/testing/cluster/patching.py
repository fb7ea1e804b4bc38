"""The four kinds of patches, and what may be changed in an object."""

from __future__ import annotations

import copy
import json
from typing import Any

from airflows.testing.cluster.kinds import Kind
from airflows.testing.cluster.messages import ApiError, Cause, Json, bad_request, bad_value, invalid

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
_BY_NAME = ("containers", "initContainers", "volumes", "env", "imagePullSecrets", "conditions")


def patched(found: Json, patch: Any, content_type: str) -> Json:
    """Return an object with a patch applied; what the server alone may change is as it was.

    Raises:
        ApiError: 400 for a patch that does not fit, 415 for one of an unknown type.
    """
    before = copy.deepcopy(found)
    if content_type in (MERGE, APPLY):
        changed = _merged(before, patch)
    elif content_type == STRATEGIC:
        changed = _merged(before, patch, by_name=True)
    elif content_type == JSON_PATCH:
        changed = _operated(before, patch)
    else:
        known = f"{JSON_PATCH}, {MERGE}, {APPLY}, {STRATEGIC}"
        message = f"the body of the request was in an unknown format - accepted media types include: {known}"
        raise ApiError(415, "UnsupportedMediaType", message)
    if not isinstance(changed, dict):
        message = "the patch does not leave an object"
        raise bad_request(message)
    return changed


def check_update(before: Json, after: Json, kind: Kind) -> None:
    """Refuse a change of what is fixed.

    Raises:
        ApiError: 422.
    """
    causes: list[Cause] = []
    if kind.kind == "Job":
        causes = _job_changes(before["spec"], after.get("spec") or {}, before.get("status") or {})
    elif kind.kind in ("ConfigMap", "Secret") and before.get("immutable"):
        causes = [
            Cause(name, "Forbidden: field is immutable when `immutable` is set", "FieldValueForbidden")
            for name in ("data", "binaryData", "immutable")
            if before.get(name) != after.get(name)
        ]
    elif kind.kind == "Service" and before["spec"].get("clusterIP") != after["spec"].get("clusterIP"):
        causes = [bad_value("spec.clusterIPs[0]", after["spec"].get("clusterIP"), "may not change once set")]
    if causes:
        raise invalid(kind.kind, kind.group, before["metadata"]["name"], causes)


def _job_changes(before: Json, after: Json, status: Json) -> list[Cause]:
    fixed = [
        "completionMode",
        "selector",
        "podFailurePolicy",
        "successPolicy",
        "backoffLimitPerIndex",
        "managedBy",
    ]
    if before.get("completions") != after.get("completions") and (
        before.get("completionMode") != "Indexed" or after.get("completions") != after.get("parallelism")
    ):
        fixed.append("completions")
    causes = [
        bad_value(f"spec.{name}", after.get(name), "field is immutable")
        for name in fixed
        if before.get(name) != after.get(name)
    ]
    is_unstarted = before.get("suspend") and not status.get("startTime")
    if before.get("template") != after.get("template") and not is_unstarted:
        causes.append(bad_value("spec.template", "…", "field is immutable"))
    return causes


def _merged(target: Any, patch: Any, *, by_name: bool = False) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif by_name and name in _BY_NAME and isinstance(merged.get(name), list):
            merged[name] = _list_merged(merged[name], value)
        else:
            merged[name] = _merged(merged.get(name), value, by_name=by_name)
    return merged


def _list_merged(target: list[Any], patch: list[Any]) -> list[Any]:
    merged = list(target)
    for item in patch:
        known = [old.get("name", old.get("type")) for old in merged]
        name = item.get("name", item.get("type"))
        if item.get("$patch") == "delete":
            merged = [old for old in merged if old.get("name", old.get("type")) != name]
        elif name in known:
            at = known.index(name)
            merged[at] = _merged(merged[at], item, by_name=True)
        else:
            merged.append(item)
    return merged


def _operated(target: Json, operations: Any) -> Json:
    try:
        for operation in operations:
            _operate(target, operation)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as exc:
        message = f"the server rejected our request due to an error in our request: {exc!r}"
        raise ApiError(422, "Invalid", message) from None
    return target


def _operate(target: Any, operation: Json) -> None:
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
    for part in parents:
        target = target[int(part)] if isinstance(target, list) else target[part]
    word = operation["op"]
    if isinstance(target, list):
        at = len(target) if last == "-" else int(last)
        if word == "add":
            target.insert(at, operation["value"])
            return
        last_key: Any = at
    else:
        last_key = last
    if word == "test":
        if target[last_key] != operation["value"]:
            message = f"testing path {operation['path']} failed: {json.dumps(target[last_key])}"
            raise ValueError(message)
    elif word == "remove":
        del target[last_key]
    elif word in ("add", "replace"):
        if word == "replace":
            # What is replaced must be there.
            target.pop(last_key)
        target[last_key] = operation["value"]
    else:
        message = f"operation {word} is not known"
        raise ValueError(message)

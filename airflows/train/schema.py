"""The schema of train.yaml: as a question (is this a key?), and as a JSON Schema for editors. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from airflows.errors import SpecError
from airflows.keys import split_key
from airflows.train.model import TrainConfig
from airflows.train.shape import Kind, Sort, kinds, unknown

_SCALAR = ["string", "number", "boolean"]


def check_key(key: str, *, file: str | None = None, line: int | None = None) -> tuple[str, ...]:
    """Return the parts of a dotted override key that train.yaml has; below free-form maps anything goes.

    Raises:
        SpecError: there is no such key; it names the nearest one.
    """
    parts = split_key(key)
    model: type[BaseModel] = TrainConfig
    for depth, part in enumerate(parts, start=1):
        kind = kinds(model).get(part)
        if kind is None:
            problem = unknown(model, parts[:depth])
            raise SpecError(problem.message, file=file, line=line, field=key, hint=problem.hint)
        if depth == len(parts) or kind.is_open:
            break
        if kind.model is None:
            message = f"{part} is not a nested object, so it has no key {parts[depth]!r}."
            raise SpecError(message, file=file, line=line, field=key)
        model = kind.model
    return parts


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of train.yaml: types, keys and what can be said of one value alone."""
    definitions: dict[str, Any] = {}
    root = _object(TrainConfig, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "train.yaml",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _object(model: type[BaseModel], definitions: dict[str, Any]) -> dict[str, Any]:
    known = kinds(model)
    properties = {
        name: _property(known[name], info, definitions) for name, info in model.model_fields.items()
    }
    required = [name for name, info in model.model_fields.items() if info.is_required()]
    schema: dict[str, Any] = {
        "description": (model.__doc__ or "").partition("\n")[0],
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }
    if required:
        schema["required"] = required
    extra = model.model_config.get("json_schema_extra")
    return {**schema, **extra} if isinstance(extra, dict) else schema


def _property(kind: Kind, info: FieldInfo, definitions: dict[str, Any]) -> dict[str, Any]:
    null = [] if info.is_required() else ["null"]
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    return {"description": info.description, **_value(kind, null, definitions), **extra}


def _value(  # noqa: PLR0911 - one for each sort
    kind: Kind, null: list[str], definitions: dict[str, Any]
) -> dict[str, Any]:
    scalar = {"type": [*_SCALAR, "null"]}
    match kind.sort:
        case Sort.TEXT:
            return {"type": [*_SCALAR, *null]}
        case Sort.INTEGER:
            return {"type": ["integer", *null]}
        case Sort.TEXTS:
            return {"type": ["array", *null], "items": scalar}
        case Sort.TEXT_MAP:
            return {"type": ["object", *null], "additionalProperties": scalar}
        case Sort.FREE:
            return {"type": ["object", *null]}
        case Sort.REMOTE:
            return {"enum": [False, "", None]}
        case Sort.OBJECT:
            reference = _reference(kind, definitions)
            return {"anyOf": [reference, {"type": "null"}]} if null else reference
        case Sort.OBJECTS:
            return {"type": ["array", *null], "items": _reference(kind, definitions)}


def _reference(kind: Kind, definitions: dict[str, Any]) -> dict[str, Any]:
    if kind.model is None:
        return {}
    name = kind.model.__name__
    if name not in definitions:
        definitions[name] = _object(kind.model, definitions)
    return {"$ref": f"#/$defs/{name}"}

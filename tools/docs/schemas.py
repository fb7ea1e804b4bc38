"""Tables of keys made of JSON Schemas."""

# ruff: noqa: INP001

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "pattern": "like `{}`",
}
FORMS = 2
"""A value of more forms is told in sections of its own."""
# What every text and list has says nothing.
_DULL = {("minLength", 1)}


def page(title: str, about: str, schema: Schema) -> str:
    """Return the page of a file: its own keys, then those of each part."""
    return f"# {title}\n\n{about}\n\n{_table(schema, schema)}\n" + "\n".join(_parts(schema, schema, 2))


def section(name: str, schema: Schema) -> str:
    """Return the part of a page about one of several models."""
    about = schema.get("description", "")
    parts = "\n".join(_parts(schema, schema, 3, name))
    return f"## {name}\n\n{about}\n\n{_table(schema, schema)}\n{parts}"


def _parts(schema: Schema, root: Schema, level: int, above: str = "") -> Iterator[str]:
    """Yield a section for each key whose value is a mapping of known keys, and for those in it."""
    for key, value in schema.get("properties", {}).items():
        for part, address in _mappings(value, root, f"{above}.{key}" if above else key):
            about = part.get("description", value.get("description", ""))
            yield f"{'#' * level} `{address}`\n\n{about}\n\n{_table(part, root)}"
            yield from _parts(part, root, level, address)


def _mappings(value: Schema, root: Schema, address: str) -> Iterator[tuple[Schema, str]]:
    value = _resolved(value, root)
    if "properties" in value:
        yield value, address
    for branch in value.get("anyOf", []):
        inner = _resolved(branch, root)
        # The forms of one value, such as those of a domain, are told apart by their keys.
        if "properties" in inner and (branch.get("$ref") or len(inner["properties"]) > 1):
            yield inner, address
    if isinstance(value.get("items"), Mapping):
        yield from _mappings(value["items"], root, f"{address}[]")
    if isinstance(value.get("additionalProperties"), Mapping):
        forms = list(_mappings(value["additionalProperties"], root, f"{address}.KEY"))
        for form, at in forms:
            keys = ", ".join(key for key in form["properties"] if key != "when")
            yield form, at if len(forms) == 1 else f"{at}: {{{keys}}}"


def _table(schema: Schema, root: Schema) -> str:
    required = set(schema.get("required", ()))
    rows = ["| key | takes | default | |", "|---|---|---|---|"]
    for key, value in schema.get("properties", {}).items():
        if not value:
            continue
        default = "**required**" if key in required else _default(value, root)
        about = value.get("description") or _resolved(value, root).get("description", "")
        rows.append(f"| `{key}` | {_cell(_kind(value, root))} | {default} | {_cell(about)} |")
    return "\n".join(rows) + "\n"


def _default(value: Schema, root: Schema) -> str:
    default = value.get("default")
    if default is None or (default in ({}, []) and "properties" in _resolved(value, root)):
        return ""
    return _code(default)


def _kind(value: Schema, root: Schema) -> str:
    """Return the words for what a key takes."""
    if "$ref" in value or "allOf" in value:
        return _kind(_resolved(value, root), root)
    if "const" in value:
        return _code(value["const"])
    if "enum" in value:
        return ", ".join(_code(item) for item in value["enum"] if item is not None)
    if "anyOf" in value and "properties" not in value:
        words = [_kind(branch, root) for branch in value["anyOf"] if branch.get("type") != "null"]
        return " or ".join(dict.fromkeys(words))
    return _plain_kind(value, root)


def _plain_kind(value: Schema, root: Schema) -> str:
    kinds = value.get("type", "any value")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    words = {"string": "text", "object": "mapping", "array": "list", "boolean": "true, false"}
    made = " or ".join(words.get(kind, kind) for kind in kinds if kind != "null")
    inner = value.get("items") if "array" in kinds else value.get("additionalProperties")
    if isinstance(inner, Mapping) and len(inner.get("anyOf", ())) > FORMS:
        made += ", each value in one of the forms below"
    elif isinstance(inner, Mapping) and inner and made in {"list", "mapping"}:
        made += f" of {_kind(inner, root)}"
    if "examples" in value:
        return made + " such as " + ", ".join(_code(example) for example in value["examples"])
    bounds = [
        text.format(value[name])
        for name, text in _BOUNDS.items()
        if name in value and (name, value[name]) not in _DULL
    ]
    return ", ".join([made, *bounds])


def _resolved(value: Schema, root: Schema) -> Schema:
    """Return a schema with its reference followed; what stands beside the reference wins."""
    if len(value.get("allOf", ())) == 1:
        value = {**value["allOf"][0], **{key: item for key, item in value.items() if key != "allOf"}}
    if "$ref" not in value:
        return value
    target = root["$defs"][value["$ref"].rsplit("/", 1)[1]]
    return {**target, **{key: item for key, item in value.items() if key != "$ref"}}


def _code(value: Any) -> str:
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")

"""The winner as words of a command line. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any


def override_words(overrides: Mapping[str, Any]) -> list[str]:
    """Return the `--override` options that set these."""
    return [f"--override {shlex.quote(f'{key}={_yaml_value(value)}')}" for key, value in overrides.items()]


def _yaml_value(value: Any) -> str:
    """Return a value as `--override` reads it, on one line."""
    from airflows.yamlio import dump  # noqa: PLC0415 - the command's help does without YAML

    if isinstance(value, str) and not value.isprintable():
        return _quoted(value)
    if isinstance(value, (Mapping, list)):
        return _flow(value)
    return dump({"value": value}).removeprefix("value:").strip()


def _flow(value: Any) -> str:
    """Return a value inside brackets, where text needs quotes for its commas alone."""
    match value:
        case str():
            return _quoted(value)
        case Mapping():
            return "{" + ", ".join(f"{_quoted(key)}: {_flow(item)}" for key, item in value.items()) + "}"
        case list():
            return f"[{', '.join(map(_flow, value))}]"
        case _:
            return _yaml_value(value)


def _quoted(text: str) -> str:
    # JSON leaves characters as they are that YAML takes for line ends, or not at all.
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in quoted)

"""The text of the files that are written: YAML that people like to read and change. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from airflows import yamlio

_WIDTH = 100
_IN_ONE_LINE = frozenset({"limits", "backend", "search", "objective", "stop"})


def train_text(tree: Mapping[str, Any], name: str) -> str:
    """Return a train.yaml.

    Args:
        tree: what it holds.
        name: the script it comes from.
    """
    parts = [f"# From {_plain(name)}, by airflows migrate.\n"]
    for key, value in tree.items():
        parts.append(_block(key, value) if key == "command" else yamlio.dump({key: value}))
    return "".join(parts)


def _block(key: str, text: str) -> str:
    """Return a text as a literal block, also with tabs and blanks at line ends, which scripts have."""
    lines = text.split("\n")
    is_plain = all(line.replace("\t", " ").isprintable() for line in lines)
    if not is_plain or lines[0][:1] in ("", " ", "\t") or not lines[-1].strip():
        return yamlio.dump({key: text})
    return f"{key}: |-\n" + "".join(f"  {line}\n" if line else "\n" for line in lines)


def sweep_text(tree: Mapping[str, Any], name: str) -> str:
    """Return a sweep.yaml; see `train_text`."""
    parts = [f"# From {_plain(name)}, by airflows migrate.\n"]
    if "objective" not in tree:
        parts = [f"# From {_plain(name)}, by airflows migrate. For a winner add what is best:\n"]
        parts.append("# objective: {metric: METRIC, goal: minimize}\n")
    for key, value in tree.items():
        if key == "space":
            parts.append("space:\n")
            parts += [
                f"  {_scalar(axis)}: {_flow(values, len(axis) + 4)}\n" for axis, values in value.items()
            ]
        elif key in _IN_ONE_LINE and isinstance(value, Mapping) and _fits(value, len(key) + 2):
            parts.append(f"{key}: {_inline(value)}\n")
        else:
            parts.append(yamlio.dump({key: value}))
    return "".join(parts)


def one_run(tree: Mapping[str, Any], backend: Mapping[str, Any]) -> list[str]:
    """Return the lines of a sweep.yaml that runs a train.yaml once, with settings of a backend."""
    name = str(tree["experiment_name"])[:64]
    return [f"name: {name}", "base: train.yaml", "include: [{}]", f"backend: {_inline(backend)}"]


def _plain(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _scalar(value: Any) -> str:
    return yamlio.dump(value).removesuffix("\n").removesuffix("\n...")


def _inline(value: Any) -> str:
    """Return a value in one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    text = _scalar(value)
    if "\n" in text:
        quoted = yaml.safe_dump(value, default_style='"', allow_unicode=True, width=1 << 30)
        return str(quoted).removesuffix("\n")
    is_bare = isinstance(value, str) and text == value
    # In flow style these would end a plain text.
    return (
        "'" + value.replace("'", "''") + "'"
        if is_bare and any(char in value for char in ",[]{}:#&*!|>%@`?")
        else text
    )


def _flow(value: Any, indent: int) -> str:
    """Return a domain: in one line where it fits, else with a line for each value."""
    text = _inline(value)
    if len(text) + indent <= _WIDTH or not isinstance(value, list):
        return text
    return "\n" + "\n".join(f"    - {_inline(item)}" for item in value)


def _fits(value: Any, indent: int) -> bool:
    return len(_inline(value)) + indent <= _WIDTH

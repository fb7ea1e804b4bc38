"""The page about the Python API, made of signatures and docstrings (Google form)."""

# ruff: noqa: INP001

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import airflows

ABOUT = """# Python

The same as files and commands, as functions and objects. `import airflows` costs nothing: what is behind
a name is imported when it is used.
"""
_SECTION = re.compile(
    r"^(Args|Attributes|Returns|Yields|Raises|Example):\n((?:(?:    .*)?\n?)*)", re.MULTILINE
)
_ENTRY = re.compile(r"^    (\S[^:\n]*):[ \n](.*(?:\n(?:     .*)?)*)", re.MULTILINE)

_STARS: Mapping[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def page() -> str:
    """Return the page: the names of `airflows`, then those for training code."""
    names = [name for name in airflows.__all__ if name != "__version__"]
    functions = [name for name in names if not isinstance(getattr(airflows, name), type)]
    classes = [name for name in names if name not in functions]
    made = [ABOUT]
    made += [_entry(f"airflows.{name}", getattr(airflows, name)) for name in [*functions, *classes]]
    runtime = import_module("airflows.runtime")
    made.append(f"# In training code: airflows.runtime\n\n{_prose(inspect.getdoc(runtime) or '')}\n")
    made += [_entry(f"airflows.runtime.{name}", thing) for name, thing in _public(runtime)]
    return "\n".join(made)


def _public(module: ModuleType) -> list[tuple[str, Any]]:
    """Return the functions and classes that a module defines for others."""
    own = [pair for pair in vars(module).items() if getattr(pair[1], "__module__", "") == module.__name__]
    return [(name, thing) for name, thing in own if not name.startswith("_")]


def _entry(name: str, thing: Any) -> str:
    head = f"## {name}\n\n{_signature(name, thing)}{_prose(inspect.getdoc(thing) or '')}\n"
    return head + ("".join(_members(thing)) if isinstance(thing, type) else "")


def _members(kind: type) -> list[str]:
    made = []
    for name, member in list(vars(kind).items()):
        target = getattr(member, "__func__", member)
        text = inspect.getdoc(target)
        if name.startswith("_") or not text or not (callable(target) or isinstance(target, property)):
            continue
        is_property = isinstance(target, property)
        made.append(f"\n### {kind.__name__}.{name}\n\n")
        made.append(f"{'' if is_property else _signature(name, target)}{_prose(text)}\n")
    return made


def _signature(name: str, thing: Any) -> str:
    if isinstance(thing, type) and issubclass(thing, BaseException):
        return ""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    parameters = [p for p in signature.parameters.values() if p.name not in {"self", "cls"}]
    if isinstance(thing, type) and all(p.kind in _STARS for p in parameters):
        # A model's or a protocol's own: its fields are told elsewhere.
        return ""
    returns = "" if isinstance(thing, type) else f" -> {_annotation(signature.return_annotation)}"
    return f"```python\n{name}({', '.join(_parameters(parameters))}){returns}\n```\n\n"


def _parameters(parameters: list[inspect.Parameter]) -> list[str]:
    """Return them as written, with the star before those that must be named."""
    made: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not any(text.startswith("*") for text in made):
            made.append("*")
        text = f"{_STARS.get(parameter.kind, '')}{parameter.name}: {_annotation(parameter.annotation)}"
        made.append(text if parameter.default is parameter.empty else f"{text} = {parameter.default!r}")
    return made


def _annotation(kind: Any) -> str:
    return kind if isinstance(kind, str) else inspect.formatannotation(kind)


def _prose(text: str) -> str:
    """Return a docstring as Markdown."""
    return _SECTION.sub(_section, text + "\n").strip() + "\n"


def _section(found: re.Match[str]) -> str:
    title, body = found[1], found[2].rstrip()
    if title == "Example":
        code = re.sub(r" *# doctest: \+\w+", "", inspect.cleandoc(body))
        return f"```pycon\n{code}\n```\n\n"
    entries = _ENTRY.findall(body + "\n")
    if not entries:
        return f"*{title}*: {inspect.cleandoc(body)}\n\n"
    rows = "\n".join(f"- `{name}`: {' '.join(about.split())}" for name, about in entries)
    return f"*{title}*\n\n{rows}\n\n"

"""What people see of overrides, trees and command lines: without secrets. Pure.

A secret is what an address holds as a password, and the value of what is called like one: `HF_TOKEN`,
`parameters.api_key`, `--api-key=`. A number by such a name is a size, as of `max_tokens`, but for variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflows.addresses import HIDDEN, hidden, is_secret_name
from airflows.yamlio import dump, parse

_VARIABLES = "env_variables"
# What is under these names says where a secret is kept.
_REFERENCES = frozenset({"secrets", "tracking_secret", "image_pull_secrets"})
_OPTION = re.compile(
    r"(?P<begin>--(?P<option>[\w.-]+)(?:=|[ \t]+(?!-))|(?<![\w.-])(?P<name>[A-Za-z_][\w.-]*)=)"
    r"""(?P<value>"[^"]*"|'[^']*'|[^\s,;"']+)"""
)
_NUMBER = re.compile(r"[+-]?[\d.]+(?:[eE][+-]?\d+)?")


def public_text(text: str) -> str:
    """Return a text without the passwords of addresses and the values of options called like secrets."""
    text = hidden(text)
    return _OPTION.sub(_public_option, text) if "=" in text or "--" in text else text


def public_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return overrides without the secrets in them."""
    return {key: _public_item(key, value) for key, value in overrides.items()}


def public_tree(tree: Any, *, is_variables: bool = False) -> Any:
    """Return a tree, such as a sweep file, without the secrets in it."""
    match tree:
        case str():
            return public_text(tree)
        case Mapping():
            return {
                key: _public_item(f"{_VARIABLES}.{key}" if is_variables else str(key), value)
                for key, value in tree.items()
            }
        case list() | tuple():
            return [public_tree(item) for item in tree]
        case _:
            return tree


def public_parameters(tree: Any) -> Any:
    """Return a tree of `parameters` without the secrets in it: no name there says where a secret is kept."""
    match tree:
        case Mapping():
            return {
                key: _masked(value, numbers=False) if is_secret_name(str(key)) else public_parameters(value)
                for key, value in tree.items()
            }
        case list() | tuple():
            return [public_parameters(item) for item in tree]
        case _:
            return public_tree(tree)


def public_source(source: str) -> str:
    """Return a sweep file without the secrets in it."""
    tree = parse(source, file="sweep", dialect="sweep").value
    shown = public_tree(tree)
    return source if shown == tree else dump(shown)


def _public_item(key: str, value: Any) -> Any:
    if key in _REFERENCES or key.startswith("secrets."):
        return value
    if any(map(is_secret_name, key.split("."))):
        return _masked(value, numbers=key.startswith(f"{_VARIABLES}."))
    if key.startswith("parameters."):
        return public_parameters(value)
    return public_tree(value, is_variables=key == _VARIABLES)


def _masked(value: Any, *, numbers: bool) -> Any:
    """Return a value with its texts hidden, of variables also its numbers."""
    match value:
        case Mapping():
            return {key: _masked(item, numbers=numbers) for key, item in value.items()}
        case list() | tuple():
            return [_masked(item, numbers=numbers) for item in value]
        case None | bool():
            return value
        case int() | float() if not numbers:
            return value
        case _:
            return HIDDEN


def _public_option(found: re.Match[str]) -> str:
    name = (found["option"] or found["name"]).rpartition(".")[2]
    if not is_secret_name(name) or _NUMBER.fullmatch(found["value"]) or found["value"].startswith("$"):
        return found[0]
    return f"{found['begin']}{HIDDEN}"

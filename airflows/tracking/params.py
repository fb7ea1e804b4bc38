"""A trial's overrides and parameters as MLflow params: flat, valid keys, nothing cut without a word. Pure.

MLflow 3.17 cuts a param's value after 6,000 characters with no more than a log line, and refuses keys
over 250 characters, keys with other characters than letters, digits, `_ - . : /` and space, and keys that
are not their own normal form as a path. Whatever does not fit is kept whole in an artifact.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflows.hiding import public_overrides, public_parameters
from airflows.ids import canonical_json

ARTIFACT = "airflows/overrides.json"
MOST_CHARACTERS = 6000
_MOST_KEY_CHARACTERS = 250
_MOST_PARAMS = 1000
_PREVIEW_CHARACTERS = 500
_MARK_CHARACTERS = 12
_OTHER_CHARACTERS = re.compile(r"[^/\w.\- :]")
_QUOTES = re.compile(r"['\"]")


@dataclass(frozen=True, slots=True)
class Params:
    """What is logged of a trial.

    Attributes:
        values: param key to text.
        artifact: JSON of all overrides and parameters, when the params do not hold them whole; else empty.
    """

    values: dict[str, str]
    artifact: str = ""


def flatten(overrides: Mapping[str, Any], parameters: Mapping[str, Any]) -> Params:
    """Return the params of a trial: its overrides under their dotted keys, then the other `parameters`.

    All keys start as in train.yaml (`parameters.lr`), so that training code may log an `lr` of its own.
    Secrets are hidden: whoever may read the runs need not know them.
    """
    overrides, parameters = public_overrides(overrides), public_parameters(parameters)
    leaves = dict(overrides)
    for key, value in _leaves(parameters, "parameters"):
        leaves.setdefault(key, value)
    whole = len(leaves) <= _MOST_PARAMS
    values: dict[str, str] = {}
    for key, name in _valid_keys(list(leaves)[:_MOST_PARAMS]):
        text = _text(leaves[key])
        whole = whole and name == key and len(text) <= MOST_CHARACTERS
        values[name] = text if len(text) <= MOST_CHARACTERS else _preview(text)
    if whole:
        return Params(values)
    return Params(values, canonical_json({"overrides": overrides, "parameters": parameters}))


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        key = f"{prefix}.'{name}'" if "." in str(name) else f"{prefix}.{name}"
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, key)
        else:
            yield key, value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return repr(value) if type(value) in {int, float} else canonical_json(value)


def _preview(text: str) -> str:
    return f"{text[:_PREVIEW_CHARACTERS]}… ({len(text)} characters, whole in the artifact {ARTIFACT})"


def _valid_keys(keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (key, a key that MLflow takes), no two alike; keys that it takes as they are keep their names."""
    taken = {key for key in keys if _is_valid(key)}
    for key in keys:
        if _is_valid(key):
            yield key, key
            continue
        name = _OTHER_CHARACTERS.sub("_", _QUOTES.sub("", key))
        if name in taken or not _is_valid(name):
            mark = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()[:_MARK_CHARACTERS]
            name = f"{name.replace('/', '_').lstrip('.')[: _MOST_KEY_CHARACTERS - 20]}-{mark}"
        taken.add(name)
        yield key, name


def _is_valid(key: str) -> bool:
    normal = posixpath.normpath(key)
    is_path = normal == key and key != "." and not key.startswith(("..", "/"))
    return is_path and len(key) <= _MOST_KEY_CHARACTERS and not _OTHER_CHARACTERS.search(key)

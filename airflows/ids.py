"""Identity: canonical JSON, digests, sweep and trial ids, attempt tokens. Pure.

An id comes out the same after a crash, on another machine and under another hash seed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NewType

from airflows.errors import SpecError

SweepId = NewType("SweepId", str)
Token = NewType("Token", str)

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_SLUG_CHARS = 20
_TRIAL_PATTERN = re.compile(
    r"(?P<sweep>[A-Za-z0-9][A-Za-z0-9_-]*)(?:/(?P<number>\d{1,9})(?:\.(?P<attempt>\d{1,9}))?)?", re.ASCII
)
_TOKEN_PATTERN = re.compile(r"[a-z][a-z0-9-]*-[0-9a-f]{6}-(?P<number>\d{4,})-a(?P<attempt>\d+)", re.ASCII)


def canonical_json(value: object) -> str:
    """Return the one JSON text of a tree of mappings, lists and scalars.

    Keys are sorted as text, floats keep Python's shortest form, so `0.10` and `0.1` agree while `1`
    and `1.0` differ (a domain decides which of the two a value is).
    """
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _plain(value: object) -> Any:
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def digest(value: object) -> str:
    """Return the SHA-256 of the canonical JSON, 64 lower-case hex characters."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def sweep_id(name: str, definition_digest: str, instance: str = "") -> SweepId:
    """Return `name-xxxxxx`: the name and six hex of the digest of definition, name and instance.

    Args:
        name: the sweep's name, 1 to 64 characters of `NAME_PATTERN`.
        definition_digest: digest of what makes the sweep's points what they are.
        instance: what tells two sweeps of one definition apart, empty for the first.
    """
    return SweepId(f"{name}-{digest([definition_digest, name, instance])[:6]}")


def token(sweep: SweepId, number: int, attempt: int) -> Token:
    """Return an attempt's token: at most 45 characters for numbers below 10^8, DNS-label safe.

    It names the attempt in every outside system (job name, idempotency key, directory, run name).
    """
    name, _, hex6 = sweep.rpartition("-")
    return Token(f"{slug(name)}-{hex6}-{number:04d}-a{attempt}")


def slug(name: str) -> str:
    """Return the name in lower case with `-` for `_`, starting with a letter, at most 20 characters."""
    text = name.lower().replace("_", "-")
    if not text[:1].isalpha():
        text = f"s{text}"
    return text[:_SLUG_CHARS].rstrip("-")


def parse_token(text: str) -> tuple[int, int]:
    """Return (number, attempt) of a token.

    Raises:
        ValueError: the text is not a token.
    """
    found = _TOKEN_PATTERN.fullmatch(text)
    if found is None:
        message = f"{text!r} is not an attempt's token"
        raise ValueError(message)
    return int(found["number"]), int(found["attempt"])


def parse_id(text: str) -> tuple[str, int | None, int | None]:
    """Split `SWEEP`, `SWEEP/12` or `SWEEP/12.0` into (sweep, number, attempt).

    Raises:
        SpecError: the text has another form.
    """
    found = _TRIAL_PATTERN.fullmatch(text)
    if found is None:
        message = f"{text!r} is not an id."
        raise SpecError(message, hint="Ids look like SWEEP, SWEEP/12 or SWEEP/12.0; see `airflows list`.")
    number, attempt = found["number"], found["attempt"]
    return found["sweep"], None if number is None else int(number), None if attempt is None else int(attempt)

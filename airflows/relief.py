"""What `retry.on_out_of_memory` makes of a trial's further attempts, and how that is written down. Pure.

The event with which such an attempt begins names the values. Nothing else records them: the overrides of the
trial stay those that were searched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflows.ids import canonical_json

PREFIX = "an earlier attempt ran out of memory, so with "


def relief_words(changed: Mapping[str, Any]) -> str:
    """Return the detail of the event with which an attempt begins that has other values; empty for none."""
    return f"{PREFIX}{canonical_json(dict(changed))}" if changed else ""


def relief_in(detail: str) -> dict[str, Any]:
    """Return the other values of an attempt from the detail of the event with which it began."""
    if not detail.startswith(PREFIX):
        return {}
    # Further words may follow.
    found: dict[str, Any] = json.JSONDecoder().raw_decode(detail, len(PREFIX))[0]
    return found


def relief_note(changed: Mapping[str, Any]) -> str:
    """Return how a result with other values than were searched is marked; empty when it has none."""
    if not changed:
        return ""
    values = ", ".join(f"{key} = {canonical_json(value)}" for key, value in changed.items())
    return f"ran out of memory, then ran with {values}"

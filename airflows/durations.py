"""Durations as people write them: `90s`, `15m`, `12h`, `3d`, `1h30m`. Pure."""

from __future__ import annotations

import re

PATTERN = r"^(?=\d)(\d+d)?(\d+h)?(\d+m)?(\d+s)?$"
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_FORM = re.compile(r"(?=\d)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)


def parse_duration(text: object) -> float:
    """Return the seconds of a duration.

    Raises:
        ValueError: the value is no duration.

    Example:
        >>> parse_duration("1h30m")
        5400.0
    """
    found = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        message = (
            f"{text!r} is not a duration. Write a number with its unit, such as 90s, 15m, 12h, 3d or 1h30m."
        )
        raise ValueError(message)
    seconds = sum(
        int(number) * each for number, each in zip(found.groups(default="0"), _SECONDS.values(), strict=True)
    )
    return float(seconds)

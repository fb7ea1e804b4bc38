"""Times and durations as people and documents read them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def to_iso(at: float | None) -> str | None:
    """Return seconds since the epoch as ISO 8601 UTC, such as `2026-01-31T08:00:00Z`; None stays None."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def human_duration(seconds: float) -> str:
    """Return a short duration, such as `45s`, `12m05s`, `3h07m` or `2d04h`."""
    whole = round(seconds)
    minutes, secs = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02d}h"
    if hours:
        return f"{hours}h{minutes:02d}m"
    if minutes:
        return f"{minutes}m{secs:02d}s"
    return f"{whole}s"

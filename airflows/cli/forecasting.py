"""What a sweep has cost and how far it will come within its limits, as `get` and `watch` tell it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflows.report.accounting import Standing, forecast
from airflows.report.packed import gain_text
from airflows.times import human_duration

if TYPE_CHECKING:
    from airflows.engine.results import SweepResults
    from airflows.ledger import Ledger, SweepRow


def forecast_of(
    ledger: Ledger, row: SweepRow, results: SweepResults, now: float | None = None
) -> dict[str, Any] | None:
    """Return how far a sweep comes at this pace; None when nobody drives it, or when nothing is known."""
    from airflows.cli.lookup import driver_of  # noqa: PLC0415 - help and tables do without
    from airflows.engine.following import time_limits  # noqa: PLC0415

    now = time.time() if now is None else now
    if row.ended_at is not None or row.total is None or driver_of(row, now) is None:
        return None
    began = row.resumed_at or row.created_at
    # A driver that takes a sweep up as it was does not resume it; while there was none, nothing ended.
    driven = max(began, row.lease_since or began)
    standing = Standing(
        # Not those of the results, which may be some seconds old: all figures must be of one moment.
        ended=sum(count for state, count in ledger.counts(row.id).items() if state.is_final),
        total=row.total,
        elapsed_s=now - began,
        ended_since=ledger.ended_since(row.id, driven),
        accelerator_s=sum(ledger.accelerator_seconds(row.id).values()),
        driven_s=now - driven,
    )
    found = forecast(standing, time_limits(results.sweep.spec))
    return None if found is None else found.to_dict()


def forecast_text(document: Mapping[str, Any] | None) -> str:
    """Return `at this pace 143 of 200 within limits.wall_time`, empty where nothing is known."""
    if document is None:
        return ""
    if document["limit"] is None:
        return f"at this pace all {document['total']} in about {human_duration(document['left_s'])}"
    return f"at this pace {document['trials']} of {document['total']} within {document['limit']}"


def cost_fields(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a sweep, a trial or an attempt has cost, as names and texts; none when it never ran."""
    hours = document["accelerator_hours"]
    waited, ran = document["queue_s"], document["run_s"]
    if not (waited or ran):
        return []
    packing = document.get("packing")
    return [
        ("time", f"{human_duration(waited)} in queues, {human_duration(ran)} running"),
        ("accelerator-hours", f"{hours['useful']:.3g} useful, {hours['lost']:.3g} lost"),
        *([("packed", gain_text(packing))] if packing else ()),
    ]

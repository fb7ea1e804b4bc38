"""Where the trials of a sweep on several places ran, and what each place took."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflows.cli.table import number_text, table
from airflows.cli.terminal import Style
from airflows.home import home_directory
from airflows.report.places import spent_by_place
from airflows.times import human_duration

if TYPE_CHECKING:
    from airflows.documents import Document
    from airflows.ledger import AttemptRow, Ledger, SweepRow
    from airflows.preview import Hours

_SEVERAL = "burst"


def places_of(
    ledger: Ledger, row: SweepRow, attempts: Sequence[AttemptRow] | None = None
) -> list[Document] | None:
    """Return what each place was for a sweep; None for one that runs in a single place."""
    if row.backend != _SEVERAL:
        return None
    known = ledger.attempts(row.id) if attempts is None else attempts
    return [place.to_dict() for place in spent_by_place(known, time.time())]


def roots_of(row: SweepRow) -> Mapping[str, Path]:
    """Return where each of several places keeps launch files; none for a sweep in a single place."""
    return _roots(row.source) if row.backend == _SEVERAL else {}


@lru_cache(maxsize=4)
def _roots(source: str) -> Mapping[str, Path]:
    from airflows.backends.burst import BurstSettings  # noqa: PLC0415
    from airflows.yamlio import parse  # noqa: PLC0415

    given = parse(source, file="sweep.yaml", dialect="sweep").value["backend"]
    return BurstSettings.model_validate(given).roots(home_directory())


def places_lines(places: Sequence[Mapping[str, Any]] | None, style: Style) -> list[str]:
    """Return the table of places, none without them."""
    if not places:
        return []
    header = ("PLACE", "TRIALS", "MOVED ON", "IN QUEUES", "RUNNING", "ACCELERATOR-HOURS")
    rows = [
        (
            one["place"],
            str(len(one["trials"])),
            str(one["moved"]),
            human_duration(one["queue_s"]),
            human_duration(one["run_s"]),
            number_text(sum(one["accelerator_hours"].values()), 3),
        )
        for one in places
    ]
    return ["", *table(header, rows, style, right=frozenset(header[1:]))]


def hours_of_dearest(settings: Mapping[str, Any]) -> Hours:
    """Return what tells the accelerator-hours of an attempt at most, in the dearest of several places."""
    from pydantic import ValidationError  # noqa: PLC0415

    from airflows.backends.burst import BurstSettings  # noqa: PLC0415
    from airflows.preview import hours_at_most  # noqa: PLC0415

    try:
        places = BurstSettings.model_validate(settings).in_order
    except ValidationError:
        # What is wrong with them is told where the backend is opened.
        return hours_at_most
    computes = [place.compute.model_dump(exclude_none=True) for _, place in places]

    def hours(tree: Mapping[str, Any]) -> float | None:
        each = [hours_at_most({**tree, "compute": {**tree["compute"], **own}}) for own in computes]
        known = [one for one in each if one is not None]
        return max(known) if len(known) == len(each) else None

    return hours

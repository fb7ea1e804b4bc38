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

"""Whether trials in flight are still asked for where they are, once settings of the backend have changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from airflows.backends.base import Backend
from airflows.backends.places import places_of
from airflows.backends.registry import open_backend
from airflows.engine.site import Site, reload
from airflows.errors import ConflictError
from airflows.ledger import SweepRow
from airflows.trial import IN_FLIGHT


def require_same_backend(site: Site, row: SweepRow) -> None:
    """Check that no trial is in flight in a place that would no longer be asked, or looked for elsewhere.

    Args:
        site: what the sweep works with from now on.
        row: the sweep as it is recorded.

    Raises:
        ConflictError: one is; the message names the place.
    """
    in_flight = site.ledger.trials(row.id, states=IN_FLIGHT)
    if not in_flight:
        return
    if site.backend.name != row.backend:
        message = f"sweep {row.id} has trials in flight on backend {row.backend}."
        raise ConflictError(message, hint="Cancel them, or wait until they have ended, and then move it.")
    recorded = open_backend(reload(row).spec.backend, site.home)
    if recorded.name != row.backend:
        # It was handed in by a program, and its file does not say where it keeps anything.
        return
    before, now = _homes(recorded), _homes(site.backend)
    moved = {name for name, home in before.items() if now.get(name) != home}
    # Where there is one place, all trials are there.
    left = moved if len(before) == 1 else moved & {trial.backend for trial in in_flight}
    if left:
        where = ", ".join(sorted(left))
        became = "keeps its files elsewhere (type, root)" if left <= now.keys() else "is no place any more"
        message = f"sweep {row.id} has trials in flight on {where}, which {became}."
        hint = "Wait until they have ended, or cancel them; then change it."
        raise ConflictError(message, hint=hint)


def _homes(backend: Backend) -> Mapping[str, tuple[str, Path]]:
    """Return of what kind each place is, and where it keeps launch files."""
    return {place.name: (place.own.name, place.own.root) for place in places_of(backend)}

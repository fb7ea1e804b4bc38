"""One directory for a trial's checkpoints in all places, so that a failed trial goes on from them in any."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from airflows.backends.base import ChecksPaths
from airflows.backends.places import Place
from airflows.errors import SpecError
from airflows.spec import Checkpoint

_FIELD = "checkpoint.dir"


def shared_checkpoints(wanted: Checkpoint, places: Sequence[Place]) -> Checkpoint:
    """Return `checkpoint` of the sweep file, with a directory that all places have where it names none."""
    if wanted.dir or len(places) == 1:
        return wanted
    roots = _shared_roots(places) or [places[0].own.root]
    return wanted.model_copy(update={"dir": str(roots[0] / "checkpoints")})


def require_shared_checkpoints(wanted: Checkpoint, places: Sequence[Place], base_dir: Path) -> None:
    """Check that all places reach one directory for checkpoints, as far as that can be told from here.

    Args:
        wanted: `checkpoint` of the sweep file.
        places: where trials may go.
        base_dir: what a relative directory starts from.

    Raises:
        SpecError: they do not.
    """
    for place in places:
        hint = place.own.path_hint(wanted.dir) if wanted.dir and isinstance(place.own, ChecksPaths) else ""
        if hint:
            message = f"{wanted.dir} is no directory that trials on {place.name} see."
            raise SpecError(message, field=_FIELD, hint=hint)
    if len(places) == 1:
        return
    uploading = [place.name for place in places if place.own.capabilities.uploads]
    others = [place.name for place in places if place.name not in uploading]
    names = ", ".join(place.name for place in places)
    if wanted.dir is None and (uploading or len(_shared_roots(places)) > 1):
        message = f"trials may go on from their checkpoints in another place, and {names} share no directory."
        hint = "Name one that all of them reach under the same path."
        raise SpecError(message, field=_FIELD, hint=hint)
    if wanted.dir and uploading and others and not _is_here(base_dir / Path(wanted.dir).expanduser()):
        message = f"{wanted.dir} is no directory of this machine that can be written."
        hint = f"Mount it here and where trials of {', '.join(others)} run, as {', '.join(uploading)} has it."
        raise SpecError(message, field=_FIELD, hint=hint)


def _shared_roots(places: Sequence[Place]) -> list[Path]:
    """Return the roots that more than one machine sees; a place on this machine alone reaches them all."""
    own = [place.own for place in places if not place.own.capabilities.shares_host]
    return list(dict.fromkeys(backend.root for backend in own))


def _is_here(directory: Path) -> bool:
    return directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)

"""What a sweep.yaml may say but this version cannot do yet. Pure. A line goes when its feature comes."""

from __future__ import annotations

from collections.abc import Iterator

from airflows.place import Path, Place
from airflows.spec import SweepSpec

_BACKENDS = frozenset[str]()


def refuse_not_yet(spec: SweepSpec, place: Place) -> None:
    """Refuse what is not built yet.

    Args:
        spec: the sweep file.
        place: the file as a whole.

    Raises:
        SpecError: the first such key.
    """
    for path, what, instead in _wanted(spec):
        place.at(*path).fail(f"{what} is not supported yet.", instead)


def _wanted(spec: SweepSpec) -> Iterator[tuple[Path, str, str]]:
    """Yield (path, what it is, what to do instead) of each key that is not supported."""
    backend = spec.backend["type"]
    if backend in _BACKENDS:
        yield ("backend",), f"Backend {backend}", "Use local."

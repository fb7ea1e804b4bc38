"""In how many calls claimed trials go to the backend. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflows.trial import Trial

_VANGUARD = 64


def batches(claimed: Sequence[Trial], size: int, throttle: int, pack: int = 1) -> Iterator[Sequence[Trial]]:
    """Yield what is submitted in one call each, in whole packs where the size allows it.

    Of many the first few go ahead, and run while the others' files are written. Not where only some may run
    at once: a backend that sees to that itself does so for the trials of one call.
    """
    start = 0
    size = max(size - size % pack, min(size, pack))
    if len(claimed) > 2 * _VANGUARD and not 0 < throttle < len(claimed):
        start = min(size, -(-_VANGUARD // pack) * pack)
        yield claimed[:start]
    for begin in range(start, len(claimed), size):
        yield claimed[begin : begin + size]

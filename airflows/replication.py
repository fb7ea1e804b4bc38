"""Which value of its key a further replicate of a point has, beyond those that the sweep file lists. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any


def further_value(values: Sequence[Any], place: int) -> int:
    """Return the value of a replicate, by a rule that is the same whenever and wherever it is asked.

    Whole numbers in even steps upwards go on in these steps; others go on upwards from the largest one, so
    that no value comes twice.

    Args:
        values: those that the sweep file lists, each once.
        place: of the replicate, at least as many as there are values.

    Raises:
        ValueError: the values are not whole numbers, so nothing follows from them.
    """
    whole = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if not whole or len(whole) != len(values):
        message = "replicates.values are not whole numbers, so nobody can say which come next"
        raise ValueError(message)
    steps = {after - before for before, after in itertools.pairwise(whole)}
    step = steps.pop() if len(steps) == 1 else 1
    return max(whole) + max(1, step) * (place - len(whole) + 1)

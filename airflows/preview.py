"""What a dry run shows of a sweep: how trials differ from the base, and what they may cost at most. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

from airflows.keys import MISSING, effective, get_key, split_key
from airflows.sweepfile import LoadedSweep

_LOOKED_AT = 10_000


class Change(NamedTuple):
    """A difference between a trial and the base; `old` is None where the base has no such key."""

    key: str
    old: Any
    new: Any
    is_new: bool


def diff_from_base(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> list[Change]:
    """Return what overrides change in the base's tree, in their order.

    Example:
        >>> diff_from_base({"parameters": {"lr": 0.1}}, {"parameters.lr": 0.2})
        [Change(key='parameters.lr', old=0.1, new=0.2, is_new=False)]
    """
    changes: list[Change] = []
    for key, new in overrides.items():
        old = get_key(base, split_key(key))
        is_new = old is MISSING
        changes.append(Change(key, None if is_new else old, new, is_new))
    return changes


def accelerator_hours_max(sweep: LoadedSweep, count: int | None = None) -> float | None:
    """Return the accelerator-hours that one attempt of each trial takes at most; None without a limit.

    Args:
        sweep: the sweep.
        count: points; those of the sweep by default. Beyond the first 10,000 their mean is taken.
    """
    count = sweep.expansion.count() if count is None else count
    if count is None:
        return None
    hours: list[float] = []
    known: dict[tuple[Any, ...], float | None] = {}
    for point in itertools.islice(sweep.expansion.points(), min(count, _LOOKED_AT)):
        spends = {key: value for key, value in point.overrides.items() if _is_spending(key)}
        wanted = tuple(str(value) for value in spends.values())
        key = (*spends, *wanted)
        if key not in known:
            known[key] = _hours(effective(sweep.base.tree, spends))
        each = known[key]
        if each is None:
            return None
        hours.append(each)
    replicates = 1 if sweep.spec.replicates is None else len(sweep.spec.replicates.values)
    return sum(hours) / max(1, len(hours)) * count * replicates


def _is_spending(key: str) -> bool:
    return split_key(key)[0] in {"compute", "timeout_minutes"}


def _hours(tree: Mapping[str, Any]) -> float | None:
    minutes = tree.get("timeout_minutes")
    count = get_key(tree, ("compute", "num_accelerators"))
    return None if minutes is None or count is MISSING else float(count) * float(minutes) / 60

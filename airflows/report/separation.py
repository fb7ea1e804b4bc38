"""Which override values tell some trials from all others: "out of memory at batch_size >= 64". Pure.

A condition is only told when it holds for all of these trials, for none of the others, and when so clean a
cut would hardly come about by chance. With n trials on one side, m on the other and h conditions that hold
for just n of all trials, chance finds one with probability at most h / C(n + m, n): of that many ways to
choose the n, each condition fits one.

Example:
    >>> failed = [{"batch": 64}, {"batch": 128}, {"batch": 64}]
    >>> passed = [{"batch": 8}, {"batch": 16}, {"batch": 32}, {"batch": 8}, {"batch": 16}]
    >>> str(separating(failed, passed))
    'batch >= 64'
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

Overrides = Mapping[str, Any]

_CHANCE = 0.05
_MOST_VALUES = 3
_MOST_ENUMERATED = 12
# Equal, at least, at most: with one condition on one key given, each kind of the other's fits once.
_KINDS = 3
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that holds for a trial's overrides or does not.

    Attributes:
        text: how people write it.
        holds: tells of one trial's overrides.
    """

    text: str
    holds: Callable[[Overrides], bool]

    def __str__(self) -> str:
        """Return how people write it."""
        return self.text


def separating(these: Sequence[Overrides], others: Sequence[Overrides]) -> Condition | None:
    """Return the simplest condition that holds for all of these and for none of the others.

    Args:
        these: overrides of the trials that have something in common, such as how they failed.
        others: overrides of the trials to tell them from.

    Returns:
        A condition on one key, else on two; None when there is none, or when chance might have made it.
    """
    if not these or not others:
        return None
    both = [*these, *others]
    keys = sorted({key for overrides in both for key in overrides})
    found = {key: list(_conditions(key, these)) for key in keys}
    allowed = _CHANCE * math.comb(len(both), len(these))

    possible = sum(_count_possible(key, both, len(these)) for key in keys)
    if possible <= allowed:
        for condition in (condition for key in keys for condition in found[key]):
            if not any(map(condition.holds, others)):
                return condition
    pairs = list(combinations(keys, 2))
    possible += sum(_KINDS**2 * min(_count_values(key, both) for key in pair) for pair in pairs)
    if possible <= allowed:
        for first, second in ((a, b) for one, two in pairs for a in found[one] for b in found[two]):
            if not any(first.holds(other) and second.holds(other) for other in others):
                return _both(first, second)
    return None


def _conditions(key: str, these: Sequence[Overrides]) -> Iterator[Condition]:
    """Yield what holds for the key in all of these: the tightest of each kind."""
    values = [overrides.get(key, _MISSING) for overrides in these]
    if any(value is _MISSING for value in values):
        return
    distinct = {_canonical(value): value for value in values}
    if all(map(_is_number, values)):
        least, most = min(values), max(values)
        if least == most:
            yield Condition(f"{key} = {_shown(least)}", lambda o: _is_number(o.get(key)) and o[key] == least)
        yield Condition(f"{key} >= {_shown(least)}", lambda o: _is_number(o.get(key)) and o[key] >= least)
        yield Condition(f"{key} <= {_shown(most)}", lambda o: _is_number(o.get(key)) and o[key] <= most)
    elif len(distinct) <= _MOST_VALUES:
        text = " or ".join(_shown(value) for value in distinct.values())
        yield Condition(f"{key} = {text}", lambda o: key in o and _canonical(o[key]) in distinct)


def _count_possible(key: str, both: Sequence[Overrides], wanted: int) -> int:
    """Return how many conditions on the key hold for just so many of all trials."""
    values = [overrides[key] for overrides in both if key in overrides]
    counts = Counter(map(_canonical, values))
    if all(map(_is_number, values)):
        ordered = sorted(values)
        cuts = (wanted, len(ordered) - wanted)
        thresholds: int = sum(0 < cut < len(ordered) and ordered[cut - 1] != ordered[cut] for cut in cuts)
        return thresholds + sum(count == wanted for count in counts.values())
    if len(counts) > _MOST_ENUMERATED:
        return sum(math.comb(len(counts), size) for size in range(1, _MOST_VALUES + 1))
    chosen = (group for size in range(1, _MOST_VALUES + 1) for group in combinations(counts.values(), size))
    return sum(sum(group) == wanted for group in chosen)


def _count_values(key: str, both: Sequence[Overrides]) -> int:
    return len({_canonical(overrides[key]) for overrides in both if key in overrides})


def _both(first: Condition, second: Condition) -> Condition:
    return Condition(f"{first} and {second}", lambda o: first.holds(o) and second.holds(o))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _canonical(value: Any) -> str:
    # True and 1 are one key of a dict, but not one value of a parameter.
    return json.dumps(value, sort_keys=True, default=str)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else _canonical(value)

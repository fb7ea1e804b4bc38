"""What a dry run shows of a sweep: how trials differ from the base, and what they may cost at most. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from airflows.axes import Axis, Overrides
from airflows.domains import Domain, Interval, Listed
from airflows.ids import canonical_json
from airflows.keys import MISSING, effective, get_key, split_key

if TYPE_CHECKING:
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


def domain_text(axis: Axis) -> str:
    """Return what an axis may be, in a few words.

    Example:
        >>> domain_text(Axis(("parameters.lr",), Interval(0.001, 0.1, is_log=True, is_whole=False)))
        'from 0.001 to 0.1, in logarithm'
    """
    domain = axis.domain
    if isinstance(domain, Listed):
        text = ", ".join(map(_inline, domain.values))
    elif isinstance(domain, Interval):
        whole = "whole numbers " if domain.is_whole else ""
        text = f"{whole}from {domain.low} to {domain.high}{', in logarithm' if domain.is_log else ''}"
    else:
        text = f"{len(domain)} values from {domain[0]} to {domain[len(domain) - 1]}"
    conditions = " and ".join(
        f"{clause.key} is {' or '.join(map(_inline, clause.values))}" for clause in axis.clauses
    )
    return f"{text}, when {conditions}" if conditions else text


def _inline(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value)


Hours = Callable[[Mapping[str, Any]], float | None]


def hours_at_most(tree: Mapping[str, Any]) -> float | None:
    """Return the accelerator-hours that an attempt at a train.yaml takes at most; None without a limit."""
    minutes, count = tree.get("timeout_minutes"), accelerators(tree)
    return None if minutes is None or count is None else float(count) * float(minutes) / 60


def accelerators(tree: Mapping[str, Any]) -> int | None:
    """Return the accelerators that a train.yaml asks for, over all nodes; None where it does not say."""
    count = get_key(tree, ("compute", "num_accelerators"))
    return None if count is MISSING else int(count)


def accelerator_hours(
    sweep: LoadedSweep, count: int | None = None, hours: Hours = hours_at_most
) -> float | None:
    """Return the accelerator-hours that one attempt of each trial takes, None when nobody can know.

    One that is packed takes its share.

    Args:
        sweep: the sweep.
        count: points; those of the sweep by default. Beyond the first 10,000 their mean is taken.
        hours: of a trial, by its train.yaml; by default at most.
    """
    count = sweep.expansion.count() if count is None else count
    if count is None:
        return None
    replicates = 1 if sweep.spec.replicates is None else len(sweep.spec.replicates.values)
    if sweep.expansion.known is not None:
        most = _most_hours(sweep, hours)
        return None if most is None else most * count * replicates / sweep.spec.pack
    found: list[float] = []
    known: dict[tuple[Any, ...], float | None] = {}
    for point in itertools.islice(sweep.expansion.points(), min(count, _LOOKED_AT)):
        spends = {key: value for key, value in point.overrides.items() if _is_spending(key)}
        wanted = tuple(str(value) for value in spends.values())
        key = (*spends, *wanted)
        if key not in known:
            known[key] = hours(effective(sweep.base.tree, spends))
        each = known[key]
        if each is None:
            return None
        found.append(each)
    return sum(found) / max(1, len(found)) * count * replicates / sweep.spec.pack


def _most_hours(sweep: LoadedSweep, hours: Hours) -> float | None:
    """Return the accelerator-hours of the dearest point that may be chosen; None without a limit."""
    made: list[Overrides] = [{}]
    for axis in sweep.space.axes:
        if any(_is_spending(key) for key in axis.keys):
            made = [one | axis.overrides(value) for one in made for value in _extremes(axis.domain)]
    made += [{key: row[key] for key in row if _is_spending(key)} for row in sweep.space.include]
    each = [hours(effective(sweep.base.tree, one)) for one in made]
    known = [one for one in each if one is not None]
    return max(known) if len(known) == len(each) else None


def _extremes(domain: Domain) -> list[Any]:
    """Return the values among which the dearest is."""
    if isinstance(domain, Interval):
        return [domain.at(domain.low), domain.at(domain.high)]
    return list(domain.values) if isinstance(domain, Listed) else [domain[0], domain[len(domain) - 1]]


def _is_spending(key: str) -> bool:
    return split_key(key)[0] in {"compute", "timeout_minutes"}

"""Whether two trials have logged the same. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from airflows.rehearsal.evidence import Curves
from airflows.scores import MetricPoint, shown


@dataclass(frozen=True, slots=True)
class Compared:
    """What two trials have in common.

    Attributes:
        metrics: those that both have logged at the same steps.
        steps: most steps that they have in common.
        difference: the first difference in words, empty for none.
    """

    metrics: frozenset[str]
    steps: int
    difference: str = ""


def comparable(one: Curves, again: Curves) -> Mapping[str, Collection[int]]:
    """Return the metrics in which a trial and its repetition agree, each with the steps that both have."""
    common = compared(one, again).metrics
    return {
        name: _by_step(one[name]).keys() & _by_step(again[name]).keys()
        for name in common
        if not _difference(one[name], again[name])
    }


def compared(one: Curves, other: Curves, only: Mapping[str, Collection[int]] | None = None) -> Compared:
    """Compare what two trials have logged at the steps that both have.

    Args:
        one: the first trial's.
        other: the second's.
        only: only these metrics, at these steps; None for all.
    """
    if only is not None:
        one = {
            name: [point for point in one[name] if point.step in steps]
            for name, steps in only.items()
            if name in one
        }
    names = sorted(one.keys() & other.keys())
    common = {name: len(_by_step(one[name]).keys() & _by_step(other[name]).keys()) for name in names}
    shared = [name for name in names if common[name]]
    told = (f"{name} {words}" for name in shared if (words := _difference(one[name], other[name])))
    return Compared(frozenset(shared), max(common.values(), default=0), next(told, ""))


def _difference(one: Sequence[MetricPoint], other: Sequence[MetricPoint]) -> str:
    """Return `0.5 -> 0.4 at step 1`, the first difference; empty where there is none."""
    here, there = _by_step(one), _by_step(other)
    for step in sorted(here.keys() & there.keys()):
        for value, changed in zip(here[step], there[step], strict=False):
            # As texts, because NaN is not even like itself.
            if shown(value) != shown(changed):
                return f"{value:.6g} -> {changed:.6g} at step {step}"
    return ""


def _by_step(points: Sequence[MetricPoint]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for point in sorted(points, key=lambda point: point.at_ms):
        found.setdefault(point.step, []).append(point.value)
    return found

"""Which parameters of a sweep matter: its ranked points, as the importances need them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflows.axes import Axis
from airflows.domains import Interval, Powers
from airflows.engine.results import SweepResults
from airflows.search.importance import Importance, Seen, importances


def importance_of(results: SweepResults) -> Importance:
    """Return how much each parameter has to do with a point being among the best.

    Points that break a constraint count with their values; coupled keys are one parameter.

    Raises:
        MissingExtraError: Optuna is not installed.
    """
    axes = results.sweep.space.axes
    objectives = results.objectives or ((results.objective,) if results.objective else ())
    groups = () if results.ranking is None else results.ranking.ranked
    history = [
        Seen(
            _params(axes, group.overrides),
            [figures.value for figures in group.objectives] or [group.value],
        )
        for group in groups
    ]
    logarithmic = [_name(axis) for axis in axes if is_log(axis)]
    return importances(history, [objective.goal for objective in objectives], logarithmic)


def _params(axes: tuple[Axis, ...], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a point's parameters: one for each axis that is active, and what rows of `include` add."""
    left = dict(overrides)
    made: dict[str, Any] = {}
    for axis in axes:
        if all(key in left for key in axis.keys):
            values = [left.pop(key) for key in axis.keys]
            made[_name(axis)] = values if len(values) > 1 else values[0]
    return made | left


def _name(axis: Axis) -> str:
    return ", ".join(axis.keys)


def is_log(axis: Axis) -> bool:
    """Whether a parameter is looked at by its logarithm."""
    return isinstance(axis.domain, Powers) or (isinstance(axis.domain, Interval) and axis.domain.is_log)

"""Which parameters matter: Optuna's importances, from our own history. Nothing is kept."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from airflows.errors import MissingExtraError
from airflows.scores import Goal

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

ENOUGH = 10
"""With fewer points nothing is said."""
# PED-ANOVA compares the best tenth with all; of a short history the best five.
_BEST_SHARE = 0.1
_BEST_POINTS = 5
_ALL = 0.5

Params = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """A point and what came out: one sound value for each objective. An inactive parameter is absent."""

    params: Params
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Importance:
    """Which parameters tell the best points from the others.

    Attributes:
        points: how many were looked at.
        shares: of each parameter that varied, all adding up to 1, the largest first.
        active: in how many points each of them was active.
        why_not: why there are no shares, empty when there are.
    """

    points: int
    shares: Mapping[str, float]
    active: Mapping[str, int]
    why_not: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON documents show it."""
        return {
            "points": self.points,
            "parameters": [
                {"key": key, "share": share, "points": self.active[key]} for key, share in self.shares.items()
            ],
            "why_not": self.why_not or None,
        }


def importances(
    history: Sequence[Seen], goals: Sequence[Goal], logarithmic: Sequence[str] = ()
) -> Importance:
    """Return how much each parameter has to do with being among the best.

    It is PED-ANOVA as Optuna has it, which takes conditional parameters as they are: one that is rarely
    active can matter only so much. With several objectives the best are those of the Pareto front.

    Args:
        history: the points with their values.
        goals: which of two values is better, for each objective.
        logarithmic: parameters that are looked at by their logarithms.

    Raises:
        MissingExtraError: Optuna is not installed.
    """
    if find_spec("optuna") is None:
        message = "parameter importance needs Optuna, which is not installed."
        raise MissingExtraError(message, hint="Run: pip install 'airflows[optuna]'")
    count = len(history)
    if count < ENOUGH:
        return _nothing(count, f"There are {count} ranked points, and fewer than {ENOUGH} say too little.")
    spread = _distributions(history, logarithmic)
    if not spread:
        return _nothing(count, "No parameter varied among the ranked points.")
    if all(tuple(seen.values) == tuple(history[0].values) for seen in history):
        return _nothing(count, "All points came out the same, so no parameter made a difference.")
    found = _evaluated(history, goals, spread)
    total = sum(found.values())
    if total <= 0:
        return _nothing(count, "The best points have the same parameters as all others.")
    ordered = sorted(found, key=lambda key: (-found[key], key))
    active = {key: sum(key in seen.params for seen in history) for key in ordered}
    return Importance(count, {key: found[key] / total for key in ordered}, active)


def _nothing(count: int, why_not: str) -> Importance:
    return Importance(count, {}, {}, why_not)


def _evaluated(
    history: Sequence[Seen], goals: Sequence[Goal], spread: Mapping[str, BaseDistribution]
) -> dict[str, float]:
    import optuna  # noqa: PLC0415 - takes its time, and only this needs it
    from optuna.importance import PedAnovaImportanceEvaluator  # noqa: PLC0415

    evaluator = PedAnovaImportanceEvaluator(
        target_quantile=min(_ALL, max(_BEST_SHARE, _BEST_POINTS / len(history)))
    )
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            # It warns of values that few points have; that is what few points mean.
            warnings.simplefilter("ignore")
            study = optuna.create_study(directions=list(goals))
            study.add_trials([_trial(seen, spread) for seen in history])
            return evaluator.evaluate(study, params=sorted(spread))
    finally:
        optuna.logging.set_verbosity(verbosity)


def _trial(seen: Seen, spread: Mapping[str, BaseDistribution]) -> Any:
    from optuna.trial import create_trial  # noqa: PLC0415

    active = {key: value for key, value in seen.params.items() if key in spread}
    params = {key: value if _is_numeric(spread[key]) else _canonical(value) for key, value in active.items()}
    return create_trial(
        params=params, distributions={key: spread[key] for key in params}, values=list(seen.values)
    )


def _distributions(history: Sequence[Seen], logarithmic: Sequence[str]) -> dict[str, BaseDistribution]:
    """Return what each parameter that varied was drawn from, as far as its values tell."""
    by_key: dict[str, list[Any]] = {}
    for seen in history:
        for key, value in seen.params.items():
            by_key.setdefault(key, []).append(value)
    made = {}
    for key, values in by_key.items():
        distinct = {_canonical(value) for value in values}
        # A parameter that is not active everywhere matters also by being active.
        if len(distinct) > 1:
            made[key] = _distribution(values, sorted(distinct), is_log=key in logarithmic)
    return made


def _distribution(values: Sequence[Any], distinct: Sequence[str], *, is_log: bool) -> BaseDistribution:
    from optuna.distributions import (  # noqa: PLC0415
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return CategoricalDistribution(distinct)
    low, high = min(values), max(values)
    if all(isinstance(value, int) for value in values):
        return IntDistribution(low, high, log=is_log and low > 0)
    return FloatDistribution(float(low), float(high), log=is_log and low > 0)


def _is_numeric(distribution: BaseDistribution) -> bool:
    return hasattr(distribution, "low")


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)

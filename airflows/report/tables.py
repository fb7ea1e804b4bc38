"""results.csv and winner.yaml. Pure: from results to text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from airflows.addresses import HIDDEN
from airflows.hiding import public_tree
from airflows.ids import canonical_json
from airflows.keys import effective
from airflows.ranking import Group, Ranking
from airflows.scores import Measured, Take, shown
from airflows.trial import Trial
from airflows.yamlio import dump

COLUMNS = ("trial", "rank", "state", "reason", "value", "step", "replicate", "mlflow_run_id", "note")
_SECRETS_ARE_HIDDEN = f"# Secrets are not in this file. Before you run it, write them in place of {HIDDEN}.\n"
_NOTHING: Mapping[str, Mapping[int, float]] = {}
_WINNER_FIELDS = ("trial", "mlflow_run_id", "value", "mean", "sd", "n", "ci95", "steps")


class Results(Protocol):
    """What tables need of a sweep's results."""

    @property
    def ranking(self) -> Ranking | None:
        """Who won; None without an objective."""

    @property
    def objective(self) -> Measured | None:
        """What "best" means; None when the file does not say."""


def results_csv(
    results: Results,
    trials: Sequence[tuple[Trial, Mapping[str, Any]]],
    keys: Sequence[str] | None = None,
    further: Mapping[str, Mapping[int, float]] = _NOTHING,
) -> Iterator[str]:
    """Yield the lines of results.csv, every trial by number, finished or not.

    The columns are `COLUMNS`, then one for each further objective, then one for each override key. Whatever
    is in a value (commas, quotes, line ends) is quoted as RFC 4180 says; text stands as it is, other values
    as JSON. A key that is not overridden in a trial leaves its field empty.

    Args:
        results: ranking and objective.
        trials: every trial with its point's overrides.
        keys: the override keys in the order of the columns; None is the order in which they first appear.
        further: name -> trial number -> value of all objectives but the first one, whose is the column value.
    """
    if keys is None:
        keys = list(dict.fromkeys(key for _, overrides in trials for key in overrides))
    ranks, notes = _by_trial(results.ranking)
    yield _line([*COLUMNS, *further, *keys])
    for trial, overrides in trials:
        yield _line(
            [
                trial.id,
                ranks.get(trial.number, ""),
                trial.state,
                trial.reason,
                trial.raw_value if trial.value is None else repr(trial.value),
                "" if trial.value_step is None else trial.value_step,
                trial.replicate,
                trial.run_id,
                notes.get(trial.number, ""),
                *(_number(values.get(trial.number)) for values in further.values()),
                *(_text(overrides[key]) if key in overrides else "" for key in keys),
            ]
        )


def winner_yaml(results: Results, winner: Mapping[str, Any] | None, base: Mapping[str, Any]) -> str:
    """Return winner.yaml: the winner, why it won, and a train.yaml that runs it again.

    Args:
        results: ranking and objective.
        winner: the winner as JSON documents show it, of several objectives the knee of the Pareto front;
            None says that there is none. Values that it had to change to fit into memory are in the
            train.yaml, too.
        base: the sweep's train.yaml with the sweep's overrides.
    """
    if winner is None or results.objective is None:
        return dump({"winner": None})
    objective = results.objective
    overrides = {**winner["overrides"], **winner.get("changed", {})}
    train = effective(base, overrides)
    front = () if results.ranking is None else results.ranking.front
    if front:
        several = {"winner": None, "pareto": [_compromise(group) for group in front]}
        return _public({**several, "knee": winner["trial"], "overrides": overrides, "train": train})
    return _public(
        {
            "objective": {
                "metric": objective.metric,
                "goal": objective.goal,
                "take": Take.of(objective.take).rule,
            },
            "winner": {field: winner[field] for field in _WINNER_FIELDS if field in winner},
            "overrides": overrides,
            "train": train,
        }
    )


def _public(tree: Mapping[str, Any]) -> str:
    shown = public_tree(tree)
    return dump(shown) if shown == tree else f"{_SECRETS_ARE_HIDDEN}{dump(shown)}"


def _compromise(group: Group) -> dict[str, Any]:
    """Return what a point of the Pareto front comes to."""
    values = [{"metric": one.metric, "value": one.value} for one in group.objectives]
    return {"trials": list(group.trials), "overrides": dict(group.overrides), "objectives": values}


def _by_trial(ranking: Ranking | None) -> tuple[Mapping[int, int], Mapping[int, str]]:
    if ranking is None:
        return {}, {}
    ranks = {number: group.rank for group in ranking.ranked for number in group.trials}
    notes = {number: _note(group) for group in ranking.ranked for number in group.trials if _note(group)}
    notes |= {trial.number: trial.reason for trial in ranking.unranked}
    return ranks, notes


def _note(group: Group) -> str:
    place = "knee of the Pareto front" if group.is_knee else "on the Pareto front" if group.on_front else ""
    return "; ".join(filter(None, [place, group.note]))


def _number(value: float | None) -> str:
    return "" if value is None else shown(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value)


def _line(fields: Iterable[Any]) -> str:
    line = io.StringIO()
    # The writer quotes a line end of either kind only when it is its own.
    csv.writer(line, lineterminator="\r\n").writerow(fields)
    return line.getvalue().removesuffix("\r\n") + "\n"

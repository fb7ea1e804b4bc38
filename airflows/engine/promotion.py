"""Promotion: whether a sweep's winner takes a registered model's alias, and the taking."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from airflows.engine.results import SweepResults, aim_of, gather
from airflows.engine.site import recorded_uri
from airflows.errors import ConflictError
from airflows.ids import canonical_json
from airflows.ledger import open_ledger
from airflows.objective import Objective
from airflows.ranking import Aim, Ranking, Scored, Winner, rank
from airflows.scores import is_sound, shown
from airflows.tracking import OpenedSweep, Reading, SweepRun, choose_uri, open_tracker
from airflows.tracking.loading import load
from airflows.trial import State

_HOLDER, _WINNER = 0, 1


@dataclass(frozen=True, slots=True)
class Promotion:
    """What became of a promotion.

    Attributes:
        model: the registered model.
        alias: its alias.
        moved: the alias points at the winner now, and did not before.
        version: the version that it points at now, None for none.
        previous: the one before.
        why: one sentence.
    """

    model: str
    alias: str
    moved: bool
    version: str | None
    previous: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that may have the alias.

    Attributes:
        value: of the objective's metric, None when it is not known.
        constrained: the last value of each metric that a constraint names.
    """

    value: float | None
    constrained: Mapping[str, float]


def is_better(aim: Aim, winner: Candidate, holder: Candidate | None, version: str) -> tuple[bool, str]:
    """Return whether a winner is better than who has the alias, and why. Pure.

    The objective decides as it does in a sweep: its goal, its constraints, and what is not a number never
    wins. Of equals the holder stays.

    Args:
        aim: the objective.
        winner: the sweep's.
        holder: who has the alias, None for nobody.
        version: the holder's version, for the sentence.
    """
    if holder is None:
        return True, "Nothing has the alias yet."
    single = replace(aim, replicates=1, min_replicates=1)
    ranking = rank(single, [_scored(_HOLDER, holder), _scored(_WINNER, winner)])
    wins = ranking.winner is not None and ranking.winner.number == _WINNER
    trouble = _trouble_of_holder(ranking)
    if trouble:
        return wins, f"Version {version} cannot hold it: {trouble}."
    mine, theirs = _shown(winner.value), _shown(holder.value)
    verdict = "is better than" if wins else "is not better than"
    return wins, f"{aim.metric} {mine} {verdict} {theirs} of version {version} ({aim.goal})."


def promote(sweep: str, *, model: str, alias: str, artifact: str, home: Path) -> Promotion:
    """Point a registered model's alias at a sweep's winner if that is better than what has it now.

    May be repeated: what points at the winner already stays so.

    Args:
        sweep: id or name.
        model: the registered model, made when it is not there.
        alias: such as `champion`.
        artifact: the name under which the training script logged the model.
        home: `$AIRFLOWS_HOME`.

    Raises:
        NotFoundError: no such sweep, or the winner's run logged no such model.
        ConflictError: the sweep has no winner or is not finished, or nothing is known of who has the alias.
        TrackingUnavailableError: MLflow does not answer.
    """
    with closing(open_ledger(home, create=False)) as ledger:
        row, _, _ = ledger.resolve(sweep)
        results = gather(ledger, row)
        objective, winner = _winner_of(results)
        known = ledger.constraint_scores(row.id, [c.metric for c in objective.constraints])
    uri, registry = _uri_of(results, home), _registry_of(results, home)
    holder = registry.holder(model, alias)
    previous = None if holder is None else holder.number
    if holder is not None and holder.run_id == winner.run_id:
        return Promotion(model, alias, moved=False, version=previous, previous=previous, why=_ALREADY)
    challenger = Candidate(winner.group.value, known.get(winner.number, {}))
    incumbent = None if holder is None else _incumbent(registry, holder, objective, uri, home)
    wins, why = is_better(aim_of(objective, results.sweep.spec), challenger, incumbent, previous or "")
    if not wins:
        return Promotion(model, alias, moved=False, version=previous, previous=previous, why=why)
    version, _ = registry.register(model, winner.run_id, artifact)
    registry.tag(model, version.number, _tags(results, winner, objective))
    registry.point(model, alias, version.number)
    return Promotion(model, alias, moved=True, version=version.number, previous=previous, why=why)


_ALREADY = "It points at the winner already."


@dataclass(frozen=True, slots=True)
class Registration:
    """What became of registering a winner's model.

    Attributes:
        model: the registered model.
        version: the version that is the winner's.
        is_new: it was made now, and not there already.
        alias: the alias that points at it, empty for none.
        previous: the version that the alias pointed at before, None for none.
    """

    model: str
    version: str
    is_new: bool
    alias: str = ""
    previous: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON documents show it."""
        return asdict(self) | {"alias": self.alias or None}


def register(results: SweepResults, *, model: str, alias: str, home: Path) -> Registration:
    """Make the model that a winner's run has logged a version of a registered model.

    Nothing is compared, as `promote` does: the alias moves. May be repeated: a version that was made of the
    model stays the only one.

    Args:
        results: of a finished sweep.
        model: the registered model, made when it is not there.
        alias: is pointed at the version, empty for none.
        home: `$AIRFLOWS_HOME`.

    Raises:
        NotFoundError: the winner's run logged no model, or several that could be meant.
        ConflictError: the sweep has no winner or is not finished.
        TrackingUnavailableError: MLflow does not answer.
    """
    objective, winner = _winner_of(results, takes_knee=True)
    registry = _registry_of(results, home)
    artifact = registry.only_model_of(winner.run_id)
    holder = registry.holder(model, alias) if alias else None
    version, is_new = registry.register(model, winner.run_id, artifact)
    registry.tag(model, version.number, _tags(results, winner, objective))
    if alias and (holder is None or holder.number != version.number):
        registry.point(model, alias, version.number)
    previous = None if holder is None else holder.number
    return Registration(model, version.number, is_new, alias, previous)


def _winner_of(results: SweepResults, *, takes_knee: bool = False) -> tuple[Objective, Winner]:
    row, ranking = results.row, results.ranking
    found = None if ranking is None else ranking.winner or (ranking.knee if takes_knee else None)
    if row.ended_at is None:
        message = f"sweep {row.id} is not finished, so its winner may still change."
        raise ConflictError(message, hint=f"Look on with: airflows watch {row.id}")
    if results.objective is None or found is None or not found.run_id:
        what = "register" if takes_knee else "promote"
        message = f"sweep {row.id} has no winner with an MLflow run, so there is nothing to {what}."
        raise ConflictError(message, hint=f"`airflows results {row.id}` says why.")
    return results.objective, found


def _uri_of(results: SweepResults, home: Path) -> str:
    # The recorded one is right from every directory; a relative path of the file is not.
    return choose_uri(recorded_uri(results.row) or results.sweep.spec.tracking.uri, os.environ, home)


def _registry_of(results: SweepResults, home: Path) -> Any:
    return load("airflows.tracking.registry").Registry(_uri_of(results, home))


def _incumbent(registry: Any, holder: Any, objective: Objective, uri: str, home: Path) -> Candidate:
    """Return what is known of who has the alias: as it was promoted, else from the run it was made by.

    Raises:
        ConflictError: it cannot be known whether it is better or worse.
    """
    found = _read(registry, holder.run_id, objective, uri, home)
    promoted = _promoted_value(holder, objective)
    if found is None and (promoted is None or objective.constraints):
        whose = f"MLflow does not have its run {holder.run_id}" if holder.run_id else "no run made it"
        message = f"version {holder.number} has the alias, and how good it is cannot be known: {whose}."
        raise ConflictError(message, hint="Take the alias from it in MLflow, or promote under another alias.")
    metrics, value = ({}, None) if found is None else (found.metrics, found.value)
    return Candidate(
        value if promoted is None else promoted,
        {c.metric: metrics[c.metric] for c in objective.constraints if c.metric in metrics},
    )


def _promoted_value(holder: Any, objective: Objective) -> float | None:
    """Return what a version was promoted by: the mean of its replicates, of which its run is only the best.

    Raises:
        ConflictError: somebody has written something else there.
    """
    text = holder.tags.get("airflows.value")
    if text is None or not _rules(objective).items() <= holder.tags.items():
        return None
    try:
        return float(text)
    except ValueError:
        message = f"the tag airflows.value of version {holder.number} is {text!r}, which is no number."
        raise ConflictError(message, hint="Correct or delete the tag in MLflow.") from None


def _read(registry: Any, run_id: str, objective: Objective, uri: str, home: Path) -> Reading | None:
    """Return what MLflow knows of a run; None when it does not have the run any more."""
    experiment = registry.experiment_of(run_id) if run_id else ""
    if not experiment:
        return None
    tracker = open_tracker(uri, home)
    tracker.attach(SweepRun("", ""), OpenedSweep(experiment, ""))
    return tracker.read([run_id], objective).get(run_id)


def _rules(objective: Objective) -> dict[str, str]:
    return {
        "airflows.metric": objective.metric,
        "airflows.goal": objective.goal,
        "airflows.take": canonical_json(objective.take),
        "airflows.across_replicates": objective.across_replicates,
    }


def _tags(results: SweepResults, winner: Winner, objective: Objective) -> dict[str, str]:
    return {
        **_rules(objective),
        "airflows.value": repr(winner.group.value),
        "airflows.sweep": results.row.id,
        "airflows.trial": str(winner.number),
    }


def _scored(number: int, candidate: Candidate) -> Scored:
    value = candidate.value
    sound = value is not None and is_sound(value)
    return Scored(
        number=number,
        point=number,
        overrides={},
        state=State.SUCCEEDED,
        value=value if sound else None,
        raw="" if value is None else shown(value),
        constrained=candidate.constrained,
    )


def _trouble_of_holder(ranking: Ranking) -> str:
    notes: Sequence[str] = [group.note for group in ranking.ranked if group.trials == (_HOLDER,)]
    why = [trial.reason for trial in ranking.unranked if trial.number == _HOLDER]
    return next((text for text in (*notes, *why) if text), "")


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"


__all__ = ["Candidate", "Promotion", "Registration", "is_better", "promote", "register"]

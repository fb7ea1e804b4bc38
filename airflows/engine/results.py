"""What came out of a sweep, finished or not: read from the ledger alone, so it is the same every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflows.edits import Edits
from airflows.engine.site import reload
from airflows.engine.source import Replicates
from airflows.ledger import Ledger, SweepRow, SweepState
from airflows.objective import Objective
from airflows.pareto import rank_front
from airflows.ranking import Aim, Group, Ranking, Scored, Unranked, Winner, rank
from airflows.relief import relief_in
from airflows.report.accounting import spent_by_trial
from airflows.report.verdict import Verdict, priced, verdict, verdict_words
from airflows.scores import Take
from airflows.spec import SweepSpec
from airflows.sweepfile import LoadedSweep
from airflows.trial import State, Trial

ORPHANED = "orphaned: its point is no longer in the sweep file"
"""Why a trial is not ranked whose point an edit took out."""


@dataclass(frozen=True, slots=True)
class SweepResults:
    """A sweep's results.

    Attributes:
        row: the sweep.
        sweep: the sweep file as it was loaded.
        objective: what "best" means, of several objectives the first; None when the file does not say, and
            nothing is ranked.
        ranking: None without an objective.
        counts: trials created so far by state.
        complete: every trial is final and its metric was read.
        objectives: all of several ones, empty for one.
        orphaned: those of `counts` whose points an edit took out of the file; how they ended is nobody's
            concern any more.
    """

    row: SweepRow
    sweep: LoadedSweep
    objective: Objective | None
    ranking: Ranking | None
    counts: Mapping[State, int]
    complete: bool
    objectives: tuple[Objective, ...] = ()
    orphaned: Mapping[State, int] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """How many trials failed for good, of points that are still wanted."""
        return self.counts.get(State.FAILED, 0) - self.orphaned.get(State.FAILED, 0)

    @property
    def front(self) -> tuple[Group, ...]:
        """The Pareto front of several objectives, its knee first; empty for one."""
        return () if self.ranking is None else self.ranking.front

    @property
    def winner(self) -> dict[str, Any] | None:
        """The winner as JSON documents show it, None for none; several objectives have no winner."""
        return None if self.ranking is None else self._shown(self.ranking.winner)

    @property
    def knee(self) -> dict[str, Any] | None:
        """The best compromise of several objectives, in the form of a winner; None for none."""
        return None if self.ranking is None else self._shown(self.ranking.knee)

    def _shown(self, found: Winner | None) -> dict[str, Any] | None:
        if found is None:
            return None
        trial = {
            "trial": f"{self.row.id}/{found.number}",
            "mlflow_run_id": found.run_id or None,
            "changed": dict(found.changed),
        }
        return found.group.to_dict() | trial


def gather(ledger: Ledger, row: SweepRow) -> SweepResults:
    """Return the results of a sweep as far as it has come."""
    sweep = reload(row)
    counts = ledger.counts(row.id)
    objective = next(iter(sweep.spec.all_objectives), None)
    ranking = ranking_of(ledger, row, sweep.spec)
    still_open = ledger.trials(row.id, open_only=True, limit=1)
    complete = row.exhausted and not still_open and all(state.is_final for state in counts)
    several = tuple(sweep.spec.objectives)
    orphaned = Counter(trial.state for trial in orphaned_trials(ledger, row))
    return SweepResults(row, sweep, objective, ranking, counts, complete, several, orphaned)


def orphaned_trials(ledger: Ledger, row: SweepRow) -> list[Trial]:
    """Return the trials of the points that an edit took out of the sweep's file."""
    points = Edits.from_text(row.edits).orphaned
    return [trial for trial in ledger.trials(row.id) if trial.point in points] if points else []


def ranking_of(ledger: Ledger, row: SweepRow, spec: SweepSpec) -> Ranking | None:
    """Return who won, by one objective or several; None without any."""
    aims = [aim_of(objective, spec) for objective in spec.all_objectives]
    if not aims:
        return None
    return ranking_by(row.edits, aims, scored_trials(ledger, row, *spec.all_objectives))


def ranking_by(edits: str, aims: Sequence[Aim], scored: Iterable[Scored]) -> Ranking:
    """Return who won of a sweep's trials; those whose points an edit took out are told, and not ranked."""
    orphaned = Edits.from_text(edits).orphaned
    if not orphaned:
        return rank(aims[0], scored) if len(aims) == 1 else rank_front(aims, list(scored))
    left: list[Scored] = []
    gone: list[Scored] = []
    for trial in scored:
        (gone if trial.point in orphaned else left).append(trial)
    made = rank(aims[0], left) if len(aims) == 1 else rank_front(aims, left)
    unranked = [*made.unranked, *(Unranked(trial.number, ORPHANED) for trial in gone)]
    return replace(made, unranked=tuple(sorted(unranked, key=lambda trial: trial.number)))


def best_so_far(ledger: Ledger, row: SweepRow, spec: SweepSpec) -> tuple[float, int] | None:
    """Return (value, number) of the best trial so far by a sweep's one objective, None for none."""
    if spec.objective is None:
        return None
    if not row.edits:
        return ledger.best_value(row.id, minimize=spec.objective.goal == "minimize")
    made = ranking_of(ledger, row, spec)
    winner = None if made is None else made.winner
    return None if winner is None else (winner.group.value, winner.number)


def winning_value(ledger: Ledger, row: SweepRow) -> float | None:
    """Return the winner's value, of a sweep that goes on the best one so far: what `gather` says, sooner."""
    spec = reload(row).spec
    objective = spec.objective
    if objective is None:
        return None
    if not (row.edits or objective.constraints or objective.min_replicates):
        competing = [State.SUCCEEDED, *([State.STOPPED] if Take.of(objective.take).kind == "best" else [])]
        value, is_single = ledger.best_single(row.id, competing, minimize=objective.goal == "minimize")
        if is_single:
            return value
    made = ranking_of(ledger, row, spec)
    return None if made is None or made.winner is None else made.winner.group.value


def further_values(ledger: Ledger, results: SweepResults) -> dict[str, dict[int, float]]:
    """Return name -> trial number -> value of all objectives but the first one, in their order."""
    others = ledger.objective_scores(results.row.id) if results.objectives else {}
    made: dict[str, dict[int, float]] = {}
    taken = {objective.metric for objective in results.objectives[:1]}
    for place, objective in enumerate(results.objectives[1:], 1):
        # The same metric may be an objective twice, by its last value and by its best.
        name = f"{objective.metric} ({Take.of(objective.take).rule})" if objective.metric in taken else ""
        taken.add(objective.metric)
        made[name or objective.metric] = {
            number: values[place] for number, values in others.items() if place in values
        }
    return made


def verdict_of(ledger: Ledger, results: SweepResults) -> Verdict | None:
    """Return how far the winner can be trusted, and what it would cost to know more; None without one."""
    found = None if results.ranking is None else verdict(results.ranking)
    if found is None or found.advice is None:
        return found
    numbers = [number for group in found.advice.groups for number in group.trials]
    attempts = ledger.attempts_at(results.row.id, numbers)
    return priced(found, spent_by_trial(attempts, results.row.ended_at or 0.0))


def verdict_document(ledger: Ledger, results: SweepResults) -> dict[str, Any] | None:
    """Return how far the winner can be trusted as JSON documents show it, with `words` for people."""
    found = verdict_of(ledger, results)
    if found is None:
        return None
    has_replicates = results.sweep.spec.replicates is not None
    words = verdict_words(found, results.row.id, has_replicates=has_replicates)
    return {**found.to_dict(), "words": words}


def aim_of(objective: Objective, spec: SweepSpec) -> Aim:
    """Return what ranking needs of an objective."""
    return Aim(
        metric=objective.metric,
        goal=objective.goal,
        take=Take.of(objective.take),
        constraints=objective.constraints,
        across_replicates=objective.across_replicates,
        min_replicates=objective.min_replicates,
        replicates=Replicates(spec).count,
    )


def trials_with_overrides(ledger: Ledger, row: SweepRow) -> Iterator[tuple[Trial, Mapping[str, Any]]]:
    """Yield every trial with its point's overrides, without the replicate's own."""
    points = {point.number: point.overrides for point in ledger.points(row.id)}
    for trial in ledger.trials(row.id):
        yield trial, points[trial.point]


def scored_trials(ledger: Ledger, row: SweepRow, *objectives: Objective) -> Iterator[Scored]:
    """Yield every trial with the metrics that were read for it."""
    constrained = ledger.constraint_scores(row.id, [c.metric for o in objectives for c in o.constraints])
    others = ledger.objective_scores(row.id) if len(objectives) > 1 else {}
    details = ledger.claim_details(row.id)
    points = {point.number: point.overrides for point in ledger.points(row.id)}
    for trial in ledger.outcomes(row.id):
        yield Scored(
            number=trial.number,
            point=trial.point,
            overrides=points[trial.point],
            state=trial.state,
            reason=trial.reason,
            value=trial.value,
            raw=trial.raw_value,
            step=trial.value_step,
            constrained=constrained.get(trial.number, {}),
            message=trial.message,
            run_id=trial.run_id,
            changed=relief_in(details.get((trial.number, trial.attempt), "")),
            others=tuple(others.get(trial.number, {}).get(place) for place in range(1, len(objectives))),
        )


def exit_status(results: SweepResults) -> int:
    """Return the exit status of a sweep that was driven: 0 when all that was asked succeeded, else 1."""
    if results.row.state not in {SweepState.SUCCEEDED, SweepState.STOPPED}:
        return 1
    if results.failed:
        return 1
    ranked_nothing = results.ranking is not None and not results.ranking.ranked
    tracked = results.row.tracking_uri not in {"", "none"}
    return 1 if ranked_nothing and tracked else 0

"""What came out of a sweep, finished or not: read from the ledger alone, so it is the same every time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflows.engine.site import reload
from airflows.engine.source import Replicates
from airflows.ledger import Ledger, SweepRow, SweepState
from airflows.objective import Objective
from airflows.ranking import Aim, Ranking, Scored, rank
from airflows.relief import relief_in
from airflows.scores import Take
from airflows.spec import SweepSpec
from airflows.sweepfile import LoadedSweep
from airflows.trial import State, Trial


@dataclass(frozen=True, slots=True)
class SweepResults:
    """A sweep's results.

    Attributes:
        row: the sweep.
        sweep: the sweep file as it was loaded.
        objective: what "best" means; None when the file does not say, and nothing is ranked.
        ranking: None without an objective.
        counts: trials created so far by state.
        complete: every trial is final and its metric was read.
    """

    row: SweepRow
    sweep: LoadedSweep
    objective: Objective | None
    ranking: Ranking | None
    counts: Mapping[State, int]
    complete: bool

    @property
    def winner(self) -> dict[str, Any] | None:
        """The winner as JSON documents show it, None for none."""
        found = None if self.ranking is None else self.ranking.winner
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
    ranking = None
    if objective is not None:
        ranking = rank(aim_of(objective, sweep.spec), scored_trials(ledger, row, objective))
    still_open = ledger.trials(row.id, open_only=True, limit=1)
    complete = row.exhausted and not still_open and all(state.is_final for state in counts)
    return SweepResults(row, sweep, objective, ranking, counts, complete)


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


def scored_trials(ledger: Ledger, row: SweepRow, objective: Objective) -> Iterator[Scored]:
    """Yield every trial with the metrics that were read for it."""
    constrained = ledger.constraint_scores(row.id, [c.metric for c in objective.constraints])
    details = ledger.claim_details(row.id)
    for trial, overrides in trials_with_overrides(ledger, row):
        yield Scored(
            number=trial.number,
            point=trial.point,
            overrides=overrides,
            state=trial.state,
            reason=trial.reason,
            value=trial.value,
            raw=trial.raw_value,
            step=trial.value_step,
            constrained=constrained.get(trial.number, {}),
            message=trial.message,
            run_id=trial.run_id,
            changed=relief_in(details.get((trial.number, trial.attempt), "")),
        )


def exit_status(results: SweepResults) -> int:
    """Return the exit status of a sweep that was driven: 0 when all that was asked succeeded, else 1."""
    if results.row.state not in {SweepState.SUCCEEDED, SweepState.STOPPED}:
        return 1
    if results.counts.get(State.FAILED):
        return 1
    ranked_nothing = results.ranking is not None and not results.ranking.ranked
    tracked = results.row.tracking_uri not in {"", "none"}
    return 1 if ranked_nothing and tracked else 0

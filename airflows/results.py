"""What came out of a sweep, as objects of the Python API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflows.engine.importance import importance_of
from airflows.engine.results import SweepResults, gather, trials_with_overrides, verdict_of
from airflows.errors import MissingExtraError
from airflows.ledger import Ledger
from airflows.plots import Plots
from airflows.ranking import Group, Unranked, Winner
from airflows.report.notebook import lines_html, ranked_html
from airflows.report.verdict import Verdict, verdict_words
from airflows.search.importance import Importance

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Results", "TrialRecord", "results_of"]


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One trial of the results. Times are seconds since the epoch, UTC."""

    number: int
    overrides: Mapping[str, Any]
    replicate: int
    state: str
    reason: str
    message: str
    attempts: int
    value: float | None
    value_step: int | None
    mlflow_run_id: str | None
    started_at: float | None
    ended_at: float | None


class Results(Plots):
    """What came out of a sweep, finished or not; a snapshot.

    Example:
        >>> results = run(sweep)  # doctest: +SKIP
        >>> results.best.group.overrides  # doctest: +SKIP
        {'parameters.lr': 0.1}
    """

    def __init__(
        self,
        gathered: SweepResults,
        trials: Sequence[TrialRecord],
        verdict: Verdict | None = None,
        home: Path | None = None,
    ) -> None:
        super().__init__(gathered, home)
        self._verdict = verdict
        self._trials = tuple(trials)

    @property
    def sweep(self) -> str:
        """The sweep's id."""
        return self._gathered.row.id

    @property
    def state(self) -> str:
        """`running`, `succeeded`, `failed`, `stopped` or `cancelled`."""
        return self._gathered.row.state.value

    @property
    def message(self) -> str:
        """One sentence about how it ended, empty when there is nothing to say."""
        return self._gathered.row.message

    @property
    def is_complete(self) -> bool:
        """Whether every trial is final and its metric was read."""
        return self._gathered.complete

    @property
    def best(self) -> Winner | None:
        """The winner, None when nothing is ranked."""
        return None if self._gathered.ranking is None else self._gathered.ranking.winner

    @property
    def ranked(self) -> tuple[Group, ...]:
        """Groups of replicates, best first; empty without an objective."""
        return () if self._gathered.ranking is None else self._gathered.ranking.ranked

    @property
    def unranked(self) -> tuple[Unranked, ...]:
        """Trials that are not ranked, each with why."""
        return () if self._gathered.ranking is None else self._gathered.ranking.unranked

    @property
    def front(self) -> tuple[Group, ...]:
        """The Pareto front of several objectives, its knee first; empty for one objective."""
        return self._gathered.front

    @property
    def knee(self) -> Winner | None:
        """The best compromise of several objectives; None for one, which has a winner."""
        return None if self._gathered.ranking is None else self._gathered.ranking.knee

    @property
    def verdict(self) -> Verdict | None:
        """How far the winner can be trusted: who may be as good, and what would tell; None without one."""
        return self._verdict

    def importance(self) -> Importance:
        """Return how much each parameter has to do with a point being among the best.

        Raises:
            MissingExtraError: Optuna is not installed.
        """
        return importance_of(self._gathered)

    @property
    def trials(self) -> tuple[TrialRecord, ...]:
        """Every trial created so far, by number."""
        return self._trials

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row per trial; overrides are columns under their dotted keys.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415
        except ModuleNotFoundError as exc:
            message = "to_dataframe() needs pandas, which is not installed."
            raise MissingExtraError(message, hint="Run: pip install pandas") from exc
        fields = ("number", "replicate", "state", "reason", "value", "value_step", "mlflow_run_id")
        return pd.DataFrame([{f: getattr(t, f) for f in fields} | dict(t.overrides) for t in self._trials])

    def _repr_html_(self) -> str:
        """Return what a notebook shows of it."""
        objective, found = self._gathered.objective, self._verdict
        words = [f"{self.sweep} {self.state}, {len(self._trials)} trials"]
        words += [self.message] if self.message else []
        if self.best is not None:
            words.append(f"winner: trial {self.best.number}")
        if found is not None:
            has_replicates = self._gathered.sweep.spec.replicates is not None
            words += verdict_words(found, self.sweep, has_replicates=has_replicates)
        if objective is None or not self.ranked:
            return lines_html([*words, "Nothing is ranked."])
        words += [f"{len(self.unranked)} trials are not ranked"] if self.unranked else []
        return lines_html(words) + ranked_html(self.ranked, objective.metric)

    def __repr__(self) -> str:
        return f"<Results of {self.sweep}: {self.state}, {len(self._trials)} trials>"


def results_of(ledger: Ledger, sweep: str, home: Path | None = None) -> Results:
    """Return the results of a sweep, by id or name, as far as it has come; plots read from `home` later.

    Raises:
        NotFoundError: no such sweep.
    """
    row, _, _ = ledger.resolve(sweep)
    gathered = gather(ledger, row)
    trials = [
        TrialRecord(
            number=trial.number,
            overrides=overrides,
            replicate=trial.replicate,
            state=trial.state.value,
            reason=trial.reason.value,
            message=trial.message,
            attempts=trial.attempt + (trial.claimed_at is not None),
            value=trial.value,
            value_step=trial.value_step,
            mlflow_run_id=trial.run_id or None,
            started_at=trial.started_at,
            ended_at=trial.ended_at,
        )
        for trial, overrides in trials_with_overrides(ledger, row)
    ]
    return Results(gathered, trials, verdict_of(ledger, gathered), home)

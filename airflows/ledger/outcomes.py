"""Questions of who ranks a sweep: of all of its trials, but only what ranking needs of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from airflows.ledger import schema
from airflows.ledger.reads import PAGE, Reads, pages, to_trial
from airflows.ledger.records import AttemptRow
from airflows.trial import Reason, State, Trial

_STATES = {state.value: state for state in State}
_REASONS = {reason.value: reason for reason in Reason}


class TrialOutcome(NamedTuple):
    """What became of a trial so far. Ten thousand whole rows take three times as long."""

    number: int
    point: int
    attempt: int
    state: State
    reason: Reason
    message: str
    run_id: str
    value: float | None
    value_step: int | None
    raw_value: str


_OUTCOME_COLUMNS = [schema.trials.c[name] for name in TrialOutcome._fields]
_TRIAL_COLUMNS = [schema.trials.c[name] for name in Trial.__dataclass_fields__]
_ATTEMPT_COLUMNS = [schema.attempts.c[name] for name in AttemptRow.__dataclass_fields__]


class Outcomes(Reads):
    """Reads of a large sweep that take no longer than they must."""

    def outcomes(self, sweep: str) -> Iterator[TrialOutcome]:
        """Yield what became of each trial so far, by number."""
        table = schema.trials.c
        statement = sa.select(*_OUTCOME_COLUMNS).where(table.sweep == sweep).order_by(table.number)
        for number, point, attempt, state, reason, *rest in self._rows(statement):
            yield TrialOutcome(number, point, attempt, _STATES[state], _REASONS[reason], *rest)

    def best_single(
        self, sweep: str, states: Collection[State], *, minimize: bool
    ) -> tuple[float | None, bool]:
        """Return the best value of a trial in one of these states, and whether no point has replicates."""
        table = schema.trials.c
        value = sa.case((table.state.in_(list(states)), table.value))
        best = sa.func.min(value) if minimize else sa.func.max(value)
        found = self._rows(sa.select(best, sa.func.max(table.replicate)).where(table.sweep == sweep))[0]
        return found[0], not found[1]

    def trials_by_page(
        self, sweep: str, states: Collection[State] | None = None, size: int = PAGE
    ) -> Iterator[Sequence[Trial]]:
        """Yield trials by number, in any of these states, read as they are asked for."""
        table, start = schema.trials.c, 0
        while True:
            statement = sa.select(*_TRIAL_COLUMNS).where(table.sweep == sweep, table.number >= start)
            if states is not None:
                statement = statement.where(table.state.in_(list(states)))
            page = [to_trial(row) for row in self._rows(statement.order_by(table.number).limit(size))]
            if page:
                yield page
            if len(page) < size:
                return
            start = page[-1].number + 1

    def attempts_at(self, sweep: str, numbers: Collection[int]) -> list[AttemptRow]:
        """Return the attempts at these trials, by trial and attempt."""
        table = schema.attempts.c
        statement = (
            sa.select(*_ATTEMPT_COLUMNS).where(table.sweep == sweep).order_by(table.number, table.attempt)
        )
        return [
            AttemptRow(*row)
            for page in pages(numbers)
            for row in self._rows(statement.where(table.number.in_(page)))
        ]

"""Questions to the ledger. Every one is a short read that blocks nobody."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from airflows.errors import NotFoundError
from airflows.hosts import EndedAttempt
from airflows.ids import parse_id
from airflows.ledger import schema
from airflows.ledger.opening import translated
from airflows.ledger.records import AttemptRow, EventRow, PointRow, StoredScore, SweepRow, SweepState, Wish
from airflows.trial import EventKind, Reason, State, Trial

_SWEEP_COLUMNS = [schema.sweeps.c[name] for name in SweepRow.__dataclass_fields__]
# Made once: a driver asks it every second, and making a statement takes longer than asking.
_WISHES = sa.select(schema.sweeps.c.wish, schema.sweeps.c.requests).where(
    schema.sweeps.c.id == sa.bindparam("sweep")
)
_TRIAL_COLUMNS = [schema.trials.c[name] for name in Trial.__dataclass_fields__]
_STATE, _REASON = map(list(Trial.__dataclass_fields__).index, ("state", "reason"))
_ATTEMPT_COLUMNS = [schema.attempts.c[name] for name in AttemptRow.__dataclass_fields__]
_EVENT_COLUMNS = [schema.events.c[name] for name in EventRow.__dataclass_fields__]
PAGE = 1000


def _to_sweep(row: Any) -> SweepRow:
    fields = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's documented way to a mapping
    return SweepRow(**{**fields, "wish": Wish(fields["wish"]), "state": SweepState(fields["state"])})


def to_trial(row: Any) -> Trial:
    """Return the trial of a row that has its fields in order."""
    fields = list(row)
    fields[_STATE], fields[_REASON] = State(fields[_STATE]), Reason(fields[_REASON])
    return Trial(*fields)


def no_sweep(name: str) -> NotFoundError:
    """Return the error for a sweep that is not there."""
    message = f"there is no sweep {name!r}."
    return NotFoundError(message, hint="`airflows list --all` shows those there are.")


class Reads:
    """The reading half of a ledger; returns frozen snapshots."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def _rows(self, statement: sa.Executable, values: Mapping[str, object] | None = None) -> Sequence[Any]:
        with (
            translated(self._engine),
            self._engine.connect().execution_options(reading=True) as connection,
        ):
            return connection.execute(statement, values).all()

    def sweep(self, sweep: str) -> SweepRow:
        """Return a sweep by its id.

        Raises:
            NotFoundError: there is none.
        """
        rows = self._rows(sa.select(*_SWEEP_COLUMNS).where(schema.sweeps.c.id == sweep))
        if not rows:
            raise no_sweep(sweep)
        return _to_sweep(rows[0])

    def resolve(self, text: str) -> tuple[SweepRow, int | None, int | None]:
        """Return (sweep, number, attempt) for `SWEEP`, `SWEEP/12` or `SWEEP/12.0`.

        SWEEP is an id or a name; a name means its newest sweep.

        Raises:
            NotFoundError: no such sweep or trial.
            SpecError: the text is not an id.
        """
        name, number, attempt = parse_id(text)
        row = self._sweep_of(name)
        if number is not None and not self.trials(row.id, numbers=[number]):
            message = f"sweep {row.id} has no trial {number}."
            raise NotFoundError(message, hint=f"`airflows get {row.id}` shows how many it has.")
        return row, number, attempt

    def _sweep_of(self, name: str) -> SweepRow:
        rows = self._rows(
            sa.select(*_SWEEP_COLUMNS)
            .where(sa.or_(schema.sweeps.c.id == name, schema.sweeps.c.name == name))
            # `airflows run` on a winner's train.yaml gives its one trial the sweep's name.
            .order_by(
                (schema.sweeps.c.id == name).desc(),
                schema.sweeps.c.single,
                schema.sweeps.c.created_at.desc(),
            )
            .limit(1)
        )
        if not rows:
            raise no_sweep(name)
        return _to_sweep(rows[0])

    def newest_of(self, name: str, definition: str) -> SweepRow | None:
        """Return the newest sweep with this name and definition digest, None if there is none."""
        rows = self._rows(
            sa.select(*_SWEEP_COLUMNS)
            .where(schema.sweeps.c.name == name, schema.sweeps.c.definition == definition)
            .order_by(schema.sweeps.c.created_at.desc())
            .limit(1)
        )
        return _to_sweep(rows[0]) if rows else None

    def sweeps(self, *, active_only: bool = False, limit: int | None = None) -> list[SweepRow]:
        """Return sweeps, newest first."""
        statement = sa.select(*_SWEEP_COLUMNS).order_by(schema.sweeps.c.created_at.desc())
        if active_only:
            statement = statement.where(schema.sweeps.c.state == SweepState.RUNNING)
        if limit is not None:
            statement = statement.limit(limit)
        return [_to_sweep(row) for row in self._rows(statement)]

    def wishes(self, sweep: str) -> tuple[Wish, int]:
        """Return (wish, number of requests so far): what a driver asks on every tick."""
        row = self._rows(_WISHES, {"sweep": sweep})[0]
        return Wish(row.wish), row.requests

    def cancel_requests(self, sweep: str) -> set[int]:
        """Return the numbers of trials that a person asked to cancel and that are not final."""
        table = schema.trials.c
        open_states = [state for state in State if not state.is_final]
        rows = self._rows(
            sa.select(table.number).where(
                table.sweep == sweep, table.cancel_requested.is_(True), table.state.in_(open_states)
            )
        )
        return {row.number for row in rows}

    def trials(
        self,
        sweep: str,
        *,
        states: Collection[State] | None = None,
        numbers: Collection[int] | None = None,
        open_only: bool = False,
        limit: int | None = None,
    ) -> list[Trial]:
        """Return trials by number. `open_only`: final ones whose metrics are not settled yet."""
        if numbers is not None and len(numbers) > PAGE:
            # A statement has room for so many values only.
            found: list[Trial] = []
            for page in pages(numbers):
                found += self.trials(sweep, states=states, numbers=page, open_only=open_only, limit=limit)
            return found[:limit]
        table = schema.trials.c
        statement = sa.select(*_TRIAL_COLUMNS).where(table.sweep == sweep).order_by(table.number)
        if states is not None:
            statement = statement.where(table.state.in_(list(states)))
        if numbers is not None:
            statement = statement.where(table.number.in_(list(numbers)))
        if open_only:
            statement = statement.where(table.closed.is_(False), table.state.in_([*_final()]))
        if limit is not None:
            statement = statement.limit(limit)
        return [to_trial(row) for row in self._rows(statement)]

    def counts(self, sweep: str) -> dict[State, int]:
        """Return how many trials are in each state."""
        table = schema.trials.c
        rows = self._rows(
            sa.select(table.state, sa.func.count()).where(table.sweep == sweep).group_by(table.state)
        )
        return {State(row[0]): row[1] for row in rows}

    def point(self, sweep: str, number: int) -> PointRow:
        """Return one point."""
        return next(self.points(sweep, start=number, stop=number + 1))

    def points(self, sweep: str, *, start: int = 0, stop: int | None = None) -> Iterator[PointRow]:
        """Yield points by number, read in pages."""
        table = schema.points.c
        while True:
            statement = (
                sa.select(table.number, table.overrides, table.digest, table.memo, table.same_as)
                .where(table.sweep == sweep, table.number >= start)
                .order_by(table.number)
                .limit(PAGE)
            )
            if stop is not None:
                statement = statement.where(table.number < stop)
            rows = self._rows(statement)
            for row in rows:
                overrides = json.loads(row.overrides)
                yield PointRow(row.number, overrides, row.digest, row.memo, row.same_as)
            if len(rows) < PAGE:
                return
            start = rows[-1].number + 1

    def attempts(self, sweep: str, number: int | None = None) -> list[AttemptRow]:
        """Return attempts of one trial or of the whole sweep, by trial and attempt."""
        table = schema.attempts.c
        statement = (
            sa.select(*_ATTEMPT_COLUMNS).where(table.sweep == sweep).order_by(table.number, table.attempt)
        )
        if number is not None:
            statement = statement.where(table.number == number)
        return [AttemptRow(*row) for row in self._rows(statement)]

    def attempt_by_handle(self, backend: str, handle: str) -> tuple[str, int, int] | None:
        """Return (sweep, number, attempt) for a backend's own id, None when unknown."""
        table = schema.attempts.c
        rows = self._rows(
            sa.select(table.sweep, table.number, table.attempt)
            .where(table.backend == backend, table.handle == handle)
            .limit(1)
        )
        return (rows[0].sweep, rows[0].number, rows[0].attempt) if rows else None

    def attempts_by_job(self, backend: str, job: str) -> list[tuple[str, int, int]]:
        """Return (sweep, number, attempt) of each attempt in a backend's job, the newest submission first.

        Job is what the backend's own commands print: a handle up to its `@` or `:`, and of the elements of
        an array, or of the trials in one element, also what all of them begin with.
        """
        table = schema.attempts.c
        # Of several places each handle begins with the place's name.
        begins = [f"{before}{job}{end}" for before in ("", f"{backend}:") for end in "@:_/"]
        rows = self._rows(
            sa.select(table.sweep, table.number, table.attempt)
            .where(
                table.backend == backend,
                sa.or_(*(table.handle.startswith(each, autoescape=True) for each in begins)),
            )
            .order_by(table.submitted_at.desc(), table.number)
        )
        return [(row.sweep, row.number, row.attempt) for row in rows]

    def events(self, sweep: str, number: int | None = None) -> list[EventRow]:
        """Return transitions in the order in which they were written."""
        table = schema.events.c
        statement = sa.select(*_EVENT_COLUMNS).where(table.sweep == sweep).order_by(table.id)
        if number is not None:
            statement = statement.where(table.number == number)
        return [EventRow(*row) for row in self._rows(statement)]

    def constraint_scores(self, sweep: str, metrics: Collection[str]) -> dict[int, dict[str, float]]:
        """Return trial number -> metric -> the value that was read for it, for these metrics."""
        table = schema.scores.c
        found: dict[int, dict[str, float]] = {}
        if metrics:
            statement = sa.select(table.number, table.metric, table.value).where(
                table.sweep == sweep, table.metric.in_(list(metrics)), table.step == -1
            )
            for row in self._rows(statement):
                found.setdefault(row.number, {})[row.metric] = float(row.value)
        return found

    def objective_scores(self, sweep: str) -> dict[int, dict[int, float]]:
        """Return trial number -> place, from 1 -> value of the further ones of several objectives."""
        table = schema.scores.c
        statement = sa.select(table.number, table.step, table.value).where(
            table.sweep == sweep, table.step < -1
        )
        found: dict[int, dict[int, float]] = {}
        for row in self._rows(statement):
            found.setdefault(row.number, {})[-1 - row.step] = float(row.value)
        return found

    def curve_scores(self, sweep: str, metric: str) -> list[StoredScore]:
        """Return the values of curves that were stored for a stopping rule, by trial and step."""
        table = schema.scores.c
        columns = sa.select(table.number, table.step, table.value).order_by(table.number, table.step)
        rows = self._rows(columns.where(table.sweep == sweep, table.metric == metric, table.step >= 0))
        return [StoredScore(row.number, metric, row.step, float(row.value)) for row in rows]

    def first_failures(self, sweep: str, since: float) -> Mapping[str, int]:
        """Return signature -> how many trials' first failing attempt since a time ended with it."""
        table = schema.attempts.c
        firsts = (
            sa.select(table.number, sa.func.min(table.attempt).label("attempt"))
            .where(table.sweep == sweep, table.signature != "", table.ended_at > since)
            .group_by(table.number)
            .subquery()
        )
        rows = self._rows(
            sa.select(table.signature, sa.func.count())
            .join(firsts, sa.and_(table.number == firsts.c.number, table.attempt == firsts.c.attempt))
            .where(table.sweep == sweep)
            .group_by(table.signature)
        )
        return {row[0]: row[1] for row in rows}

    def ran_out_of_memory(self, sweep: str) -> set[int]:
        """Return the numbers of the trials of which an attempt ran out of memory."""
        table = schema.attempts.c
        statement = sa.select(table.number).where(
            table.sweep == sweep, table.reason == Reason.OUT_OF_MEMORY.value
        )
        return {row.number for row in self._rows(statement)}

    def ended_attempts(self, sweep: str) -> list[EndedAttempt]:
        """Return what attempts say of their hosts, by trial and attempt.

        Those from before failed trials were last taken up again do not count: something was mended then.
        """
        table = schema.attempts.c
        mended = max(self.reopenings(sweep).values(), default=0.0)
        columns = [table[name] for name in EndedAttempt.__dataclass_fields__]
        statement = (
            sa.select(*columns)
            .where(table.sweep == sweep, table.host != "", table.ended_at > mended)
            .order_by(table.number, table.attempt)
        )
        return [EndedAttempt(*row) for row in self._rows(statement)]

    def reopenings(self, sweep: str) -> Mapping[int, float]:
        """Return number -> when a trial was last taken up again, of those that were."""
        table = schema.events.c
        statement = sa.select(table.number, sa.func.max(table.at)).group_by(table.number)
        is_meant = sa.and_(table.sweep == sweep, table.kind == EventKind.REOPENED.value)
        return {row[0]: row[1] for row in self._rows(statement.where(is_meant))}

    def code_versions(self, sweep: str) -> dict[str, int]:
        """Return digest of the code -> how many trials' last attempts ran it, in the order of first use."""
        table = schema.attempts.c
        lasts = (
            sa.select(table.number, sa.func.max(table.attempt).label("attempt"))
            .where(table.sweep == sweep)
            .group_by(table.number)
            .subquery()
        )
        rows = self._rows(
            sa.select(table.code, sa.func.count())
            .join(lasts, sa.and_(table.number == lasts.c.number, table.attempt == lasts.c.attempt))
            .where(table.sweep == sweep)
            .group_by(table.code)
            .order_by(sa.func.min(table.claimed_at))
        )
        return {row[0]: row[1] for row in rows}

    def ended_since(self, sweep: str, since: float) -> int:
        """Return how many trials have ended for good since a time."""
        table = schema.trials.c
        statement = sa.select(sa.func.count()).where(
            table.sweep == sweep, table.state.in_(_final()), table.ended_at >= since
        )
        return int(self._rows(statement)[0][0])

    def claim_details(self, sweep: str, number: int | None = None) -> dict[tuple[int, int], str]:
        """Return (trial, attempt) -> what was said when it was taken up, where anything was."""
        table = schema.events.c
        statement = (
            sa.select(table.number, table.attempt, table.detail)
            .where(table.sweep == sweep, table.kind == EventKind.CLAIMED.value, table.detail != "")
            .order_by(table.id)
        )
        if number is not None:
            statement = statement.where(table.number == number)
        return {(row.number, row.attempt): row.detail for row in self._rows(statement)}

    def best_value(self, sweep: str, *, minimize: bool) -> tuple[float, int] | None:
        """Return (value, number) of the best value of a succeeded trial so far, None for none."""
        table = schema.trials.c
        best = table.value if minimize else table.value.desc()
        rows = self._rows(
            sa.select(table.value, table.number)
            .where(table.sweep == sweep, table.state == State.SUCCEEDED, table.value.is_not(None))
            .order_by(best, table.number)
            .limit(1)
        )
        return (rows[0].value, rows[0].number) if rows else None

    def started_count(self, sweep: str) -> int:
        """Return how many trials were ever started."""
        table = schema.attempts.c
        statement = sa.select(sa.func.count(sa.distinct(table.number))).where(table.sweep == sweep)
        return int(self._rows(statement)[0][0])

    def accelerator_seconds(self, sweep: str) -> dict[str, float]:
        """Return attempt state -> accelerator-seconds of the ended attempts in it."""
        table = schema.attempts.c
        spent = sa.func.sum((table.ended_at - table.started_at) * table.accelerators)
        rows = self._rows(
            sa.select(table.state, spent)
            .where(table.sweep == sweep, table.started_at.is_not(None), table.ended_at.is_not(None))
            .group_by(table.state)
        )
        return {row[0]: max(0.0, float(row[1])) for row in rows}


def pages(numbers: Collection[int]) -> Iterator[Sequence[int]]:
    """Yield numbers in order, as many at a time as a statement has room for."""
    ordered = sorted(numbers)
    for start in range(0, len(ordered), PAGE):
        yield ordered[start : start + PAGE]


def _final() -> list[State]:
    return [state for state in State if state.is_final]

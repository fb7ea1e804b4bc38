"""More replicates of the points that may have won, added to a sweep that has ended: once, whatever dies."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from airflows.drivers import current_owner
from airflows.engine.driver import LEASE_TTL_S
from airflows.engine.reopen import running_again
from airflows.engine.results import gather
from airflows.engine.site import Site
from airflows.engine.source import Replicates
from airflows.errors import ConflictError
from airflows.ledger import SweepRow
from airflows.ranking import Group, Ranking
from airflows.report.verdict import shown_ranks, verdict
from airflows.trial import State, Trial


def add_replicates(site: Site, sweep: str, more: int, *, now: float) -> str:
    """Write down more replicates of the points that may have won; return what was done, for people.

    They are added to a sweep that has ended. One that has not goes on first, and nothing is added: what was
    asked for before a crash is there already, and is not added once more.

    Args:
        site: what the sweep works with.
        sweep: its id.
        more: how many for each point.
        now: seconds since the epoch, UTC.

    Raises:
        ConflictError: nothing says which values they would have, or which points they would be of;
            or the sweep has other trials that would run on too.
        LeaseHeldError: somebody drives it.
    """
    ledger = site.ledger
    replicates = Replicates(site.spec)
    _require_rule(site, sweep)
    lease = ledger.hold(sweep, current_owner(), now=now, ttl_s=LEASE_TTL_S, token=uuid.uuid4().hex)
    try:
        row = ledger.sweep(sweep)
        trials = ledger.trials(sweep)
        if row.ended_at is None:
            return _goes_on(sweep, [trial for trial in trials if trial.replicate >= replicates.count])
        _require_whole(row, trials)
        groups = _chosen(gather(ledger, row).ranking, sweep)
        points = sorted(group.point for group in groups)
        made = _made(sweep, points, more, trials)
        total = None if row.total is None else row.total + len(made)
        goes_on = {**running_again(now), "total": total}
        # One transaction: either all of them are there and the sweep goes on, or none is.
        ledger.add_points(lease, [], made, **goes_on)
    finally:
        ledger.release(lease)
    which = f"each of the {len(groups)} points ranked {shown_ranks(groups)}"
    return f"{len(made)} trials are added: {more} more replicate{'s' * (more > 1)} of {which}."


def _require_rule(site: Site, sweep: str) -> None:
    replicates = site.spec.replicates
    if replicates is None:
        message = f"sweep {sweep} has no replicates, so nobody can say what further ones would differ in."
        hint = (
            "Give the sweep file replicates, such as {key: parameters.seed, values: [0, 1, 2]}:"
            " that is another sweep."
        )
        raise ConflictError(message, hint=hint)
    try:
        Replicates(site.spec).value(len(replicates.values))
    except ValueError as exc:
        message = f"sweep {sweep}: {exc}."
        raise ConflictError(message, hint="Start another sweep with more values, of these points.") from exc


def _require_whole(row: SweepRow, trials: Sequence[Trial]) -> None:
    waits = any(trial.state is State.PENDING for trial in trials)
    if row.exhausted and not waits:
        return
    # Reopened, it would run these too.
    message = f"sweep {row.id} ended before all its trials had run, so no replicates are added yet."
    # Where nothing waits, a plain resume leaves a cancelled sweep as it is.
    command = f"airflows resume {row.id}" if waits or row.halted else f"airflows resume {row.id} --failed"
    raise ConflictError(message, hint=f"Let it run to its end first: {command}")


def _goes_on(sweep: str, added: Sequence[Trial]) -> str:
    waiting = sum(not (trial.state.is_final and trial.closed) for trial in added)
    words = f" {waiting} of its trials are replicates that were added before." if waiting else ""
    return f"{sweep} has not ended, so it goes on, and no replicates are added now.{words}"


def _chosen(ranking: Ranking | None, sweep: str) -> Sequence[Group]:
    """Return the points of which more replicates would tell more, best first."""
    if ranking is None or (ranking.winner is None and not ranking.front):
        message = f"sweep {sweep} has no winner, so there is nothing that more replicates would confirm."
        raise ConflictError(message, hint=f"`airflows results {sweep}` says why each trial is not ranked.")
    if ranking.winner is None:
        return ranking.front
    found = verdict(ranking)
    if found is None or len(found.contenders) == 1:
        message = f"nothing in sweep {sweep} may be as good as its winner, beyond noise."
        raise ConflictError(message, hint="No more replicates are needed to tell it from the others.")
    return found.contenders


def _made(sweep: str, points: Iterable[int], more: int, trials: Sequence[Trial]) -> list[Trial]:
    """Return the new trials: the replicates of a point follow each other, at the end of all trials."""
    last: dict[int, int] = {}
    for trial in trials:
        last[trial.point] = max(last.get(trial.point, -1), trial.replicate)
    number = max((trial.number for trial in trials), default=-1) + 1
    new = [(point, last[point] + 1 + place) for point in points for place in range(more)]
    return [Trial(sweep, at, point, replicate) for at, (point, replicate) in enumerate(new, number)]

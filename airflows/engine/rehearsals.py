"""Rehearsing a sweep: a sweep of its own is driven to its end, what it left behind is gathered and judged."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from airflows.backends.base import keeper_of
from airflows.drivers import Owner
from airflows.engine import operations
from airflows.engine.drive import Drive
from airflows.engine.gathering import gather_evidence
from airflows.engine.observers import Observer
from airflows.engine.operations import driver_of
from airflows.engine.planned import Wanted as Planned
from airflows.engine.site import Site, open_site
from airflows.engine.start import Begun
from airflows.errors import ConflictError, LeaseHeldError
from airflows.ledger import SweepRow, SweepState, Wish, open_ledger
from airflows.rehearsal.casting import MOST_BRANCHES, Cast, cast_of
from airflows.rehearsal.estimate import Estimate, estimate, estimate_rows
from airflows.rehearsal.judgement import Wanted, is_go, judge
from airflows.rehearsal.rows import Mark, Row
from airflows.rehearsal.script import TAG, Script
from airflows.rehearsal.sweep import rehearsal_of
from airflows.sweepfile import LoadedSweep
from airflows.vetting import validate_points

STEPS = 3
TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a rehearsal.

    Attributes:
        steps: steps that a trial logs before it has shown enough, after it was resumed.
        timeout_s: longest time that an attempt runs.
        branches: most branches of the space that are rehearsed.
        full_steps: steps of a whole trial, for the estimate; None to go by `stop.max_steps`.
        requires_checkpoint: no-go unless it is shown that trials resume.
        excused: swept keys that need not change anything in the first steps, by name or its last part.
    """

    steps: int = STEPS
    timeout_s: float = TIMEOUT_S
    branches: int = MOST_BRANCHES
    full_steps: int | None = None
    requires_checkpoint: bool = False
    excused: frozenset[str] = frozenset()


@dataclass(slots=True)
class Rehearsed:
    """A rehearsal after it was driven.

    Attributes:
        row: its sweep.
        cast: which trials it has.
        rows: the go/no-go table; empty when it was interrupted.
        known: what was measured.
        kept: what is left of it, each with where.
    """

    row: SweepRow
    cast: Cast
    rows: list[Row] = field(default_factory=list)
    known: Estimate = field(default_factory=Estimate)
    kept: dict[str, str] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether all that was to be seen was seen; else it was interrupted or cancelled."""
        return bool(self.rows)

    @property
    def is_go(self) -> bool:
        """Whether nothing speaks against starting the sweep."""
        return self.is_over and is_go(self.rows)


@dataclass(frozen=True, slots=True)
class AsRehearsed(Planned):
    """What a sweep has to be after its rehearsal: the same code; and what was planned, if it was.

    Attributes:
        row: the rehearsal.
        asked: the plan, None for none.
    """

    row: SweepRow | None = None
    asked: Planned | None = None

    def require(self, site: Site, code: str) -> str:
        """Return the hash of the plan that is about to start, empty for none.

        Raises:
            ConflictError: it is not what was planned, or not the code that was rehearsed.
        """
        if self.row is not None and code != self.row.code:
            changes = site.code_changes(self.row.code, code)
            message = (
                f"the code is not that of {self.row.id}: {changes or 'other files than were rehearsed'}."
            )
            raise ConflictError(message, hint="Nothing was started. Rehearse it again, or put the code back.")
        return "" if self.asked is None else self.asked.require(site, code)


def rehearse(
    sweep: LoadedSweep,
    request: Request,
    *,
    home: Path,
    observer: Observer | None = None,
    on_begun: Callable[[Begun, Drive], None],
) -> Rehearsed:
    """Rehearse a sweep; nothing of the sweep itself is started.

    A rehearsal whose driver died is taken up where it stood. One of another file, or of other code, is
    cancelled first.

    Args:
        sweep: the sweep.
        request: what is asked.
        home: `$AIRFLOWS_HOME`.
        observer: is told what happens.
        on_begun: is called once the rehearsal is in the ledger, with the drive that can be paused.

    Raises:
        SpecError: a point of the sweep is no valid train.yaml; or a key that is excused is not swept.
        LeaseHeldError: somebody else rehearses the sweep now.
        BackendUnavailableError: the backend cannot be used.
        TrackingUnavailableError: MLflow does not answer.
    """
    validate_points(sweep)
    cast = cast_of(sweep, most_branches=request.branches)
    request = replace(request, excused=frozenset(map(cast.key_named, request.excused)))
    metrics = (*_metrics_of(sweep), *_bounded(sweep))
    script = Script(sweep.spec.name, len(cast.branches), request.steps, request.timeout_s, metrics)
    rehearsal = rehearsal_of(sweep, cast, script)
    validate_points(rehearsal)
    row = _driven(rehearsal, home, observer, on_begun)
    done = Rehearsed(row, cast)
    if row.ended_at is None or row.state is SweepState.CANCELLED:
        return done
    # As it was asked for: what the ledger has lacks an MLflow address that holds a password.
    site = open_site(rehearsal, home, row=row)
    try:
        _conclude(done, site, sweep, request)
    finally:
        site.ledger.close()
    return done


def _metrics_of(sweep: LoadedSweep) -> tuple[str, ...]:
    """Return the metrics that decide: those of the objectives, and the stopping rule's own."""
    own = [sweep.spec.stop.metric] if sweep.spec.stop.metric else []
    return tuple(dict.fromkeys([*(each.metric for each in sweep.spec.all_objectives), *own]))


def _bounded(sweep: LoadedSweep) -> tuple[str, ...]:
    """Return the further metrics that constraints look at: a trial that does not log them never wins."""
    every = (bound.metric for each in sweep.spec.all_objectives for bound in each.constraints)
    return tuple(name for name in dict.fromkeys(every) if name not in _metrics_of(sweep))


def _driven(
    rehearsal: LoadedSweep,
    home: Path,
    observer: Observer | None,
    on_begun: Callable[[Begun, Drive], None],
) -> SweepRow:
    left = _left_over(rehearsal, home)
    if left is not None:
        try:
            return operations.start(rehearsal, home=home, observer=observer, on_begun=on_begun).row
        except ConflictError:
            # The code has changed since.
            _cancel(left, home)
    return operations.start(rehearsal, home=home, observer=observer, new=True, on_begun=on_begun).row


def _left_over(rehearsal: LoadedSweep, home: Path) -> SweepRow | None:
    """Return the rehearsal that nobody has ended, if it is just this one; others are cancelled.

    Raises:
        LeaseHeldError: somebody drives it.
    """
    with closing(open_ledger(home)) as ledger:
        active = ledger.sweeps(active_only=True)
    rows = [row for row in active if _is_rehearsal(row, rehearsal.spec.name)]
    same = [row for row in rows if row.source == rehearsal.source and row.wish is not Wish.STOP][:1]
    for row in rows:
        _require_alone(row)
        if row not in same:
            _cancel(row, home)
    return same[0] if same else None


def _is_rehearsal(row: SweepRow, name: str) -> bool:
    """Whether a sweep is a rehearsal of this name, and not somebody's sweep that happens to be called so."""
    return row.name == name and TAG in row.source


def _require_alone(row: SweepRow) -> None:
    owner = driver_of(row)
    if owner is None or owner.is_dead() or (row.lease_until or 0.0) < time.time():
        return
    message = f"{row.id} is being rehearsed by {_who(owner)}."
    hint = f"Wait for it, or end it: airflows cancel {row.id}"
    raise LeaseHeldError(message, owner=row.lease_owner, hint=hint)


def _who(owner: Owner) -> str:
    return f"process {owner.pid} on {owner.host}"


def _cancel(row: SweepRow, home: Path) -> None:
    for _, error in operations.cancel([row.id], home=home).failed:
        raise error


# Conclusions


def _conclude(done: Rehearsed, site: Site, sweep: LoadedSweep, request: Request) -> None:
    trials = gather_evidence(site, done.row, (*_metrics_of(sweep), *_bounded(sweep)))
    stop = sweep.spec.stop
    full_steps = request.full_steps or stop.max_steps
    done.known = estimate(sweep, done.cast, trials, full_steps)
    wanted = Wanted(
        metrics=_metrics_of(sweep),
        bounded=_bounded(sweep),
        needs_steps=stop.method is not None,
        has_file=bool(site.sweep.base.tree.get("parameters")),
        logs=not site.tracker.is_off,
        requires_checkpoint=request.requires_checkpoint or sweep.spec.strict,
        excused=request.excused,
    )
    done.rows = [
        *judge(done.cast, trials, wanted),
        *_places(site, done.row),
        *estimate_rows(sweep, done.known),
    ]
    done.kept = _tidied(site, done.row, is_go=done.is_go)


def _places(site: Site, row: SweepRow) -> list[Row]:
    """Return what is to be said of places where a sweep that bursts may go, and no trial has been."""
    used = {trial.backend for trial in site.ledger.trials(row.id)}
    names = [place.name for place in site.places]
    left = [name for name in names if name not in used]
    if len(names) == 1 or not left:
        return []
    seen = ", ".join(name for name in names if name in used) or "nothing"
    return [Row("places", Mark.WARN, f"only {seen} was rehearsed, not {', '.join(left)}")]


def _tidied(site: Site, row: SweepRow, *, is_go: bool) -> dict[str, str]:
    """Remove the checkpoints of earlier rehearsals, and of this one if all is well; return what is kept."""
    kept = {"runs": str(site.backend.root / "runs" / row.id)}
    if row.parent_run_id:
        kept["mlflow"] = row.parent_run_id
    place = site.places[0]
    directory = Path(site.launcher(row, place).checkpoints(0)[0]).parent
    if keeper_of(place.own) is not None:
        # Out of our sight.
        return kept | {"checkpoints": str(directory)}
    for other in site.ledger.sweeps():
        is_done_with = other.ended_at is not None and (is_go or other.id != row.id)
        if is_done_with and _is_rehearsal(other, row.name):
            shutil.rmtree(directory.with_name(other.id), ignore_errors=True)
    return kept | ({"checkpoints": str(directory)} if directory.exists() else {})

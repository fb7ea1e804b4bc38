"""`resume --rebuild`: a sweep that the ledger has lost, written anew from what else tells of it.

Everything is asked first, and written in one transaction. Whatever dies before that has written nothing, and
after it the sweep is like any other that is taken up: what is in doubt is in doubt, and what runs is adopted.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflows.edits import Edits
from airflows.engine.drive import Drive
from airflows.engine.driver import LEASE_TTL_S
from airflows.engine.lookout import tail
from airflows.engine.lost import Lost, look_for, require_nobody, with_parent
from airflows.engine.observers import Observer, Silent
from airflows.engine.operations import Driven
from airflows.engine.recall import Known, Trace, recall, require_same_points
from airflows.engine.retelling import REBUILT, Teller
from airflows.engine.site import Site, require_host, retry_of
from airflows.engine.source import CHUNK, Chunk, PointSource, Replicates
from airflows.engine.start import Begun, require_backend, require_same_store
from airflows.engine.submission import Submission
from airflows.errors import ConflictError, NotFoundError, SpecError
from airflows.ledger import Change, Ledger, SweepRow, Wish
from airflows.retry import NO_RETRIES, RetryPolicy
from airflows.space import expand
from airflows.spec import ADAPTIVE, SweepSpec
from airflows.tracking import FoundRun
from airflows.trial import Reason, State, Trial

_HALTED = "Nothing new was started: "


def rebuild(
    wanted: str,
    *,
    home: Path,
    observer: Observer | None = None,
    drive: bool = True,
    on_begun: Callable[[Begun, Drive], None] = lambda _begun, _drive: None,
) -> Driven:
    """Write a lost sweep into the ledger again, and drive it on as it is wanted.

    Args:
        wanted: its sweep.yaml; or its id or name, where its record lies under `home`.
        home: `$AIRFLOWS_HOME`.
        observer: is told what happens.
        drive: False leaves the driving to somebody else, where there is something left to do.
        on_begun: is called once the sweep is in the ledger, with the drive that can be paused.

    Raises:
        NotFoundError: nothing tells of such a sweep.
        ConflictError: it is in the ledger, or the file is not that of the sweep.
        LeaseHeldError: somebody drives it.
        BackendUnavailableError: the backend does not answer, or the trials are another machine's.
        TrackingUnavailableError: MLflow does not answer.
    """
    site, lost = look_for(wanted, home)
    try:
        begun = rebuilt(site, lost, now=time.time())
        driving = Drive(site, observer or Silent())
        on_begun(begun, driving)
        # A driver in the background resumes, which would take up what was halted or cancelled.
        goes_on = drive or begun.row.wish is not Wish.RUN
        return Driven(driving.run(begun.row.id) if goes_on else begun.row, is_new=False)
    finally:
        site.ledger.close()


def rebuilt(site: Site, lost: Lost, *, now: float) -> Begun:
    """Write a lost sweep into the ledger; return it as it stands. One that was rebuilt before is left alone.

    Args:
        site: what the sweep works with.
        lost: which sweep it is.
        now: seconds since the epoch, UTC.
    """
    row = lost.row
    if (there := _there(site.ledger, row.id)) is not None:
        return Begun(there, is_new=False)
    require_nobody(lost)
    if site.spec.method in ADAPTIVE:
        message = f"--rebuild of a sweep whose points are chosen by {site.spec.method} is not supported yet."
        raise SpecError(message, field="search.method", hint="Start another with: airflows sweep FILE --new")
    require_host(site.ledger, row, now=now)
    require_backend(site)
    if lost.is_recorded:
        require_same_store(site.tracker, row)
    lost = with_parent(site, lost)
    chunk, known = _known(site, lost)
    row = _row(site, lost, known, chunk, now)
    changes = _stories(site, row, chunk, known)
    ends = {change.after.number: change.after for change in changes}
    trials = [ends.get(trial.number, trial) for trial in chunk.trials]
    trials = [replace(trial, run_id=trial.run_id or _run_of(known, trial.number)) for trial in trials]
    orphaned = Edits.from_text(row.edits).orphaned
    trials = [replace(t, cancel_requested=t.point in orphaned and not t.state.is_final) for t in trials]
    site.ledger.restore_sweep(row, chunk.points, trials, changes)
    there = site.ledger.sweep(row.id)
    return Begun(there, is_new=False, notices=(*lost.notices, _counted(there, trials)))


def _there(ledger: Ledger, sweep: str) -> SweepRow | None:
    """Return a sweep that was rebuilt already; None when it is not there.

    Raises:
        ConflictError: the ledger has it, and it was never lost.
    """
    try:
        row = ledger.sweep(sweep)
    except NotFoundError:
        return None
    if REBUILT in ledger.claim_details(sweep).values():
        return row
    message = f"sweep {sweep} is in the ledger, so nothing of it is lost and nothing was rebuilt."
    raise ConflictError(message, hint=f"Take it up with: airflows resume {sweep}")


def _known(site: Site, lost: Lost) -> tuple[Chunk, dict[int, Known]]:
    """Return the trials up to the last one of which something is known, and what is known of them."""
    row, replicates = lost.row, Replicates(site.spec).count
    count = expand(site.sweep).count()
    planned = None if count is None else count * replicates
    known = recall(site, row, planned)
    if not (lost.is_recorded or lost.parents or known):
        where = site.backend.name if site.tracker.is_off else f"{site.backend.name} nor MLflow"
        message = f"neither {site.backend.root / 'runs'} nor {where} knows anything of sweep {row.id}."
        raise NotFoundError(message, hint="Start it with: airflows sweep FILE")
    _require_same_root(site, lost, known)
    last = max(known, default=-1)
    if planned is not None and last >= planned:
        chunk = PointSource(row, expand(site.sweep), site.spec, 0).next(count or 0)
        return _with_added(site, row, chunk, known), known
    require_same_points(known, replicates, planned)
    # Whole chunks, as a driver takes them: in a sweep that was cancelled or halted no more of them come.
    chunks = max(1, -(-(last + 1) // (replicates * CHUNK)))
    return PointSource(row, expand(site.sweep), site.spec, 0).next(chunks * CHUNK), known


def _with_added(site: Site, row: SweepRow, chunk: Chunk, known: Mapping[int, Known]) -> Chunk:
    """Return the planned trials and the replicates that were added later, as MLflow knows them.

    Raises:
        ConflictError: it does not know one.
    """
    replicates, planned = Replicates(site.spec), len(chunk.trials)
    points = {point.number: point.overrides for point in chunk.points}
    trials, overrides = list(chunk.trials), dict(chunk.overrides)
    require_same_points(known, replicates.count, planned)
    for number in range(planned, max(known) + 1):
        place = known[number].place if number in known else None
        if place is None or place[0] not in points or place[1] < replicates.count:
            message = f"trial {number} of sweep {row.id} was started, and the file has only {planned} trials."
            raise ConflictError(message, hint="Give the file as the sweep last ran: is search.trials less?")
        trials.append(Trial(row.id, number, *place))
        overrides[number] = replicates.overrides(points[place[0]], place[1])
    progress = {"expanded": len(chunk.points), "exhausted": True, "total": len(trials)}
    return Chunk(chunk.points, trials, overrides, progress)


def _require_same_root(site: Site, lost: Lost, known: Mapping[int, Known]) -> None:
    """Check that runs which MLflow knows as unfinished are not where this machine cannot see them."""
    is_here = lost.is_recorded or any((root / "runs" / lost.row.id).exists() for root in site.roots)
    if is_here or any(place.own.capabilities.uploads for place in site.places):
        return
    unseen = sorted(number for number, trial in known.items() if trial.end is None and trial.last < 0)
    if unseen:
        message = (
            f"MLflow has trial {unseen[0]} of sweep {lost.row.id}, which may still run, and"
            f" {site.backend.root} has nothing of the sweep."
        )
        hint = "Rebuild it where it ran: on that machine, with its AIRFLOWS_HOME or root."
        raise ConflictError(message, hint=hint)


def _row(site: Site, lost: Lost, known: Mapping[int, Known], chunk: Chunk, now: float) -> SweepRow:
    row, count = lost.row, expand(site.sweep).count()
    planned = None if count is None else count * Replicates(site.spec).count
    written = [t.written_at for trial in known.values() for t in trial.traces.values() if t.written_at]
    is_known_dead = lost.is_recorded and (lost.driver is None or lost.driver.is_dead())
    return replace(
        row,
        **_ended(lost.parents),
        code=row.code if lost.is_recorded else site.prepare_code(),
        root=str(site.backend.root),
        tracking_uri=site.tracker.uri,
        created_at=row.created_at or min(written, default=now),
        doubt_until=0.0 if is_known_dead else now + LEASE_TTL_S,
        **{"total": planned, **chunk.progress},
    )


def _ended(parents: Sequence[FoundRun]) -> dict[str, Any]:
    """Return the columns of a sweep that was ended before its trials were, as MLflow was told."""
    for parent in parents:
        state, message = (parent.tags.get(f"airflows.{name}", "") for name in ("state", "message"))
        if parent.status == "RUNNING":
            continue
        if state == "cancelled" and message.startswith("It was cancelled"):
            return {"wish": Wish.STOP}
        if message.startswith(_HALTED):
            kind = "stopped" if state == "stopped" else "failed"
            return {"wish": Wish.HALT, "halted": f"{kind}: {message.removeprefix(_HALTED).rstrip('.')}"}
    return {}


def _stories(site: Site, row: SweepRow, chunk: Chunk, known: Mapping[int, Known]) -> list[Change]:
    submission = Submission(
        site.sweep.base.tree,
        lambda place: site.launcher(row, place),
        site.tracker,
        site.backend,
        time.time,
        site.spec.retry.on_out_of_memory or {},
    )
    submission.pack = site.spec.pack
    can = site.backend.capabilities
    policy = NO_RETRIES if can.retries_itself else retry_of(site.spec, site.sweep.base.tree)

    def policy_of(number: int) -> RetryPolicy:
        return replace(policy, relieves=submission.would_relieve(number, chunk.overrides[number]))

    def values(number: int) -> Mapping[str, Any]:
        return {**chunk.overrides[number], **submission.relief(number)}

    def tail_of(number: int, trace: Trace) -> list[str]:
        if trace.handle is None:
            return []
        node = 0 if trace.seen is None else trace.seen.node
        nodes = submission.nodes(values(number), trace.place)
        return tail(site.backend, trace.handle, nodes, node)

    teller = Teller(
        row=row,
        policy=policy_of,
        tail=tail_of,
        relief=submission.relief,
        ran_out_of_memory=lambda number: submission.ran_out_of_memory([number]),
        accelerators=lambda number, place: submission.accelerators(values(number), place),
        ended_by_us=_ended_by_us(site.spec),
        places=[place.name for place in site.places],
    )
    stories = (teller.tell(trial, known[trial.number]) for trial in chunk.trials if trial.number in known)
    return list(itertools.chain.from_iterable(stories))


def _ended_by_us(spec: SweepSpec) -> Reason:
    if spec.stop.method in {None, "nan"}:
        return Reason.USER
    return Reason.PAUSED if spec.stop.resume else Reason.RULE


def _run_of(known: Mapping[int, Known], number: int) -> str:
    return known[number].run_id if number in known and not known[number].is_service_s else ""


def _counted(row: SweepRow, trials: Sequence[Trial]) -> str:
    ended = sum(trial.state.is_final for trial in trials)
    begun = sum(trial.state is not State.PENDING for trial in trials) - ended
    total = "" if row.total is None else f" of {row.total}"
    counts = f"{ended}{total} trials had ended as MLflow was told, {begun} others were begun"
    return f"{row.id} is in the ledger again: {counts}."

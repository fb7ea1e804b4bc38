"""Gathering what a rehearsal left behind in the ledger, in MLflow, on the disk and in Slurm's accounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from airflows.backends.base import keeper_of
from airflows.backends.measuring import MeasuresMemory
from airflows.checkpoints import newest
from airflows.engine.accesstimes import was_read
from airflows.engine.rehearsing import GPU_MEMORY, HOST_MEMORY
from airflows.engine.site import Site
from airflows.errors import BackendUnavailableError
from airflows.ledger import AttemptRow, EventRow, SweepRow
from airflows.rehearsal.evidence import OF_THE_SYSTEM, AttemptSeen, TrialSeen
from airflows.scores import MetricPoint
from airflows.trial import EventKind, Handle, Reason, Trial

_MOST_METRICS = 40
_FILE = "hyperparameters.yaml"


def gather_evidence(site: Site, row: SweepRow, metrics: Sequence[str]) -> Mapping[int, TrialSeen]:
    """Return what was seen of each trial of a rehearsal that has ended, by number.

    Args:
        site: what it works with.
        row: the rehearsal.
        metrics: those that must not be left out.

    Raises:
        TrackingUnavailableError: MLflow does not answer.
    """
    site.attach_tracking(row)
    trials = site.ledger.trials(row.id)
    attempts, events = site.ledger.attempts(row.id), site.ledger.events(row.id)
    curves = _curves(site, [trial.run_id for trial in trials if trial.run_id], metrics)
    host, gpu = _memory(site, row, attempts)
    return {
        trial.number: TrialSeen(
            number=trial.number,
            state=trial.state,
            message=trial.message,
            attempts=_attempts(trial, attempts, events),
            curves=curves.get(trial.run_id, {}),
            checkpoint=_checkpoint(site, row, trial),
            was_read=_was_read(site, row, trial),
            host_bytes=host.get(trial.number),
            gpu_bytes=gpu.get(trial.number),
        )
        for trial in trials
    }


def _attempts(trial: Trial, attempts: Sequence[AttemptRow], events: Sequence[EventRow]) -> list[AttemptSeen]:
    asked = {
        event.attempt: event.at
        for event in events
        if event.number == trial.number and event.kind == EventKind.STOP_ASKED
    }
    return [
        AttemptSeen(
            claimed_at=each.claimed_at,
            started_at=each.started_at,
            asked_at=asked.get(each.attempt),
            ended_at=each.ended_at,
            exit_code=each.exit_code,
            reason=Reason(each.reason),
            resumed_from=each.resumed_from,
        )
        for each in sorted(attempts, key=lambda each: each.attempt)
        if each.number == trial.number and each.submitted_at is not None
    ]


def _curves(
    site: Site, run_ids: Sequence[str], metrics: Sequence[str]
) -> Mapping[str, Mapping[str, Sequence[MetricPoint]]]:
    found: dict[str, dict[str, Sequence[MetricPoint]]] = {run_id: {} for run_id in run_ids}
    if site.tracker.is_off or not run_ids:
        return found
    latest = site.tracker.latest(run_ids)
    names = {name for logged in latest.values() for name in logged if not name.startswith(OF_THE_SYSTEM)}
    decide = sorted(names & set(metrics))
    for metric in [*decide, *sorted(names - set(decide))[:_MOST_METRICS]]:
        for run_id, points in site.tracker.curve(run_ids, metric):
            if points:
                found[run_id][metric] = points
    return found


def _checkpoint(site: Site, row: SweepRow, trial: Trial) -> str:
    """Return the name of a trial's newest checkpoint, empty for none, or where nobody knows."""
    place = site.places[0]
    keeper = keeper_of(place.own)
    look = newest if keeper is None else keeper.newest_checkpoint
    try:
        found = look(*site.launcher(row, place).checkpoints(trial.number))
    except (BackendUnavailableError, OSError):
        return ""
    return "" if found is None else PurePosixPath(found[0]).name


def _was_read(site: Site, row: SweepRow, trial: Trial) -> bool | None:
    """Return whether any attempt has read its hyperparameters; None where that cannot be told."""
    if site.backend.capabilities.uploads:
        return None
    directory = Path(site.backend.root, "runs", row.id, str(trial.number))
    seen = {was_read(path) for path in directory.glob(f"a*/{_FILE}")}
    return True if True in seen else None if None in seen or not seen else False


def _memory(
    site: Site, row: SweepRow, attempts: Sequence[AttemptRow]
) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Return (host memory, GPU memory) of the trials in bytes, as far as they are known."""
    host, gpu = (
        {score.number: score.step for score in site.ledger.curve_scores(row.id, name)}
        for name in (HOST_MEMORY, GPU_MEMORY)
    )
    if not isinstance(site.backend, MeasuresMemory) or not site.backend.remembers_memory:
        return host, gpu
    numbers = {Handle(each.handle): each.number for each in attempts if each.handle is not None}
    try:
        used = site.backend.memory(list(numbers))
    except BackendUnavailableError:
        return host, gpu
    for handle, memory in used.items():
        most = max(memory.host_bytes or 0, host.get(numbers[handle], 0))
        host |= {numbers[handle]: most} if most else {}
    return host, gpu

"""The JSON documents of the command line, made from the ledger's rows and from results. Pure.

Keys may be added, never renamed. Times are ISO 8601 UTC, durations seconds, absent values null, numbers
that JSON cannot hold the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from airflows import addresses
from airflows.errors import AirflowsError, SpecError
from airflows.times import to_iso
from airflows.trial import FAILURE_CLASSES, State, Trial

if TYPE_CHECKING:
    from airflows.backends.base import RemoteRun
    from airflows.drivers import Owner
    from airflows.engine.results import SweepResults
    from airflows.hosts import AvoidedHost
    from airflows.ledger import AttemptRow, EventRow, SweepRow
    from airflows.ranking import Group
    from airflows.report.accounting import Spent
    from airflows.report.causes import Cause, Ended

Document = dict[str, Any]
_NOTHING: Mapping[str, Any] = {}

SWEEP_FILTERS = ("backend", "best", "ended_at", "message", "name", "started_at", "state", "sweep")
"""Keys of a sweep's row by which rows may be chosen."""
TRIAL_FILTERS = (
    *("attempt", "backend", "class", "ended_at", "handle", "message", "mlflow_run_id", "number"),
    *("reason", "replicate", "started_at", "state", "trial", "value", "value_step"),
)
"""Keys of a trial by which trials may be chosen, beside those of overrides."""

_COUNTED = {State.SUBMITTING: State.PENDING, State.STOPPING: State.RUNNING}
_SHOWN_STATES = (
    State.PENDING,
    State.QUEUED,
    State.RUNNING,
    State.SUCCEEDED,
    State.FAILED,
    State.STOPPED,
    State.CANCELLED,
)


def to_json(document: Any, *, indent: int | None = 2, ascii_only: bool = False) -> str:
    """Return a document as JSON text, without a newline at its end."""
    return json.dumps(plain(document), indent=indent, ensure_ascii=ascii_only, allow_nan=False)


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    match value:
        case Enum():
            return plain(value.value)
        case float():
            return value if math.isfinite(value) else number_word(value)
        case None | bool() | int() | str():
            return value
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case _:
            return str(value)


def number_word(value: float) -> str:
    """Return the word for a number that JSON has none for."""
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def without_passwords(value: Any) -> Any:
    """Return a tree or text with the secrets in its addresses replaced by `***`."""
    match value:
        case str():
            return addresses.hidden(value)
        case Mapping():
            return {key: without_passwords(item) for key, item in value.items()}
        case list() | tuple():
            return [without_passwords(item) for item in value]
        case _:
            return value


# Sweeps


def counts_document(counts: Mapping[State, int], total: int | None) -> dict[str, int | None]:
    """Return how many trials are in each state; planned ones not yet created are pending."""
    shown = dict.fromkeys(_SHOWN_STATES, 0)
    for state, count in counts.items():
        shown[_COUNTED.get(state, state)] += count
    created = sum(shown.values())
    if total is not None:
        shown[State.PENDING] += max(0, total - created)
    return {"total": total, **{state.value: count for state, count in shown.items()}}


def sweep_row(
    row: SweepRow, counts: Mapping[State, int], best: float | None, driver: Owner | None
) -> Document:
    """Return a sweep as `list` shows it.

    Args:
        row: the sweep.
        counts: its trials by state.
        best: the winner's value, or the best one so far.
        driver: who drives it now.
    """
    return {
        "sweep": row.id,
        "name": row.name,
        "state": row.state,
        "message": row.message,
        "backend": row.backend,
        "trials": counts_document(counts, row.total),
        "best": best,
        "started_at": to_iso(row.created_at),
        "ended_at": to_iso(row.ended_at),
        "driver": None if driver is None else driver_document(driver, row.lease_since),
    }


def driver_document(driver: Owner, since: float | None) -> Document:
    """Return who drives."""
    return {"host": driver.host, "pid": driver.pid, "since": to_iso(since)}


def ended_document(results: SweepResults) -> Document:
    """Return what `run`, `sweep` and `resume` answer."""
    row = results.row
    return {
        "sweep": row.id,
        "state": row.state,
        "trials": counts_document(results.counts, row.total),
        "winner": results.winner,
        "message": row.message,
    }


def objective_document(results: SweepResults) -> Document | None:
    """Return what "best" means, None when the file does not say."""
    if results.objective is None:
        return None
    made: Document = results.objective.model_dump(mode="json")
    return made


def objectives_document(results: SweepResults) -> list[Document] | None:
    """Return all of several objectives, None for one or none."""
    return [objective.model_dump(mode="json") for objective in results.objectives] or None


def sweep_details(
    spec: Mapping[str, Any],
    results: SweepResults,
    causes: Sequence[Document],
    spent: Spent,
    avoided: Sequence[AvoidedHost] = (),
) -> Document:
    """Return what `get SWEEP` adds to the list's row.

    Args:
        spec: the sweep file as effective.
        results: objective and row.
        causes: from `causes_of`.
        spent: by all its attempts.
        avoided: hosts on which its trials keep failing.
    """
    return {
        "spec": without_passwords(spec),
        "objective": objective_document(results),
        "objectives": objectives_document(results),
        "winner": results.winner,
        "parent_run_id": results.row.parent_run_id or None,
        "experiment_id": results.row.experiment_id or None,
        "tracking_uri": without_passwords(results.row.tracking_uri) or None,
        "root": results.row.root,
        "plan": results.row.plan or None,
        "orphaned": sum(results.orphaned.values()),
        "causes": list(causes),
        "avoided": [host.to_dict() for host in avoided],
        **spent.to_dict(),
    }


def causes_of(sweep: str, attempts: Iterable[AttemptRow], trials: Ended = ()) -> list[Document]:
    """Return why attempts failed, what most trials failed of first; `example` is the first attempt of each.

    Args:
        sweep: its id.
        attempts: all of its attempts.
        trials: all of its trials with their overrides, to tell those that failed from the others.
    """
    from airflows.report.causes import causes  # noqa: PLC0415 - the command's help does without

    return [cause_document(cause) for cause in causes(sweep, attempts, trials)]


def cause_document(cause: Cause, last_lines: Sequence[str] = ()) -> Document:
    """Return why some attempts failed; `last_lines` are those of the example's log."""
    example = cause.example
    return {
        "class": class_of(cause.reason),
        "reason": cause.reason or None,
        "count": cause.attempts,
        "trials": len(cause.numbers),
        "failed": cause.failed,
        "where": cause.condition or None,
        "signature": cause.signature,
        "example": f"{cause.trial}.{example.attempt}",
        "message": example.message,
        "last_lines": list(last_lines),
        "next": cause.next,
    }


# Trials


def class_of(reason: str) -> str | None:
    """Return what kind of failure a reason is, None where nothing failed by itself."""
    return str(reason) if reason in FAILURE_CLASSES else None


def trial_document(trial: Trial, overrides: Mapping[str, Any]) -> Document:
    """Return a trial; `overrides` are its own, the replicate's value included."""
    return {
        "trial": trial.id,
        "number": trial.number,
        "overrides": dict(overrides),
        "replicate": trial.replicate,
        "state": trial.state,
        "reason": trial.reason.value or None,
        "class": class_of(trial.reason),
        "message": trial.message or trial.reason.sentence or None,
        "attempt": trial.attempt,
        "backend": trial.backend or None,
        "handle": trial.handle,
        "mlflow_run_id": trial.run_id or None,
        "value": value_of(trial),
        "value_step": trial.value_step,
        "started_at": to_iso(trial.started_at),
        "ended_at": to_iso(trial.ended_at),
    }


def value_of(trial: Trial) -> float | str | None:
    """Return a trial's value: a number, the word for one that cannot win, or None."""
    return trial.raw_value or None if trial.value is None else trial.value


def attempt_document(
    attempt: AttemptRow,
    launch_dir: str,
    log_paths: Sequence[str],
    spent: Spent,
    changed: Mapping[str, Any] = _NOTHING,
) -> Document:
    """Return one attempt at a trial; `changed` are its values in place of those of the trial's overrides."""
    return {
        "attempt": attempt.attempt,
        "state": attempt.state,
        "reason": attempt.reason or None,
        "class": class_of(attempt.reason),
        "message": attempt.message or None,
        "signature": attempt.signature or None,
        "backend": attempt.backend or None,
        "handle": attempt.handle,
        "token": attempt.token,
        "host": attempt.host or None,
        "submitted_at": to_iso(attempt.submitted_at),
        "started_at": to_iso(attempt.started_at),
        "ended_at": to_iso(attempt.ended_at),
        "exit_code": attempt.exit_code,
        "resumed_from": attempt.resumed_from or None,
        "launch_dir": launch_dir,
        "log_paths": list(log_paths),
        "changed": dict(changed),
        **spent.to_dict(),
    }


def event_document(event: EventRow) -> Document:
    """Return one transition."""
    return {
        "at": to_iso(event.at),
        "from": event.from_state or None,
        "to": event.to_state,
        "reason": event.reason or None,
        "detail": event.detail or None,
        "kind": event.kind,
        "attempt": event.attempt,
    }


def remote_document(backend: str, run: RemoteRun, known: tuple[str, int, int] | None) -> Document:
    """Return a run as its backend has it; `known` is the attempt that the ledger has for it."""
    return {
        "backend": backend,
        "handle": run.handle,
        "name": run.name,
        "trial": None if known is None else f"{known[0]}/{known[1]}",
        "attempt": None if known is None else known[2],
        "token": run.token or None,
        "state": run.phase,
        "word": run.word or None,
        "detail": run.detail or None,
        "host": run.host or None,
        "submitted_at": to_iso(run.submitted_at),
        "started_at": to_iso(run.started_at),
    }


# Results


def results_document(
    results: SweepResults,
    ranked: Sequence[Group],
    causes: Sequence[Document] = (),
    versions: Mapping[str, int] = _NOTHING,
    avoided: Sequence[AvoidedHost] = (),
    verdict: Document | None = None,
) -> Document:
    """Return what `results` shows; what parameters matter is added where it was asked for.

    Args:
        results: of the sweep.
        ranked: the groups that were asked for.
        causes: why trials failed, from `cause_document`.
        versions: how many trials ran each version of the code.
        avoided: hosts on which trials keep failing.
        verdict: how far the winner can be trusted, from `verdict_document`.
    """
    unranked = () if results.ranking is None else results.ranking.unranked
    return {
        "sweep": results.row.id,
        "objective": objective_document(results),
        "objectives": objectives_document(results),
        "complete": results.complete,
        "winner": results.winner,
        "ranked": [group.to_dict() for group in ranked],
        "unranked": [
            {"trial": f"{results.row.id}/{trial.number}", "number": trial.number, "reason": trial.reason}
            for trial in unranked
        ],
        "pareto": [group.to_dict() for group in results.front] or None,
        "verdict": verdict,
        "importance": None,
        "causes": list(causes),
        "avoided": [host.to_dict() for host in avoided],
        "code": [{"code": code or None, "trials": trials} for code, trials in versions.items()],
    }


# Errors


def error_document(error: AirflowsError) -> Document:
    """Return an error."""
    made: Document = {
        "kind": error.kind,
        "message": error.message,
        "file": error.file,
        "line": error.line,
        "field": error.field,
        "hint": error.hint,
    }
    if isinstance(error, SpecError) and error.others:
        made["others"] = [problem_document(other) for other in error.others]
    return {"error": made}


def problem_document(error: AirflowsError) -> Document:
    """Return an error of a file as `validate` lists it."""
    message = error.message if error.hint is None else f"{error.message} {error.hint}"
    return {"file": error.file, "line": error.line, "field": error.field, "message": message}

"""Runs of the workspace for people, whether or not a ledger knows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from airflows.backends.base import Phase, RemoteRun
from airflows.backends.databricks import states
from airflows.backends.databricks.finding import token_in
from airflows.backends.databricks.states import MlflowIds, Run
from airflows.trial import Handle


def remote_run(run: Run, ids: MlflowIds) -> RemoteRun:
    """Return an active run as `airflows list --remote` shows it.

    Args:
        run: of a page of `runs/list`.
        ids: of its newest attempt, empty where it was not asked for.
    """
    phase = states.phase_of(run)
    started = _times(run)[0]
    return RemoteRun(
        handle=Handle(str(run.get("run_id"))),
        name=str(run.get("run_name") or ""),
        token=token_in(run),
        phase=phase,
        word=states.word_of(run),
        detail=states.waiting_text(run, ids) if phase is Phase.QUEUED else "",
        host=states.HOST if phase is Phase.RUNNING else "",
        submitted_at=_moment(run.get("start_time")),
        started_at=started if phase is Phase.RUNNING else None,
    )


def story(run: Run, ids: MlflowIds | None, host: str, workspace_id: str, now: float) -> dict[str, Any]:
    """Return what is known of a run, with the keys of `databricks air get -o json` and a few more.

    Args:
        run: the answer of `runs/get`.
        ids: MLflow's, None when they are not known.
        host: the workspace's address.
        workspace_id: its number, empty for none.
        now: seconds since the epoch.
    """
    started, ended = _times(run)
    tasks = states.attempts_of(run)
    task: Mapping[str, Any] = states.ai_task(run) or {}
    compute = states.deployment_of(run).get("compute") or {}
    duration = None if started is None else max(0, round((ended or now) - started))
    mlflow = None
    if ids is not None and ids.run:
        mlflow = f"{host}/ml/experiments/{ids.experiment}/runs/{ids.run}/artifacts/logs/node_0"
    is_waiting = states.phase_of(run) is Phase.QUEUED
    message = states.waiting_text(run, ids or MlflowIds()) if is_waiting else states.message_of(run)
    where = f"?o={workspace_id}" if workspace_id else ""
    return {
        "run_id": str(run.get("run_id")),
        "run_name": str(run.get("run_name") or ""),
        "user": run.get("creator_user_name"),
        "status": states.word_of(run),
        "message": message or None,
        "started_at": None if started is None else datetime.fromtimestamp(started, UTC).isoformat(),
        "duration_seconds": duration,
        "attempt_number": states.attempt_number(tasks[-1]) if tasks else 0,
        "max_retries": tasks[-1].get("max_retries") if tasks else None,
        "experiment_name": _bare(str(task.get("experiment") or "")),
        "accelerators": _label(compute),
        "command_path": states.command_path(run) or None,
        "dashboard_url": f"{host}/jobs/runs/{run.get('run_id')}{where}",
        "mlflow_url": mlflow,
    }


def _label(compute: Mapping[str, Any]) -> str | None:
    kind, count = str(compute.get("accelerator_type") or ""), compute.get("accelerator_count")
    short = kind.rpartition("x")[2]
    return f"{count}x {short}" if kind and count else None


def _bare(experiment: str) -> str:
    parts = experiment.split("/")
    return "/".join(parts[3:]) if experiment.startswith("/Users/") and len(parts) > 3 else experiment  # noqa: PLR2004


def _times(run: Run) -> tuple[float | None, float | None]:
    """Return (start, end) of the newest attempt, else of the run."""
    tasks = states.attempts_of(run)
    one = tasks[-1] if tasks and tasks[-1].get("start_time") else run
    return _moment(one.get("start_time")), _moment(one.get("end_time") or run.get("end_time"))


def _moment(milliseconds: Any) -> float | None:
    return float(milliseconds) / 1000 if milliseconds else None

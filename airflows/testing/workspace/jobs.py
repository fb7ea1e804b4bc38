"""The jobs service: submissions, attempts, capacity, cancelling; level by level of the workspace's clock."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from airflows.testing.workspace.clock import Timeline
from airflows.testing.workspace.exchange import ApiError, User, invalid
from airflows.testing.workspace.logbook import Logbook
from airflows.testing.workspace.plans import Plans, RunPlan, metrics_of
from airflows.testing.workspace.runs import Attempt, Run
from airflows.testing.workspace.settings import Settings
from airflows.testing.workspace.submitting import checked, submission_of

_FIRST_RUN = 7001


class Tracking(Protocol):
    """As much of MLflow as the service itself uses."""

    def start_run(self, run: Run, moment: float) -> tuple[str, str]:
        """Make the MLflow run of an attempt; return the ids of its experiment and of itself."""

    def log(self, run_id: str, key: str, value: float, step: int, moment: float) -> None:
        """Log one value of a metric."""

    def end_run(self, run_id: str, status: str, moment: float) -> None:
        """End the MLflow run, unless the command did."""


class Nodes(Protocol):
    """Runs commands for real."""

    def start(self, run: Run, attempt: Attempt) -> None:
        """Start the command on all nodes; its end is reported to `Jobs.exited`."""

    def stop(self, attempt: Attempt) -> bool:
        """Ask the nodes to end; return whether there was anything to end."""

    def close(self) -> None:
        """End all nodes at once."""


class Launches(Protocol):
    """Reads what lies beside a command."""

    def read(self, path: str) -> bytes | None:
        """Return a file of the workspace or a volume; None when it is not there."""


class Jobs:
    """All runs. Its methods are called with the workspace's lock held."""

    def __init__(
        self, settings: Settings, timeline: Timeline, directory: Path, launches: Launches, tracking: Tracking
    ) -> None:
        self.settings = settings
        self.runs: dict[int, Run] = {}
        self.tokens: dict[tuple[str, str], int] = {}
        self.capacity = dict(settings.capacity)
        self.plans = Plans(settings.seed, settings.default, settings.outcomes)
        self.nodes: Nodes | None = None
        self._timeline = timeline
        self._directory = directory
        self._launches = launches
        self._tracking = tracking
        self._ids = itertools.count(_FIRST_RUN)
        self._numbers = itertools.count()
        self._waiting: list[tuple[Run, Attempt]] = []
        self._tasks: dict[int, tuple[Run, Attempt]] = {}
        self._by_mlflow_run: dict[str, Attempt] = {}
        self._busy: dict[str, int] = {}

    def submit(self, user: User, body: Mapping[str, Any], plan: RunPlan | None = None) -> Run:
        """Start a run, or return the one that the token already stands for.

        Raises:
            ApiError: the body cannot be a run, or the token's run was deleted.
        """
        checked(body, self.settings)
        token = str(body.get("idempotency_token") or "")
        known = self.tokens.get((user.name, token)) if token else None
        if known is not None:
            run = self.runs[known]
            if run.is_deleted:
                message = f"The run with idempotency token {token} was deleted."
                raise invalid(message)
            return run
        now = self._timeline.clock.now()
        # What a plan comes with is no submission of anybody's that rules would count.
        nth = -1 if plan else next(self._numbers)
        submission = submission_of(body, nth, user.name, self._launches)
        chosen = plan or self.plans.choose(submission)
        run = Run(next(self._ids), next(self._ids), user.name, body, submission, chosen, now)
        self.runs[run.id] = run
        if token:
            self.tokens[user.name, token] = run.id
        self._queue(run, now)
        self._timeline.settle()
        return run

    def task(self, run_id: int) -> tuple[Run, Attempt] | None:
        """Return the attempt with this task run id."""
        return self._tasks.get(run_id)

    def attempt_of(self, mlflow_run_id: str) -> Attempt | None:
        """Return the attempt that an MLflow run belongs to."""
        return self._by_mlflow_run.get(mlflow_run_id)

    def cancel(self, run: Run) -> None:
        """Ask a run to end; one that has ended stays as it is."""
        if run.ended_at is not None or run.is_cancelled:
            return
        run.is_cancelled = True
        attempt, now = run.last, self._timeline.clock.now()
        if attempt.ended_at is not None:
            # Between two attempts nothing runs.
            run.ended_at, run.result, run.message = now, "CANCELED", "Run cancelled."
            return
        attempt.is_stopping = True
        self._forget(attempt)
        if self.nodes is not None and self.nodes.stop(attempt):
            return
        end = now + attempt.plan.ignores_cancel_s
        attempt.appointments = [
            self._timeline.at(end, lambda at: self.end(run, attempt, "CANCELED", "Run cancelled.", at))
        ]
        self._timeline.settle()

    def end(self, run: Run, attempt: Attempt, result: str, message: str, moment: float) -> None:
        """End an attempt; another one follows if the submission says so."""
        if attempt.ended_at is not None:
            return
        self._forget(attempt)
        attempt.ended_at, attempt.result, attempt.message = moment, result, message
        attempt.logs.close(moment)
        if attempt.started_at is not None:
            kind, count = run.compute
            self._busy[kind] = self._busy.get(kind, 0) - count
            status = {"SUCCESS": "FINISHED", "CANCELED": "KILLED"}.get(result, "FAILED")
            self._tracking.end_run(attempt.mlflow_run_id, status, moment)
        # Where the limit is the run's, no time is left for another attempt.
        is_over = result == "TIMEDOUT" and self.settings.jobs.timeout_bounds == "run"
        if run.may_retry(result) and not is_over:
            self._timeline.at(moment + attempt.plan.retry_s, lambda at: self._retry(run, attempt, at))
        else:
            run.ended_at, run.result, run.message = moment, result, message
        self._start_waiting(moment)

    def exited(self, run: Run, attempt: Attempt, code: int, message: str = "") -> None:
        """Hear from the nodes that the command ended."""
        now = self._timeline.clock.now()
        if attempt.is_stopping and run.is_cancelled:
            self.end(run, attempt, "CANCELED", "Run cancelled.", now)
        elif attempt.is_stopping:
            self.end(run, attempt, "TIMEDOUT", self._timeout_message(run), now)
        elif code == 0:
            self.end(run, attempt, "SUCCESS", "", now)
        else:
            self.end(run, attempt, "FAILED", message or f"exit code {code}", now)
        self._timeline.settle()

    def set_capacity(self, capacity: Mapping[str, int]) -> None:
        """Change how many GPUs of each type there are."""
        self.capacity = dict(capacity)
        self._start_waiting(self._timeline.clock.now())
        self._timeline.settle()

    def _queue(self, run: Run, moment: float) -> None:
        number, task_id = len(run.attempts), next(self._ids)
        plan = run.plan.of(number)
        logs = Logbook(self._directory / str(task_id), self.settings.logs)
        attempt = Attempt(number, task_id, plan, logs, moment, moment + plan.queue_s)
        run.attempts.append(attempt)
        self._tasks[task_id] = (run, attempt)
        self._waiting.append((run, attempt))
        attempt.appointments = [self._timeline.at(attempt.ready_at, self._start_waiting)]
        self._limit(run, attempt, from_start=False)

    def _retry(self, run: Run, before: Attempt, moment: float) -> None:
        if run.ended_at is None and run.last is before:
            self._queue(run, moment)

    def _start_waiting(self, moment: float) -> None:
        for run, attempt in list(self._waiting):
            kind, count = run.compute
            free = self.capacity.get(kind, count + self._busy.get(kind, 0)) - self._busy.get(kind, 0)
            if attempt.ready_at <= moment and count <= free and not attempt.is_stopping:
                self._waiting.remove((run, attempt))
                self._busy[kind] = self._busy.get(kind, 0) + count
                self._start(run, attempt, moment)

    def _start(self, run: Run, attempt: Attempt, moment: float) -> None:
        attempt.started_at = moment
        plan = attempt.plan
        # A crowd is there to be listed; MLflow never hears of it.
        if run.ai_task is not None and run.submission.nth >= 0:
            attempt.experiment_id, attempt.mlflow_run_id = self._tracking.start_run(run, moment)
            self._by_mlflow_run[attempt.mlflow_run_id] = attempt
        self._limit(run, attempt, from_start=True)
        if self.nodes is not None and run.ai_task is not None:
            self.nodes.start(run, attempt)
            return
        lasts = plan.run_s
        attempt.logs.plan(plan.logs, moment, lasts or 0.0)
        self._plan_metrics(run, attempt, moment, lasts or 0.0)
        if lasts is not None:
            result, message = plan.result, self._message(run, plan.result, plan.exit_code, plan.message)
            attempt.appointments.append(
                self._timeline.at(moment + lasts, lambda at: self.end(run, attempt, result, message, at))
            )

    def _plan_metrics(self, run: Run, attempt: Attempt, start: float, lasts: float) -> None:
        if not attempt.mlflow_run_id:
            return
        run_id = attempt.mlflow_run_id
        submission = replace(run.submission, attempt=attempt.number)
        for key, values in metrics_of(attempt.plan, submission).items():
            for step, value in enumerate(values):
                self._plan_metric(
                    attempt, (run_id, key, value, step), start + lasts * ((step + 1) / len(values))
                )

    def _plan_metric(self, attempt: Attempt, logged: tuple[str, str, float, int], moment: float) -> None:
        attempt.appointments.append(self._timeline.at(moment, lambda at: self._tracking.log(*logged, at)))

    def _limit(self, run: Run, attempt: Attempt, *, from_start: bool) -> None:
        bounds_run = self.settings.jobs.timeout_bounds == "run"
        if not run.timeout_s or bounds_run == from_start:
            return
        began = run.created_at if bounds_run else attempt.started_at or 0.0
        attempt.appointments.append(
            self._timeline.at(began + run.timeout_s, lambda at: self._time_out(run, attempt, at))
        )

    def _time_out(self, run: Run, attempt: Attempt, moment: float) -> None:
        attempt.is_stopping = True
        if self.nodes is not None and self.nodes.stop(attempt):
            return
        attempt.is_stopping = False
        self.end(run, attempt, "TIMEDOUT", self._timeout_message(run), moment)

    def _forget(self, attempt: Attempt) -> None:
        for appointment in attempt.appointments:
            appointment.is_off = True
        attempt.appointments.clear()
        self._waiting = [entry for entry in self._waiting if entry[1] is not attempt]

    def _message(self, run: Run, result: str, exit_code: int | None, message: str | None) -> str:
        if message is not None:
            return message
        if result == "FAILED":
            return f"exit code {1 if exit_code is None else exit_code}"
        if result == "TIMEDOUT":
            return self._timeout_message(run)
        return {"INTERNAL_ERROR": "Internal error of the service.", "CANCELED": "Run cancelled."}.get(
            result, ""
        )

    @staticmethod
    def _timeout_message(run: Run) -> str:
        return f"Run timed out after {run.timeout_s} seconds."


def not_found(run_id: int, status: int) -> ApiError:
    """Return the error for a run that does not exist."""
    code = "INVALID_PARAMETER_VALUE" if status == 400 else "RESOURCE_DOES_NOT_EXIST"  # noqa: PLR2004
    return ApiError(status, code, f"Run {run_id} does not exist.")

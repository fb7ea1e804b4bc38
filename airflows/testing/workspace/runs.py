"""Runs and their attempts, and how the Jobs API shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflows.testing.workspace.clock import Appointment
from airflows.testing.workspace.logbook import Logbook
from airflows.testing.workspace.plans import AttemptPlan, RunPlan, Submission
from airflows.testing.workspace.settings import JobManners

_LIVES = {"INTERNAL_ERROR": ("INTERNAL_ERROR", "FAILED"), "SKIPPED": ("SKIPPED", "")}
_V2_STATES = {"WAITING_FOR_RETRY": "WAITING"}
_CODES = {
    "SUCCESS": ("SUCCESS", "SUCCESS"),
    "CANCELED": ("USER_CANCELED", "SUCCESS"),
    "SKIPPED": ("SKIPPED", "SUCCESS"),
    "INTERNAL_ERROR": ("INTERNAL_ERROR", "INTERNAL_ERROR"),
}
RETRIED = frozenset({"FAILED", "INTERNAL_ERROR"})


@dataclass(slots=True)
class Attempt:
    """One attempt: a task run of its own.

    Attributes:
        number: counted from 0.
        run_id: of the task run.
        plan: what it does.
        logs: what its nodes print.
        queued_at: when it was made.
        ready_at: before that it does not start, whatever capacity there is.
        started_at: None before.
        ended_at: None before.
        result: the plan's word for the end, empty before.
        message: state_message.
        experiment_id: MLflow's, empty before the start.
        mlflow_run_id: MLflow's, empty before the start.
        is_stopping: it was asked to end.
    """

    number: int
    run_id: int
    plan: AttemptPlan
    logs: Logbook
    queued_at: float
    ready_at: float
    started_at: float | None = None
    ended_at: float | None = None
    result: str = ""
    message: str = ""
    experiment_id: str = ""
    mlflow_run_id: str = ""
    is_stopping: bool = False
    appointments: list[Appointment] = field(default_factory=list)

    @property
    def life(self) -> str:
        """life_cycle_state."""
        if self.ended_at is not None:
            return _LIVES.get(self.result, ("TERMINATED", ""))[0]
        if self.is_stopping:
            return "TERMINATING"
        return self.plan.waiting_word if self.started_at is None else self.plan.running_word

    @property
    def status_message(self) -> str:
        """What get-output says of the attempt while it waits."""
        return self.plan.waits if self.started_at is None and self.ended_at is None else ""

    def state(self, manners: JobManners) -> dict[str, Any]:
        """Return `state` and `status`."""
        return _both(manners, self.life, self.result, self.message, self.plan.code)


@dataclass(slots=True)
class Run:
    """One submission.

    Attributes:
        id: of the job run.
        job_id: of the one-time job behind it.
        user: who submitted it.
        body: as submitted.
        submission: as rules see it.
        plan: what it does.
        created_at: when it was submitted.
        attempts: so far.
        ended_at: when it ended for good.
        result: the plan's word for the end, empty before.
        message: state_message in the end.
        is_cancelled: somebody asked for its end.
        is_deleted: the run was deleted; its token is remembered.
    """

    id: int
    job_id: int
    user: str
    body: Mapping[str, Any]
    submission: Submission
    plan: RunPlan
    created_at: float
    attempts: list[Attempt] = field(default_factory=list)
    ended_at: float | None = None
    result: str = ""
    message: str = ""
    is_cancelled: bool = False
    is_deleted: bool = False

    @property
    def task(self) -> Mapping[str, Any]:
        """The task, as submitted."""
        task: Mapping[str, Any] = self.body["tasks"][0]
        return task

    @property
    def ai_task(self) -> Mapping[str, Any] | None:
        """Its AI Runtime task, if it is one."""
        return self.task.get("ai_runtime_task")

    @property
    def compute(self) -> tuple[str, int]:
        """Accelerator type and number; nothing for other tasks."""
        if self.ai_task is None:
            return "", 0
        compute = self.ai_task["deployments"][0]["compute"]
        return compute["accelerator_type"], compute["accelerator_count"]

    @property
    def max_retries(self) -> int:
        """Attempts after the first; -1 for endless."""
        # Left out, the service has a default of its own, which is the one the documentation gives.
        wanted = self.task.get("max_retries")
        return 3 if wanted is None else int(wanted)

    @property
    def timeout_s(self) -> int:
        """Limit, 0 for none."""
        return int(self.body.get("timeout_seconds") or 0)

    @property
    def last(self) -> Attempt:
        """The newest attempt."""
        return self.attempts[-1]

    def may_retry(self, result: str) -> bool:
        """Whether an attempt that ended so is followed by another."""
        retried = result in RETRIED or (result == "TIMEDOUT" and bool(self.task.get("retry_on_timeout")))
        is_left = self.max_retries < 0 or self.last.number < self.max_retries
        return retried and is_left and not self.is_cancelled

    def life(self, manners: JobManners) -> str:
        """life_cycle_state."""
        last = self.last
        if self.ended_at is not None:
            return _LIVES.get(self.result, ("TERMINATED", ""))[0]
        if self.is_cancelled:
            return "TERMINATING"
        if last.ended_at is not None:
            return manners.between_attempts
        if last.started_at is None and last.plan.run_waiting_word:
            return last.plan.run_waiting_word
        return last.life

    def as_json(self, manners: JobManners, host: str, *, tasks: bool = True) -> dict[str, Any]:
        """Return the run as runs/get and runs/list show it."""
        ended = self.ended_at is not None
        state = _both(manners, self.life(manners), self.result, self.message, self.last.plan.code)
        shown = {
            "job_id": self.job_id,
            "run_id": self.id,
            "number_in_job": self.id,
            "run_name": self.body.get("run_name", "Untitled"),
            "run_type": "SUBMIT_RUN",
            "format": "MULTI_TASK",
            "creator_user_name": self.user,
            "start_time": _ms(self.created_at),
            "end_time": _ms(self.ended_at),
            "setup_duration": 0,
            "execution_duration": _ms((self.ended_at or 0) - self.created_at) if ended else 0,
            "cleanup_duration": 0,
            "trigger": "ONE_TIME",
            "run_page_url": f"{host}/jobs/runs/{self.id}",
            **state,
        }  # fmt: skip
        if tasks:
            chosen = self.attempts if manners.lists_attempts == "all" else self.attempts[-1:]
            shown["tasks"] = [self._task_json(attempt, manners, host) for attempt in chosen]
            shown["environments"] = self.body.get("environments", [])
        return shown

    def _task_json(self, attempt: Attempt, manners: JobManners, host: str) -> dict[str, Any]:
        return {
            **self.task,
            "run_id": attempt.run_id,
            "attempt_number": attempt.number,
            "max_retries": self.max_retries,
            "start_time": _ms(attempt.started_at),
            "end_time": _ms(attempt.ended_at),
            "run_page_url": f"{host}/jobs/runs/{attempt.run_id}",
            **attempt.state(manners),
        }


def _both(manners: JobManners, life: str, result: str, message: str, code: str | None) -> dict[str, Any]:
    return {
        name: value
        for name, value in (
            ("state", _state(life, result, message)),
            ("status", _status(life, result, message, code)),
        )
        if manners.states in {"both", name}
    }


def _state(life: str, result: str, message: str) -> dict[str, Any]:
    state: dict[str, Any] = {"life_cycle_state": life, "state_message": message}
    word = _LIVES.get(result, ("", result))[1]
    if word:
        state["result_state"] = word
        state["user_cancelled_or_timedout"] = word in {"CANCELED", "TIMEDOUT"}
    return state


def _status(life: str, result: str, message: str, code: str | None) -> dict[str, Any]:
    if not result:
        return {"state": _V2_STATES.get(life, life)}
    known, kind = _CODES.get(result, ("RUN_EXECUTION_ERROR", "CLIENT_ERROR"))
    return {
        "state": "TERMINATED",
        "termination_details": {"code": code or known, "type": kind, "message": message},
    }


def _ms(seconds: float | None) -> int:
    return round((seconds or 0) * 1000)

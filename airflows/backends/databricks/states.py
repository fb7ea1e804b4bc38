"""What the workspace says of a run, and what that means. Pure; words nobody knows are shown, never fatal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflows.backends.base import Observation, Phase

Run = Mapping[str, Any]
"""A run, or one of its tasks, as `runs/get` gives it."""

UNKNOWN = "UNKNOWN"
HOST = "AI Runtime"
"""Stands for the machine, which the service does not name."""

_OVER = frozenset({"TERMINATED", "SKIPPED", "INTERNAL_ERROR"})
_RESULTS = frozenset({"SUCCESS", "FAILED", "TIMEDOUT", "CANCELED"})
_WAITING = frozenset({"PENDING", "QUEUED", "BLOCKED", "WAITING_FOR_RETRY", "WAITING"})
_GOING = frozenset({"RUNNING", "TERMINATING"})
# The service did not get as far as the command, or the machine went away under it.
_PLACE_TYPES = frozenset({"INTERNAL_ERROR", "CLOUD_FAILURE"})
_NOT_RUN = frozenset({"SKIPPED", "MAXIMUM_CONCURRENT_RUNS_REACHED", "EXCLUDED", "DISABLED"})
_EXIT_CODE = re.compile(
    r"\b(?:(?:exit|return)[ _]?(?:code|status)|exited with)(?:\s+(?:exit|code|status|of|is|was))*"
    r"[\s:=(]+(\d{1,3})\b",
    re.IGNORECASE,
)
_STATUS_TEXT = re.compile(r"status:(?P<text>.*)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class MlflowIds:
    """The MLflow run of one attempt; empty until it has started.

    Attributes:
        experiment: its experiment's id.
        run: its id.
        message: what the service says about the waiting.
    """

    experiment: str = ""
    run: str = ""
    message: str = ""

    @classmethod
    def of(cls, answer: Run) -> MlflowIds:
        """Read an answer of `runs/get-output`."""
        output = answer.get("ai_runtime_task_output") or {}
        experiment, run = (str(output.get(f"mlflow_{name}_id") or "") for name in ("experiment", "run"))
        message = str(output.get("status_message") or "")
        return cls(experiment, run, message) if experiment and run else cls(message=message)


# One word


def life_of(run: Run) -> str:
    """Return the life-cycle word of a run or task; empty for none."""
    state = run.get("state") or {}
    if state.get("life_cycle_state") or state.get("result_state"):
        return str(state.get("life_cycle_state") or "")
    word = str((run.get("status") or {}).get("state") or "")
    return "WAITING_FOR_RETRY" if word == "WAITING" else word


def result_of(run: Run) -> str:
    """Return the result word of a run or task; empty while there is none."""
    state = run.get("state") or {}
    if state.get("life_cycle_state") or state.get("result_state"):
        return str(state.get("result_state") or "")
    status = run.get("status") or {}
    if status.get("state") != "TERMINATED":
        return ""
    details = status.get("termination_details") or {}
    code, kind = str(details.get("code") or ""), str(details.get("type") or "")
    if code == "SUCCESS":
        return "SUCCESS"
    if code in {"USER_CANCELED", "CANCELED"}:
        return "CANCELED"
    if code == "SKIPPED":
        return "SKIPPED"
    return "FAILED" if kind in {"CLIENT_ERROR", "CLOUD_FAILURE"} else "INTERNAL_ERROR"


def word_of(run: Run) -> str:
    """Return the one word that says how a run or task stands."""
    return result_of(run) or life_of(run) or UNKNOWN


def is_over(run: Run) -> bool:
    """Whether a run or task has ended."""
    return life_of(run) in _OVER or result_of(run) in _RESULTS


def message_of(run: Run) -> str:
    """Return what the service says about a run's state, empty for nothing."""
    details = (run.get("status") or {}).get("termination_details") or {}
    message = details.get("message") or (run.get("state") or {}).get("state_message") or ""
    return " ".join(str(message).split())


# Attempts


def attempts_of(run: Run) -> list[Run]:
    """Return the tasks of a run, one for each attempt that is listed, oldest first."""
    tasks: Sequence[Run] = run.get("tasks") or ()
    return sorted(tasks, key=attempt_number)


def task_id(run: Run) -> int:
    """Return the number of a run's newest attempt, which has an output of its own; 0 for none."""
    tasks = attempts_of(run)
    return int(tasks[-1].get("run_id") or 0) if tasks else 0


def attempt_number(task: Run) -> int:
    """Return which attempt a task is, counted from 0."""
    return int(task.get("attempt_number") or 0)


def ai_task(run: Run) -> Mapping[str, Any] | None:
    """Return the AI Runtime part of a run's newest attempt; None when it is another kind of run."""
    for task in reversed(attempts_of(run)):
        inner = (task.get("for_each_task") or {}).get("task") or task
        if inner.get("ai_runtime_task"):
            found: Mapping[str, Any] = inner["ai_runtime_task"]
            return found
        older = inner.get("gen_ai_compute_task") or {}
        if older.get("training_script_path"):
            return _as_ai_task(older)
    return None


def _as_ai_task(older: Mapping[str, Any]) -> Mapping[str, Any]:
    compute = older.get("compute") or {}
    wanted = {
        "accelerator_type": compute.get("gpu_type") or "",
        "accelerator_count": compute.get("num_gpus") or 0,
    }
    experiment = older.get("mlflow_experiment_name") or ""
    return {"experiment": experiment, "deployments": [{"command_path": "", "compute": wanted}]}


def deployment_of(run: Run) -> Mapping[str, Any]:
    """Return the deployment of a run; empty when there is none."""
    deployments = (ai_task(run) or {}).get("deployments") or [{}]
    found: Mapping[str, Any] = deployments[0]
    return found


def command_path(run: Run) -> str:
    """Return the script that a run's nodes execute, empty for another kind of run."""
    return str(deployment_of(run).get("command_path") or "")


# What it means


def phase_of(run: Run) -> Phase:
    """Return where a run is; a run between two attempts waits."""
    if is_over(run):
        return Phase.ENDED
    tasks = attempts_of(run)
    lives = [life_of(run), *([life_of(tasks[-1])] if tasks else [])]
    if any(life in _WAITING for life in lives):
        return Phase.QUEUED
    if lives[0] in _GOING:
        return Phase.RUNNING
    return Phase.UNKNOWN


def observation_of(run: Run, ids: MlflowIds, resumed_from: str = "") -> Observation:
    """Return what is seen of a run.

    Args:
        run: the answer of `runs/get`.
        ids: of its newest attempt.
        resumed_from: the checkpoint it started from.
    """
    phase = phase_of(run)
    tasks = attempts_of(run)
    newest = tasks[-1] if tasks else run
    started = _seconds(newest.get("start_time")) or _seconds(run.get("start_time"))
    if phase is Phase.ENDED:
        code, word, detail = _ending(run, newest)
        ended = _seconds(newest.get("end_time")) or _seconds(run.get("end_time"))
        return Observation(
            phase,
            code,
            word,
            detail,
            started_at=started,
            ended_at=ended,
            host=HOST,
            resumed_from=resumed_from,
            mlflow_run_id=ids.run,
        )
    if phase is Phase.RUNNING:
        return Observation(phase, started_at=started, host=HOST, mlflow_run_id=ids.run)
    detail = waiting_text(run, ids) if phase is Phase.QUEUED else f"Databricks says {word_of(run)}"
    return Observation(phase, detail=detail, mlflow_run_id=ids.run)


def waiting_text(run: Run, ids: MlflowIds) -> str:
    """Return why a run waits, for people."""
    found = _STATUS_TEXT.fullmatch(ids.message.strip())
    if found is not None and found["text"].strip():
        return f"{found['text'].strip().rstrip(' .')}..."
    queued = (run.get("status") or {}).get("queue_details") or {}
    reason = queued.get("message") or (run.get("state") or {}).get("queue_reason")
    return str(reason or message_of(run) or "waiting for compute")


def _ending(run: Run, newest: Run) -> tuple[int | None, str, str]:
    """Return (exit code, word, detail) of a run that is over."""
    result, life = result_of(run), life_of(run)
    message = next((text for one in (newest, run) if (text := message_of(one))), "")
    if result == "SUCCESS":
        return 0, "", ""
    said = f"Databricks says {word_of(run)}{f': {message}' if message else ''}"
    if result == "TIMEDOUT" or (result == "CANCELED" and word_of(newest) == "TIMEDOUT"):
        return None, "TIMEDOUT", message
    if result == "CANCELED":
        return None, "CANCELLED", said
    if result in _NOT_RUN or (not result and life in _NOT_RUN):
        return None, "PREEMPTED", said
    code = exit_code_in(message)
    kinds = {str(kind) for kind in _termination_types(run, newest)}
    if "INTERNAL_ERROR" in {life, result} or (code is None and kinds & _PLACE_TYPES):
        return None, "NODE_FAILED", said
    return 1 if code is None else code, "", said if code is None else ""


def _termination_types(*runs: Run) -> Iterator[Any]:
    for run in runs:
        yield ((run.get("status") or {}).get("termination_details") or {}).get("type")


def exit_code_in(message: str) -> int | None:
    """Return the exit code that a message names; None when it names none.

    Example:
        >>> exit_code_in("Task failed with exit code 137."), exit_code_in("no capacity")
        (137, None)
    """
    found = _EXIT_CODE.search(message)
    return int(found[1]) if found is not None and 0 < int(found[1]) <= 255 else None  # noqa: PLR2004


def _seconds(value: Any) -> float | None:
    """Return milliseconds since the epoch as seconds; the service writes 0 for none."""
    try:
        return float(value) / 1000 or None
    except (TypeError, ValueError):
        return None

"""Endpoints of the Jobs API."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from airflows.testing.workspace.exchange import ApiError, Request, invalid
from airflows.testing.workspace.jobs import not_found
from airflows.testing.workspace.routing import Route, Router
from airflows.testing.workspace.runs import Attempt, Run
from airflows.testing.workspace.world import World

_MOST_LISTED = 25
_USUALLY_LISTED = 20
_TASKS_PER_PAGE = 100


class JobsApi:
    """`/api/2.2/jobs/runs/…`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._manners = world.settings.jobs

    def add_to(self, router: Router) -> None:
        """Add the endpoints."""
        at = "/api/2.2/jobs/runs"
        router.add("POST", f"{at}/submit", Route("jobs/runs/submit", self.submit))
        router.add("GET", f"{at}/get", Route("jobs/runs/get", self.get))
        router.add("GET", f"{at}/get-output", Route("jobs/runs/get-output", self.output))
        router.add("GET", f"{at}/list", Route("jobs/runs/list", self.listed))
        router.add("POST", f"{at}/cancel", Route("jobs/runs/cancel", self.cancel))
        router.add("POST", f"{at}/delete", Route("jobs/runs/delete", self.delete))

    def submit(self, request: Request) -> Mapping[str, Any]:
        """Start a run, once per token."""
        body = request.json()
        with self._world.lock:
            run = self._world.jobs.submit(request.user, body)
        self._world.wake()
        return {"run_id": run.id}

    def get(self, request: Request) -> Mapping[str, Any]:
        """Show a run."""
        with self._world.lock:
            run = self._run(request.number("run_id"), request)
            shown = run.as_json(self._manners, self._world.host)
        return _page_of_tasks(shown, request.one("page_token"))

    def output(self, request: Request) -> Mapping[str, Any]:
        """Show what a task run left."""
        run_id = request.number("run_id")
        self._world.mlflow.warm()
        with self._world.lock:
            if run_id in self._world.jobs.runs:
                self._run(run_id, request)
                message = (
                    "Retrieving the output of runs with multiple tasks is not supported. "
                    "Please retrieve the output of each individual task run instead."
                )
                raise invalid(message)
            found = self._world.jobs.task(run_id)
            if found is None:
                raise not_found(run_id, self._manners.unknown_run_status)
            run, attempt = found
            self._see_owner(run, request)
            return self._output(run, attempt)

    def _output(self, run: Run, attempt: Attempt) -> Mapping[str, Any]:
        metadata = {
            **attempt.state(self._manners),
            "run_id": attempt.run_id,
            "job_id": run.job_id,
            "attempt_number": attempt.number,
            "creator_user_name": run.user,
        }
        output = {
            "mlflow_experiment_id": attempt.experiment_id,
            "mlflow_run_id": attempt.mlflow_run_id,
            "status_message": attempt.status_message,
        }
        told = {name: value for name, value in output.items() if value}
        return {"metadata": metadata, **({"ai_runtime_task_output": told} if told else {})}

    def listed(self, request: Request) -> Mapping[str, Any]:
        """Show runs, newest first, in pages."""
        limit = request.number("limit", _USUALLY_LISTED)
        if not 0 < limit <= _MOST_LISTED:
            message = f"limit must be between 1 and {_MOST_LISTED}."
            raise invalid(message)
        with self._world.lock:
            # A page goes on below a run, not at an offset: new runs must not shift it.
            below = _unpacked(request.one("page_token"))
            found = self._found(request, below)
            page = found[:limit]
            tasks = request.flag("expand_tasks")
            shown = [run.as_json(self._manners, self._world.host, tasks=tasks) for run in page]
        answer: dict[str, Any] = {"runs": shown} if shown else {}
        answer["has_more"] = len(found) > limit
        if len(found) > limit:
            answer["next_page_token"] = _packed(page[-1].id)
        return answer

    def _found(self, request: Request, below: int | None) -> list[Run]:
        """Return the runs that fit, and one more than a page holds."""
        only, kind = request.flag("active_only"), request.one("run_type")
        done, job_id = request.flag("completed_only"), request.number("job_id")
        if only and done:
            message = "active_only and completed_only exclude each other."
            raise invalid(message)
        found: list[Run] = []
        for run in reversed(self._world.jobs.runs.values()):
            if run.is_deleted or (below is not None and run.id >= below):
                continue
            active = run.ended_at is None
            fits = (not only or active) and (not done or not active) and (not job_id or run.job_id == job_id)
            if fits and kind in {"", "SUBMIT_RUN"} and _in_time(run, request):
                found.append(run)
            if len(found) > _MOST_LISTED:
                break
        return found

    def cancel(self, request: Request) -> Mapping[str, Any]:
        """Ask a run to end."""
        run_id = _given_id(request)
        with self._world.lock:
            run = self._world.jobs.runs.get(run_id)
            if run is None or run.is_deleted:
                raise not_found(run_id, self._manners.unknown_run_status)
            self._see_owner(run, request)
            self._world.jobs.cancel(run)
        self._world.wake()
        return {}

    def delete(self, request: Request) -> Mapping[str, Any]:
        """Delete a run that has ended."""
        run_id = _given_id(request)
        with self._world.lock:
            run = self._run(run_id, request)
            if run.ended_at is None:
                message = f"Run {run_id} is still active; cancel it first."
                raise ApiError(400, "INVALID_STATE", message)
            run.is_deleted = True
        return {}

    def _run(self, run_id: int, request: Request) -> Run:
        run = self._world.jobs.runs.get(run_id)
        if run is None or run.is_deleted:
            raise not_found(run_id, self._manners.unknown_run_status)
        self._see_owner(run, request)
        return run

    @staticmethod
    def _see_owner(run: Run, request: Request) -> None:
        if run.user != request.user.name:
            message = f"User {request.user.name} does not have View permissions on run {run.id}."
            raise ApiError(403, "PERMISSION_DENIED", message)


def _given_id(request: Request) -> int:
    run_id = request.json().get("run_id")
    try:
        return int(str(run_id))
    except ValueError:
        message = f"run_id {run_id!r} is no number."
        raise invalid(message) from None


def _in_time(run: Run, request: Request) -> bool:
    start = round(run.created_at * 1000)
    until = request.number("start_time_to")
    return request.number("start_time_from") <= start and (not until or start <= until)


def _page_of_tasks(shown: dict[str, Any], token: str) -> dict[str, Any]:
    offset, tasks = _unpacked(token) or 0, shown.get("tasks", [])
    shown["tasks"] = tasks[offset : offset + _TASKS_PER_PAGE]
    if len(tasks) > offset + _TASKS_PER_PAGE:
        shown["next_page_token"] = _packed(offset + _TASKS_PER_PAGE)
    return shown


def _packed(number: int) -> str:
    return base64.urlsafe_b64encode(json.dumps({"at": number}).encode()).decode()


def _unpacked(token: str) -> int | None:
    if not token:
        return None
    try:
        return int(json.loads(base64.urlsafe_b64decode(token))["at"])
    except (ValueError, KeyError, TypeError):
        message = f"Invalid page token {token!r}."
        raise invalid(message) from None

"""Endpoints for tests, under `/__fake__/`: they ask for no token and are not recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from airflows.testing.workspace.exchange import Answer, Request, as_answer, invalid
from airflows.testing.workspace.faults import Fault
from airflows.testing.workspace.jobs import not_found
from airflows.testing.workspace.plans import Outcome
from airflows.testing.workspace.routing import Route, Router
from airflows.testing.workspace.runs import Run
from airflows.testing.workspace.world import World

_FAULTS = TypeAdapter(list[Fault])
_OUTCOMES = TypeAdapter(list[Outcome])


class ControlApi:
    """What a test does to the workspace."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._router = Router()

    def add_to(self, router: Router) -> None:
        """Add the endpoints."""
        self._router = router
        for method, name, handler in (
            ("GET", "state", self.state),
            ("POST", "advance", self.advance),
            ("POST", "outcomes", self.outcomes),
            ("DELETE", "outcomes", self.forget_outcomes),
            ("POST", "faults", self.faults),
            ("DELETE", "faults", self.forget_faults),
            ("POST", "capacity", self.capacity),
            ("POST", "end", self.end),
            ("POST", "expire", self.expire),
            ("GET", "routes", self.routes),
            ("GET", "runs", self.runs),
            ("GET", "counts", self.counts),
            ("GET", "requests", self.requests),
            ("DELETE", "requests", self.forget_requests),
        ):
            router.add(method, f"/__fake__/{name}", Route(f"control/{name}", handler, is_open=True))

    def state(self, _request: Request) -> Mapping[str, Any]:
        """Return the clock and how many runs there are."""
        with self._world.lock:
            runs = self._world.jobs.runs.values()
            active = sum(run.ended_at is None for run in runs)
            return {"now": self._world.clock.now(), "runs": len(runs), "active": active}

    def advance(self, request: Request) -> Mapping[str, Any]:
        """Move the clock on: `{"seconds": 60}`."""
        self._world.advance(float(request.json()["seconds"]))
        return self.state(request)

    def outcomes(self, request: Request) -> Mapping[str, Any]:
        """Add rules about what runs do, before those there are: one, or a list as `{"outcomes": […]}`."""
        body = request.json()
        with self._world.lock:
            for outcome in reversed(_parsed(_OUTCOMES, body.get("outcomes", [body]))):
                self._world.jobs.plans.add(outcome)
        return {}

    def forget_outcomes(self, _request: Request) -> Mapping[str, Any]:
        """Take all such rules away."""
        with self._world.lock:
            self._world.jobs.plans.clear()
        return {}

    def faults(self, request: Request) -> Mapping[str, Any]:
        """Add faults: one, or a list as `{"faults": […]}`."""
        body = request.json()
        for fault in _parsed(_FAULTS, body.get("faults", [body])):
            self._world.faults.add(fault)
        return {}

    def forget_faults(self, _request: Request) -> Mapping[str, Any]:
        """Take all faults away."""
        self._world.faults.clear()
        return {}

    def capacity(self, request: Request) -> Mapping[str, Any]:
        """Set how many GPUs of each type there are: `{"GPU_8xH100": 16}`."""
        with self._world.lock:
            self._world.jobs.set_capacity(request.json())
        return {}

    def end(self, request: Request) -> Mapping[str, Any]:
        """End the newest attempt of a run: `{"run_id": 7001, "result": "FAILED", "message": "…"}`."""
        body = request.json()
        with self._world.lock:
            run = self._world.jobs.runs.get(int(body["run_id"]))
            if run is None:
                raise not_found(int(body["run_id"]), 404)
            result, message = str(body.get("result", "SUCCESS")), str(body.get("message", ""))
            self._world.jobs.end(run, run.last, result, message, self._world.clock.now())
            self._world.timeline.settle()
            return shown(run)

    def expire(self, request: Request) -> Mapping[str, Any]:
        """Let a token expire: `{"token": "…"}`."""
        self._world.expired.add(str(request.json()["token"]))
        return {}

    def routes(self, _request: Request) -> Mapping[str, Any]:
        """Return the short names of all endpoints but these."""
        return {"routes": [name for name in self._router.names() if not name.startswith("control/")]}

    def runs(self, _request: Request) -> Mapping[str, Any]:
        """Return all runs, as the workspace sees them."""
        with self._world.lock:
            return {"runs": [shown(run) for run in self._world.jobs.runs.values()]}

    def counts(self, _request: Request) -> Mapping[str, Any]:
        """Return how often each endpoint was asked, and the most requests at once."""
        return {**self._world.recorder.summary(), "faults": self._world.faults.happened()}

    def requests(self, request: Request) -> Answer:
        """Return the requests in order, those of one endpoint with `?route=`."""
        route = request.one("route")
        found = self._world.recorder.of(route) if route else list(self._world.recorder.requests)
        return as_answer({"requests": [recorded.as_dict() for recorded in found]})

    def forget_requests(self, _request: Request) -> Mapping[str, Any]:
        """Start counting anew."""
        self._world.recorder.forget()
        return {}


def shown(run: Run) -> dict[str, Any]:
    """Return a run for people."""
    return {
        "run_id": run.id,
        "run_name": run.submission.run_name,
        "token": run.submission.token,
        "user": run.user,
        "ended": run.ended_at is not None,
        "attempts": [
            {"run_id": attempt.run_id, "life": attempt.life, "result": attempt.result,
             "message": attempt.message, "mlflow_run_id": attempt.mlflow_run_id}
            for attempt in run.attempts
        ],
    }  # fmt: skip


def _parsed(adapter: TypeAdapter[Any], value: Any) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError as exc:
        raise invalid(str(exc)) from None

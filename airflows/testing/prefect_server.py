"""A real Prefect server and worker for tests, on a free port and in a directory of their own.

Prefect itself is used as a person uses it: by its command and by its REST API.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import psutil

from airflows.testing.mlflow_server import free_port
from airflows.testing.waiting import until

PATIENCE_S = 120.0
_GRACE_S = 20
_TRIES = 10
_BIN = Path(sys.executable).parent
_POOL = "local"
_FOREIGN = ("PREFECT_", "AIRFLOWS_", "MLFLOW_", "DATABRICKS_")
FINAL = frozenset({"COMPLETED", "FAILED", "CRASHED", "CANCELLED"})


def clean_environment(directory: Path, **variables: str) -> dict[str, str]:
    """Return this process's environment with Prefect and airflows at home in a directory."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return {
        **kept,
        "PATH": f"{_BIN}:{kept.get('PATH', '')}",
        "PREFECT_HOME": str(directory / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": str(int(PATIENCE_S)),
        "AIRFLOWS_HOME": str(directory / "home"),
        "DO_NOT_TRACK": "1",
        **variables,
    }


@dataclass(slots=True)
class PrefectPlace:
    """A server, a worker, and what was deployed there.

    Attributes:
        directory: holds everything.
        api: the address of the API.
        environment: of every command.
        deployed: the deployments as they were made first.
    """

    directory: Path
    api: str
    environment: dict[str, str]
    deployed: list[Any] = field(default_factory=list)
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def command(self, *words: str | Path, cwd: Path | None = None) -> str:
        """Run a command to its end; return what it printed.

        Raises:
            RuntimeError: it failed; the message holds what it printed.
        """
        done = subprocess.run(
            words,
            cwd=cwd or self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            message = f"{words} ended with {done.returncode}: {done.stdout}{done.stderr}"
            raise RuntimeError(message)
        return done.stdout

    def start(self, name: str, *words: str) -> None:
        """Start a process that lives until the end."""
        with Path(self.directory, f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    words,
                    cwd=self.directory,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask the API; return its answer.

        Raises:
            urllib.error.HTTPError: it said no.
        """
        request = urllib.request.Request(  # noqa: S310 - http, and our own server
            f"{self.api}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        for _ in range(_TRIES):
            with suppress(_ServerBusyError):
                return _answer(request)
            time.sleep(1)
        return _answer(request)

    def everything(self, what: str, **wanted: Any) -> list[Any]:
        """Return all objects of a kind that a filter lets through, page by page."""
        found: list[Any] = []
        while True:
            page = self.ask("POST", f"/{what}/filter", {**wanted, "limit": 200, "offset": len(found)})
            found += page
            if len(page) < 200:  # noqa: PLR2004 - the API's page
                return found

    def deploy(self, root: Path) -> list[Any]:
        """Deploy what a prefect.yaml holds; return the deployments as they were then.

        From then on their schedules are inactive: a test says itself what runs, and when.
        """
        self.command("prefect", "--no-prompt", "deploy", "--all", cwd=root)
        made = self.everything("deployments")
        for deployment in made:
            for schedule in deployment["schedules"]:
                path = f"/deployments/{deployment['id']}/schedules/{schedule['id']}"
                self.ask("PATCH", path, {"active": False})
        return made

    def run(
        self,
        deployment: str,
        *,
        retries: int | None = None,
        retry_delay_s: int = 0,
        job_variables: Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> str:
        """Schedule a run of a deployment for now; return its id."""
        flow, _, name = deployment.partition("/")
        found = self.ask("GET", f"/deployments/name/{flow}/{name}")
        at = datetime.now(UTC).isoformat()
        body: dict[str, Any] = {
            "parameters": parameters,
            "job_variables": dict(job_variables or {}),
            "state": {"type": "SCHEDULED", "state_details": {"scheduled_time": at}},
        }
        if retries is not None:
            body["empirical_policy"] = {"retries": retries, "retry_delay": retry_delay_s}
        made = self.ask("POST", f"/deployments/{found['id']}/create_flow_run", body)
        return str(made["id"])

    def flow_run(self, run: str) -> Any:
        """Return a flow run as it stands."""
        return self.ask("GET", f"/flow_runs/{run}")

    def set_state(self, run: str, kind: str, **details: Any) -> None:
        """Ask for another state of a flow run, as Prefect's pages do."""
        self.ask("POST", f"/flow_runs/{run}/set_state", {"state": {"type": kind, **details}, "force": False})

    def ended(self, run: str, *, patience_s: float = PATIENCE_S) -> Any:
        """Wait until a flow run is in a final state; return it."""
        self.wait_for(lambda: self.flow_run(run)["state_type"] in FINAL, f"flow run {run} to end", patience_s)
        return self.flow_run(run)

    def artifacts(self, run: str) -> dict[str, Any]:
        """Return a flow run's artifacts by key."""
        found = self.everything("artifacts", artifacts={"flow_run_id": {"any_": [run]}})
        return {artifact["key"]: artifact for artifact in found}

    def task_states(self, run: str) -> dict[str, str]:
        """Return the state of each task run of a flow run, by the task run's key."""
        found = self.everything("task_runs", flow_runs={"id": {"any_": [run]}})
        return {task["dynamic_key"]: task["state_type"] for task in found}

    def trial_events(self, sweep: str, state: str) -> list[Any]:
        """Return the events of a sweep's trials that went into a state."""
        wanted = {"filter": {"event": {"name": [f"airflows.trial.{state}"]}}, "limit": 50}
        found = self.ask("POST", "/events/filter", wanted)["events"]
        return [event for event in found if event["payload"]["sweep"] == sweep]

    def runs_of(self, sweep: str) -> set[str]:
        """Return the flow runs that drive or drove a sweep."""
        tagged = {"tags": {"all_": [f"airflows:{sweep}"]}}
        return {run["id"] for run in self.everything("flow_runs", flow_runs=tagged)}

    def wait_for(self, is_so: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
        """Return when something is so.

        Raises:
            TimeoutError: it never was; the message ends with what the worker said last.
        """
        log = Path(self.directory, "worker.log")
        until(
            is_so,
            lambda: f"{what}\n{log.read_text(errors='replace')[-3000:] if log.exists() else ''}",
            patience_s=patience_s,
        )

    def answers(self) -> bool:
        """Whether the server is up."""
        try:
            return bool(self.ask("GET", "/health"))
        except OSError:
            return False

    def stop(self) -> None:
        """End worker and server, and all that they started."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
        for left in _processes_of(self.directory):
            with suppress(psutil.Error):
                left.kill()
        for process in self._processes:
            process.wait()


@contextmanager
def prefect_place(directory: Path, root: Path) -> Iterator[PrefectPlace]:
    """Start a server and a worker, deploy what a prefect.yaml holds; end both with the block.

    Args:
        directory: an empty directory for all of it.
        root: where the prefect.yaml is.
    """
    port = free_port()
    api = f"http://127.0.0.1:{port}/api"
    environment = clean_environment(
        directory,
        PREFECT_API_URL=api,
        PREFECT_WORKER_QUERY_SECONDS="1",
        PREFECT_RUNNER_POLL_FREQUENCY="1",
    )
    place = PrefectPlace(directory, api, environment)
    try:
        place.start("server", "prefect", "server", "start", "--no-ui", "--port", str(port))
        place.wait_for(place.answers, "the server")
        place.command("prefect", "work-pool", "create", _POOL, "--type", "process")
        place.deployed = place.deploy(root)
        worker = ("prefect", "worker", "start", "--pool", _POOL, "--type", "process")
        place.start("worker", *worker, "--install-policy", "never")
        yield place
    finally:
        place.stop()


class _ServerBusyError(OSError):
    """The server could not answer now: SQLite has one writer at a time."""


def _answer(request: urllib.request.Request) -> Any:
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310
            text = answer.read()
    except urllib.error.HTTPError as exc:
        if exc.code < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        raise _ServerBusyError(str(exc)) from exc
    return json.loads(text) if text else None


def _processes_of(directory: Path) -> Iterator[psutil.Process]:
    """Yield what was started from here: flow runs and trials have sessions of their own."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            home = process.environ().get("PREFECT_HOME", "")
            if home == str(directory / "prefect") or directory in Path(process.cwd()).parents:
                yield process

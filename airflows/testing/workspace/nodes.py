"""Really running a command, once per node, as the service does: a process group each."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
from dataclasses import dataclass, field

from airflows.testing.workspace.exchange import User
from airflows.testing.workspace.nodefiles import LaunchError, NodeFiles, prepared, scratch_of
from airflows.testing.workspace.runs import Attempt, Run
from airflows.testing.workspace.world import World

_ADDRESS = "127.0.0.1"


@dataclass(slots=True)
class _Crew:
    """The processes of one attempt."""

    run: Run
    attempt: Attempt
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    is_stopping: bool = False
    code: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    thread: threading.Thread | None = None
    timer: threading.Timer | None = None

    def signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            # The group may outlive the process that leads it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)


class CommandNodes:
    """Runs the commands of a workspace."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._settings = world.settings.nodes
        self._crews: dict[int, _Crew] = {}
        self._is_closed = False

    def start(self, run: Run, attempt: Attempt) -> None:
        """Start the command on all nodes; its end is reported to `Jobs.exited`."""
        if self._is_closed:
            return
        self._world.mlflow.warm()
        crew = _Crew(run, attempt)
        crew.thread = threading.Thread(target=self._attend, args=(crew,), daemon=True)
        self._crews[attempt.run_id] = crew
        crew.thread.start()

    def stop(self, attempt: Attempt) -> bool:
        """Ask the nodes to end, and make them after a while; return whether there was anything to end."""
        crew = self._crews.get(attempt.run_id)
        if crew is None:
            return False
        with crew.lock:
            crew.is_stopping = True
            crew.signal(signal.SIGTERM)
            if crew.timer is None:
                crew.timer = threading.Timer(self._settings.grace_s, crew.signal, (signal.SIGKILL,))
                crew.timer.daemon = True
                crew.timer.start()
        return True

    def close(self) -> None:
        """End all nodes at once, and start no more."""
        self._is_closed = True
        for crew in list(self._crews.values()):
            with crew.lock:
                crew.is_stopping = True
                crew.signal(signal.SIGKILL)
            if crew.thread is not None:
                crew.thread.join()

    def _attend(self, crew: _Crew) -> None:
        code, message = 1, ""
        token = f"job-{crew.attempt.run_id}-{secrets.token_hex(8)}"
        self._world.tokens[token] = User(crew.run.user, is_job=True)
        try:
            self._launch(crew, token)
            code = self._wait(crew)
        except LaunchError as exc:
            message = str(exc)
        except (OSError, ValueError, LookupError) as exc:
            crew.signal(signal.SIGKILL)
            message = f"The nodes could not be started: {exc}"
        finally:
            if crew.timer is not None:
                crew.timer.cancel()
            self._world.tokens.pop(token, None)
            shutil.rmtree(scratch_of(self._world, crew.attempt), ignore_errors=True)
            with self._world.lock:
                self._crews.pop(crew.attempt.run_id, None)
                self._world.jobs.exited(crew.run, crew.attempt, code, message)
            self._world.wake()

    def _launch(self, crew: _Crew, token: str) -> None:
        kind, count = crew.run.compute
        each = self._world.settings.accelerators[kind]
        nodes = count // each
        shared = {
            "NUM_NODES": str(nodes),
            "MASTER_ADDR": _ADDRESS,
            "MASTER_PORT": str(_free_port()),
            "LOCAL_WORLD_SIZE": str(self._settings.local_world_size or each),
            "WORLD_SIZE": str((self._settings.local_world_size or each) * nodes),
            "MLFLOW_RUN_ID": crew.attempt.mlflow_run_id,
            "MLFLOW_TRACKING_URI": "databricks",
            "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
            "NCCL_DEBUG": "WARN",
            "DATABRICKS_HOST": self._world.host,
            "DATABRICKS_TOKEN": token,
        }
        if self._settings.runtime_version:
            shared["DATABRICKS_RUNTIME_VERSION"] = self._settings.runtime_version
        ready = [prepared(self._world, crew.run, crew.attempt, rank) for rank in range(nodes)]
        with crew.lock:
            if crew.is_stopping:
                return
            for rank, files in enumerate(ready):
                crew.processes.append(self._spawn(files, shared, rank))

    def _spawn(self, files: NodeFiles, shared: dict[str, str], rank: int) -> subprocess.Popen[bytes]:
        own = {"NODE_RANK": str(rank), "MLFLOW_SYSTEM_METRICS_NODE_ID": f"node_{rank}"}
        inherited = {name: os.environ[name] for name in self._settings.inherit if name in os.environ}
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", str(files.command)],
            cwd=files.command.parent,
            env={**files.base, **inherited, **shared, **own, **files.variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _wait(self, crew: _Crew) -> int:
        """Return the code of the first node that failed, else 0; the others do not go on without it."""
        readers, reapers = (
            [
                threading.Thread(target=work, args=(crew, rank), daemon=True)
                for rank in range(len(crew.processes))
            ]
            for work in (self._read, self._reap)
        )
        for thread in (*readers, *reapers):
            thread.start()
        for thread in reapers:
            thread.join()
        for thread in readers:
            # What left the group may hold the output open for ever.
            thread.join(self._settings.last_words_s)
        return crew.code

    def _read(self, crew: _Crew, rank: int) -> None:
        output = crew.processes[rank].stdout
        if output is not None:
            with output:
                for line in output:
                    crew.attempt.logs.write(rank, line, self._world.clock.now())

    @staticmethod
    def _reap(crew: _Crew, rank: int) -> None:
        code = crew.processes[rank].wait()
        with crew.lock, contextlib.suppress(ProcessLookupError, PermissionError):
            # What the command left running ends with it, or the log would never end.
            os.killpg(crew.processes[rank].pid, signal.SIGKILL)
        if code and not crew.code:
            crew.code = 128 - code if code < 0 else code
            with crew.lock:
                crew.signal(signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_ADDRESS, 0))
        return int(probe.getsockname()[1])

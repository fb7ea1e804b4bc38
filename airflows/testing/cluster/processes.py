"""Containers that really run, as processes of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airflows.testing.cluster.kubelet import Kubelet
from airflows.testing.cluster.messages import Json
from airflows.testing.cluster.plans import PodPlan
from airflows.testing.cluster.podfiles import POD_VARIABLE, PodFiles, Ready
from airflows.testing.cluster.podstatus import Exit
from airflows.testing.cluster.store import controller_of
from airflows.testing.cluster.world import World

_GLANCE_S, _LAST_WORDS_S = 0.05, 5.0
_SIGNAL_BASE = 128
_MESSAGE_BYTES = 4096


@dataclass(slots=True)
class _Crew:
    """The processes of a pod."""

    pod: Json
    files: PodFiles
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    is_terminated: bool = False
    is_killed: bool = False


class ProcessContainers:
    """Starts processes, reads what they write, and signals them. Its threads take the lock to tell of it."""

    def __init__(self, world: World, kubelet: Kubelet) -> None:
        self._world, self._kubelet = world, kubelet
        self._crews: dict[str, _Crew] = {}
        self._threads: list[threading.Thread] = []
        self._ports: dict[str, int] = {}

    def start(self, pod: Json, plan: PodPlan) -> None:  # noqa: ARG002 - processes have no plan
        """Let them run; what the plan says of running is not heeded."""
        uid = pod["metadata"]["uid"]
        crew = self._crews[uid] = _Crew(pod, PodFiles(self._world, pod, self._port(pod)))
        thread = threading.Thread(target=self._attend, args=(uid, crew), daemon=True)
        self._threads = [known for known in self._threads if known.is_alive()]
        self._threads.append(thread)
        thread.start()

    def terminate(self, uid: str) -> None:
        """Send SIGTERM to the first process of each container, as a kubelet does."""
        crew = self._crews.get(uid)
        if crew is not None:
            crew.is_terminated = True
            for process in crew.processes:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()

    def kill(self, uid: str) -> None:
        """Send SIGKILL to all processes of a pod."""
        crew = self._crews.get(uid)
        if crew is not None:
            crew.is_killed = True
            _kill_all(f"{uid}/", crew.processes)

    def close(self) -> None:
        """End all of them, and wait until they have."""
        with self._world.lock:
            uids = list(self._crews)
        for uid in uids:
            self.kill(uid)
        for thread in self._threads:
            thread.join(_LAST_WORDS_S * 2)

    def _port(self, pod: Json) -> int:
        """Return the free port of a Job, the same for all of its pods."""
        owner = controller_of(pod)
        uid = owner["uid"] if owner else pod["metadata"]["uid"]
        if uid not in self._ports:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self._ports[uid] = int(probe.getsockname()[1])
        return self._ports[uid]

    def _attend(self, uid: str, crew: _Crew) -> None:
        ends: Mapping[str, Exit] = {}
        try:
            ends = self._course(uid, crew)
        except (OSError, ValueError, LookupError) as exc:
            main = crew.pod["spec"]["containers"][0]["name"]
            ends = {main: Exit(_SIGNAL_BASE, "StartError", f"the container could not be started: {exc}")}
        finally:
            _kill_all(f"{uid}/", crew.processes)
            with self._world.lock:
                self._crews.pop(uid, None)
                self._kubelet.ended(uid, ends)
            crew.files.remove()

    def _course(self, uid: str, crew: _Crew) -> Mapping[str, Exit]:
        self._await_service(crew)
        for container in crew.pod["spec"].get("initContainers") or ():
            end = self._run_all(uid, crew, [container])[container["name"]]
            if end.code:
                return {container["name"]: end}
        return self._run_all(uid, crew, crew.pod["spec"]["containers"], is_main=True)

    def _run_all(
        self, uid: str, crew: _Crew, containers: list[Json], *, is_main: bool = False
    ) -> Mapping[str, Exit]:
        """Run containers side by side, and return how they ended."""
        running = []
        with self._world.lock:
            if crew.is_terminated or crew.is_killed:
                code = _SIGNAL_BASE + (signal.SIGKILL if crew.is_killed else signal.SIGTERM)
                return {container["name"]: Exit(code) for container in containers}
            ready = [crew.files.container(container) for container in containers]
            for container, made in zip(containers, ready, strict=True):
                process = _spawn(made)
                crew.processes.append(process)
                reader = threading.Thread(
                    target=self._read, args=(uid, container["name"], process), daemon=True
                )
                reader.start()
                running.append((container["name"], made, process, reader))
            if is_main:
                self._kubelet.running(uid)
        return {name: _end_of(made, process, reader) for name, made, process, reader in running}

    def _await_service(self, crew: _Crew) -> None:
        """Give the Service that names the pods a moment to be made: it needs the Job's uid."""
        deadline = time.monotonic() + self._world.settings.execution.service_wait_s
        while time.monotonic() < deadline and not crew.is_terminated and not crew.is_killed:
            with self._world.lock:
                if not crew.files.needs_service():
                    return
            if self._world.closing.wait(_GLANCE_S):
                return

    def _read(self, uid: str, name: str, process: subprocess.Popen[bytes]) -> None:
        output = process.stdout
        if output is None:
            return
        with self._world.lock:
            log = self._kubelet.log(uid, name)
        with output:
            for line in output:
                log.write(line, self._world.clock.now())


def _spawn(made: Ready) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        made.command,
        cwd=made.directory,
        env=made.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _end_of(made: Ready, process: subprocess.Popen[bytes], reader: threading.Thread) -> Exit:
    code = process.wait()
    # With its first process a container ends, and its output with it.
    _kill_all(made.environment[POD_VARIABLE], [process])
    reader.join(_LAST_WORDS_S)
    message = made.message_file.read_bytes()[:_MESSAGE_BYTES].decode(errors="replace")
    return Exit(_SIGNAL_BASE - code if code < 0 else code, message=message)


def _kill_all(mark: str, processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    for pid in _marked(mark):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _marked(mark: str) -> set[int]:
    """Return the processes of a pod or a container, also those that have left its session."""
    wanted = f"{POD_VARIABLE}={mark}".encode()
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = (entry / "environ").read_bytes()
            if wanted in environment and any(item.startswith(wanted) for item in environment.split(b"\0")):
                found.add(int(entry.name))
    return found

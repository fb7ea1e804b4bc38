"""From a job to its processes: command line, variables, and one detached preamble."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airflows import checkpoints
from airflows.backends.base import Job
from airflows.backends.local import environment
from airflows.backends.local.gpus import Held
from airflows.backends.local.processes import MARK
from airflows.backends.local.settings import LocalSettings
from airflows.job_secrets import resolve
from airflows.yamlio import parse

_PREAMBLE = Path(__file__).parents[1] / "preamble.sh"
_ADDRESS = "127.0.0.1"
_MANY_PORTS = 256


@dataclass(slots=True)
class Spawner:
    """Starts preambles.

    Attributes:
        root: of the backend.
        home: the directory with the secrets file.
        settings: of the backend.
        hides_gpus: jobs without GPUs must not see those that are there.
    """

    root: Path
    home: Path
    settings: LocalSettings
    hides_gpus: bool
    _inherited: dict[str, str] = field(default_factory=dict)
    _preamble: str = ""
    _bash: str = ""
    _ports: deque[int] = field(default_factory=lambda: deque(maxlen=_MANY_PORTS))

    def spawn(self, job: Job, claim: int, held: Held | None) -> int:
        """Start the preamble of a job in a session of its own; return its pid.

        Args:
            job: what to run.
            claim: descriptor with the lock on the job's claim, which the preamble inherits.
            held: the job's GPUs; None for none.

        Raises:
            SpecError: a secret is missing, or the environment cannot be built.
            OSError: nothing was started.
            ValueError: a variable cannot be one, such as with a NUL in it.
        """
        if not self._preamble:
            self._prepare()
        variables = self._variables(job, held)
        starts_plain = "LC_ALL" not in variables
        command = self._command(job, held, "plain" if starts_plain else "")
        if starts_plain:
            variables["LC_ALL"] = "C"
        directory = job.launch_dir if job.work_dir is None else job.work_dir
        log = os.open(f"{job.launch_dir}/logs/node_0.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            process = subprocess.Popen(
                command,
                cwd=directory,
                env=variables,
                stdin=claim,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(held.descriptor,) if held else (),
            )
        finally:
            os.close(log)
        # It outlives this object on purpose: Popen is not to warn of that, and its pid is waited for by us.
        process.returncode = 0
        return process.pid

    def _prepare(self) -> None:
        self._bash = shutil.which("bash") or "bash"
        self._inherited = environment.current(os.environ, self.settings.inherit)
        self._preamble = str(_installed(self.root / "preambles"))

    def _command(self, job: Job, held: Held | None, plain: str) -> list[str]:
        command = [self._bash, "-p", self._preamble, str(job.launch_dir), job.token, str(job.nodes)]
        command += [str(round(self.settings.grace * 1000)), f"{job.timeout_s or 0:.12g}"]
        command += [str(held.descriptor) if held else "", sys.executable, job.checkpoint_pattern, plain]
        if held:
            each = len(held.gpus) // job.nodes
            command += [",".join(held.gpus[n * each : (n + 1) * each]) for n in range(job.nodes)]
        return command

    def _variables(self, job: Job, held: Held | None) -> dict[str, str]:
        local = len(held.gpus) // job.nodes if held else 1
        variables = {
            **self._inherited,
            **self._isolated(job),
            **job.env,
            "NUM_NODES": str(job.nodes),
            "MASTER_ADDR": _ADDRESS,
            "MASTER_PORT": str(self._free_port()),
            "LOCAL_WORLD_SIZE": str(local),
            "WORLD_SIZE": str(local * job.nodes),
        }
        if held is None and self.hides_gpus:
            variables["CUDA_VISIBLE_DEVICES"] = ""
        # The preamble sets this for the command alone.
        variables.pop(MARK, None)
        return {**variables, **resolve(job.secrets, self.home), **job.secret_env}

    def _isolated(self, job: Job) -> Mapping[str, str]:
        if self.settings.environment == "current":
            return {}
        text = job.files["training_config.yaml"].decode()
        config = parse(text, file="training_config.yaml", dialect="train").value
        dependencies = (config.get("environment") or {}).get("dependencies") or []
        directory = Path(job.env.get("CODE_SOURCE_PATH") or job.work_dir or job.launch_dir)
        return environment.isolated([str(item) for item in dependencies], directory, self.root)

    def _free_port(self) -> int:
        """Return a port that nobody has now, and that none of the last jobs was given."""
        while True:
            with socket.socket() as probe:
                probe.bind((_ADDRESS, 0))
                port = int(probe.getsockname()[1])
            if port not in self._ports:
                self._ports.append(port)
                return port


def _installed(directory: Path) -> Path:
    """Return the preamble as it is kept below the root: an upgrade must not change it under a running job."""
    contents = {
        "preamble.sh": _PREAMBLE.read_bytes(),
        "checkpoints.py": Path(checkpoints.__file__).read_bytes(),
    }
    target = directory / hashlib.sha256(b"\0".join(contents.values())).hexdigest()[:16]
    if not target.is_dir():
        directory.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".new-", dir=directory))
        aside.chmod(0o755)
        for name, content in contents.items():
            (aside / name).write_bytes(content)
        try:
            aside.rename(target)
        except OSError as exc:
            shutil.rmtree(aside)
            if exc.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
    return target / "preamble.sh"

"""A real Slurm cluster of a few virtual nodes on this machine, for tests and benchmarks."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_START_LIMIT_S = 180.0
_GONE_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster. Slurm's commands find it by `SLURM_CONF`.

    Attributes:
        directory: holds all of it.
        scripts: the directory with `up` and `down`.
        settings: variables of these two.
    """

    directory: Path
    scripts: Path
    settings: Mapping[str, str]

    @property
    def conf(self) -> str:
        """The value of `SLURM_CONF`."""
        return str(self.directory / "etc" / "slurm.conf")

    def run(self, *words: str) -> str:
        """Run one of Slurm's commands; return what it printed."""
        env = {**os.environ, "SLURM_CONF": self.conf, "LC_ALL": "C"}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout + done.stderr

    def up(self) -> None:
        """Start what is missing; nodes that are down come back.

        Raises:
            RuntimeError: it did not come up, with its last words.
        """
        done = subprocess.run(
            [self.scripts / "up"],
            env={**os.environ, **self.settings},
            stdin=subprocess.DEVNULL,
            # A daemon keeps what it inherits, and would hold a pipe open.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=_START_LIMIT_S,
        )
        if done.returncode:
            logs = sorted((self.directory / "log").glob("*.log"))
            last = "\n".join(f"{log.name}: {log.read_text(errors='replace')[-500:]}" for log in logs)
            message = f"the Slurm cluster did not come up:\n{last}"
            raise RuntimeError(message)

    def down(self) -> None:
        """Stop it and remove its files."""
        subprocess.run(
            [self.scripts / "down", "--purge"],
            env={**os.environ, **self.settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=_START_LIMIT_S,
        )

    def kill(self, daemon: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End a daemon, such as `slurmctld` or `slurmd-n3`, and see it gone.

        A controller that is killed forgets what it took in the last seconds; SIGTERM lets it save that.
        """
        pid = int((self.directory / "run" / f"{daemon}.pid").read_text(encoding="ascii"))
        os.kill(pid, number)
        deadline = time.monotonic() + _GONE_WITHIN_S
        while Path(f"/proc/{pid}/cwd").exists() and time.monotonic() < deadline:
            time.sleep(0.02)

    def clear(self) -> None:
        """Take all jobs out, and wait until they are gone."""
        self.run("scancel", "--state=PENDING")
        self.run("scancel", "--full", "--signal=KILL", "--state=RUNNING")
        self.run("scancel", "--state=RUNNING")
        deadline = time.monotonic() + _GONE_WITHIN_S
        while self.run("squeue", "-h").strip() and time.monotonic() < deadline:
            time.sleep(0.1)


def why_not() -> str:
    """Return why no cluster can be started here, empty when one can."""
    if os.geteuid() != 0:
        return "a Slurm cluster of one's own needs root"
    if not Path("/etc/debian_version").exists():
        return "a Slurm cluster of one's own needs Debian's packages"
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "munged") if shutil.which(name) is None]
    return f"Slurm is not installed here ({', '.join(missing)} not found)" if missing else ""


@contextlib.contextmanager
def running(scripts: Path, *, port: int, **settings: object) -> Iterator[Cluster]:
    """Start a cluster in a directory of its own; stop it in the end.

    Args:
        scripts: the directory with `up` and `down`.
        port: the first of those it uses.
        settings: variables of `up` without SLURM_TEST_, such as `db=0`.
    """
    directory = Path(tempfile.mkdtemp(prefix="slurm-"))
    directory.chmod(0o755)
    given = {f"SLURM_TEST_{name.upper()}": str(value) for name, value in settings.items()}
    given |= {"SLURM_TEST_DIR": str(directory), "SLURM_TEST_PORT": str(port)}
    cluster = Cluster(directory, scripts, given)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()

"""A Slurm cluster of four virtual nodes on this machine, started by `up` and stopped by `down`."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
START_LIMIT_S = 180


@dataclass(frozen=True)
class Cluster:
    """A running cluster; its commands find it by `SLURM_CONF`."""

    directory: Path
    env: dict[str, str]

    @property
    def conf(self) -> str:
        return str(self.directory / "etc" / "slurm.conf")

    def run(self, *words: str) -> str:
        """Run one of Slurm's commands."""
        env = {**os.environ, "SLURM_CONF": self.conf, "LC_ALL": "C"}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout + done.stderr

    def up(self) -> None:
        """Start what is missing."""
        done = subprocess.run(
            [HERE / "up"],
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            check=False,
            timeout=START_LIMIT_S,
        )
        assert done.returncode == 0, done.stderr

    def kill(self, daemon: str) -> None:
        """End a daemon as a crash would: `slurmctld`, `slurmd-n3`."""
        path = self.directory / "run" / f"{daemon}.pid"
        pid = int(path.read_text())
        os.kill(pid, 9)
        deadline = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    def clear(self) -> None:
        """Take all jobs out."""
        self.run("scancel", "--state=PENDING", "-u", "root")
        self.run("scancel", "-u", "root")
        deadline = time.monotonic() + 30
        while self.run("squeue", "-h").strip() and time.monotonic() < deadline:
            time.sleep(0.2)


def why_not() -> str:
    """Return why no cluster can be started here, empty when one can."""
    if os.geteuid() != 0:
        return "a Slurm cluster of one's own needs root"
    if not Path("/etc/debian_version").exists():
        return "a Slurm cluster of one's own needs Debian's packages"
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "munged") if shutil.which(name) is None]
    return f"Slurm is not installed here ({', '.join(missing)} not found)" if missing else ""


@contextlib.contextmanager
def running(port: int, **settings: object) -> Iterator[Cluster]:
    """Start a cluster in a directory of its own; stop it in the end.

    Args:
        port: the first of those it uses.
        settings: variables of `up` without SLURM_TEST_, such as `db=0`.
    """
    directory = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    env = {f"SLURM_TEST_{name.upper()}": str(value) for name, value in settings.items()}
    env |= {"SLURM_TEST_DIR": str(directory), "SLURM_TEST_PORT": str(port)}
    cluster = Cluster(directory, env)
    try:
        cluster.up()
        yield cluster
    finally:
        subprocess.run(
            [HERE / "down", "--purge"], env={**os.environ, **env}, check=False, timeout=START_LIMIT_S
        )

"""Who drives a sweep: this process's identity, and whether another one is still alive."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

_NEVER = -1


@dataclass(frozen=True, slots=True)
class Owner:
    """One driver process, told apart from a later one with the same pid.

    Attributes:
        host: as `socket.gethostname()`.
        boot: the kernel's boot id, empty where there is none.
        namespace: the pid namespace, such as a container's, in which the pid counts; empty where unknown.
        pid: process id there.
        started: when that process started, in the kernel's ticks since boot, which no clock step changes.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: int

    def to_text(self) -> str:
        """Return the form the ledger keeps."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Owner:
        """Read the ledger's form."""
        return cls(**json.loads(text))

    @property
    def is_of_here(self) -> bool:
        """Whether its pid means something to this process."""
        here = current_owner()
        # Two machines may share a name, and two containers a machine: then the lease has to run out.
        return (self.host, self.boot, self.namespace) == (here.host, here.boot, here.namespace)

    def is_dead(self) -> bool:
        """Whether it is certain that the process has gone: only known where its pid means something."""
        if not self.is_of_here:
            return False
        if not _exists(self.pid):
            return True
        started = start_ticks(self.pid)
        return started is not None and started != self.started


def boot_id() -> str:
    """Return the kernel's boot id, empty where there is none."""
    return _first_line("/proc/sys/kernel/random/boot_id")


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in the kernel's ticks since boot; None when it cannot be seen.

    A zombie never started: it is no living process. Without /proc it is psutil's answer, in hundredths of a
    second.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None if Path("/proc/self/stat").exists() else _psutil_ticks(pid)
    # The name stands in parentheses and may hold anything, also parentheses.
    fields = text.rpartition(")")[2].split()
    return _NEVER if fields[0] in {"Z", "X"} else int(fields[19])


def _psutil_ticks(pid: int) -> int | None:
    import psutil  # noqa: PLC0415 - only where there is no /proc

    try:
        return round(psutil.Process(pid).create_time() * 100)
    except psutil.Error:
        return None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # Somebody else's.
        return True
    return True


def current_owner() -> Owner:
    """Return this process as an owner."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - the target is no path
    except OSError:
        namespace = ""
    pid = os.getpid()
    return Owner(socket.gethostname(), boot_id(), namespace, pid, start_ticks(pid) or _NEVER)


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""

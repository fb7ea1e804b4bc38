"""Who drives a sweep: this process's identity, and whether another one is still alive."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Owner:
    """One driver process, told apart from a later one with the same pid.

    Attributes:
        host: as `socket.gethostname()`.
        boot: the kernel's boot id, empty where there is none.
        pid: process id on that host.
        started: when that process started, seconds since the epoch.
    """

    host: str
    boot: str
    pid: int
    started: float

    def to_text(self) -> str:
        """Return the form the ledger keeps."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Owner:
        """Read the ledger's form."""
        return cls(**json.loads(text))

    def is_dead(self) -> bool:
        """Whether it is certain that the process has gone: only known on its own host."""
        here = current_owner()
        if self.host != here.host:
            return False
        if self.boot != here.boot:
            return True
        try:
            process = psutil.Process(self.pid)
            return process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - self.started) > 1
        except psutil.NoSuchProcess:
            return True
        except psutil.Error:
            return False


def boot_id() -> str:
    """Return the kernel's boot id, empty where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def current_owner() -> Owner:
    """Return this process as an owner."""
    return Owner(socket.gethostname(), boot_id(), os.getpid(), psutil.Process().create_time())

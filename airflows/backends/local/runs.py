"""One run on this machine: the handle that names it, and what it left behind when it ended."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from airflows.backends.base import Observation, Phase
from airflows.drivers import boot_id
from airflows.errors import BackendUnavailableError
from airflows.exits import OwnExit
from airflows.trial import Handle

CANCELLED = "cancelled"
"""File in a launch directory: the run was asked to end."""

_TAIL_BYTES = 4096
_EXIT_FILE_BYTES = 65_536
_NO_FILE = (b"No such file or directory", b"can't open file", b"cannot open", b"not found")


@cache
def here() -> tuple[str, str]:
    """Return (boot id, host) of this machine."""
    return boot_id(), socket.gethostname()


@dataclass(frozen=True, slots=True)
class RunName:
    """What a handle says.

    Attributes:
        pid: of the preamble.
        started: when that process started, in clock ticks after boot; 0 when it was found to have gone.
        boot: the kernel's boot id.
        host: the machine.
        token: of the attempt.
        launch_dir: of the attempt.
    """

    pid: int
    started: int
    boot: str
    host: str
    token: str
    launch_dir: str

    def to_handle(self) -> Handle:
        """Return the text that the ledger keeps."""
        return Handle(f"{self.pid}:{self.started}:{self.boot}:{self.host}:{self.token}:{self.launch_dir}")

    @classmethod
    def of(cls, handle: Handle) -> RunName:
        """Read a handle.

        Raises:
            BackendUnavailableError: the run is on another machine, or the handle is not one of ours.
        """
        try:
            pid, started, boot, host, token, launch_dir = handle.split(":", 5)
            name = cls(int(pid), int(started), boot, host, token, launch_dir)
        except ValueError as exc:
            message = f"{handle!r} is no handle of the local backend."
            raise BackendUnavailableError(message) from exc
        if name.host != here()[1]:
            message = f"the run {token} is on {host}, and this is {here()[1]}: only {host} can drive it."
            raise BackendUnavailableError(message, hint=f"Run the same command on {host}.")
        return name

    @property
    def is_of_this_boot(self) -> bool:
        """Whether the machine has not been started anew since; then nothing of the run can be alive."""
        return self.boot == here()[0]


@dataclass(slots=True)
class Run:
    """A run that a backend object knows.

    Attributes:
        name: what its handle says.
        started_at: seconds since the epoch, None when only the launch directory can tell.
        cancelled_at: when this process first asked it to end.
    """

    name: RunName
    started_at: float | None = None
    cancelled_at: float | None = None
    _going: Observation | None = None

    @property
    def directory(self) -> Path:
        """The launch directory."""
        return Path(self.name.launch_dir)

    def running(self, detail: str = "") -> Observation:
        """Return the observation of a run that goes on."""
        if self._going is None:
            self._going = Observation(Phase.RUNNING, started_at=self.started_at, host=self.name.host)
        return replace(self._going, detail=detail) if detail else self._going

    def ended(self, status: int | None, claim: Path) -> Observation:
        """Return the observation of a run that has gone.

        Args:
            status: the preamble's own exit status where this process could ask for it.
            claim: its claim, which was written when it started.
        """
        path = self.directory / "exit.json"
        left = _read(path)
        code, word, detail = left.get("exit_code"), str(left.get("word") or ""), ""
        if code is None:
            code, word, detail = self._without_exit_file(status)
        elif code and not word:
            detail = _explain(self.directory, int(left.get("node") or 0))
        return Observation(
            Phase.ENDED,
            exit_code=code,
            word=word,
            detail=detail,
            started_at=self.started_at or _mtime(claim),
            ended_at=_mtime(path),
            host=self.name.host,
            resumed_from=str(left.get("resumed_from") or ""),
            node=int(left.get("node") or 0),
        )

    def _without_exit_file(self, status: int | None) -> tuple[int | None, str, str]:
        if (self.directory / CANCELLED).exists():
            return None, "killed", "it was ended before it could leave an exit status"
        if status == OwnExit.DUPLICATE:
            return status, OwnExit.DUPLICATE.word, ""
        if status == 0:
            return 0, "", ""
        if status is not None and status > 0:
            word = OwnExit.TIMED_OUT.word if status == OwnExit.TIMED_OUT else ""
            return status, word, "its exit file could not be written; is the disk full?"
        if not self.name.is_of_this_boot:
            return None, "", f"{self.name.host} was started anew while it ran"
        return None, "", "it was killed and left no exit status"


def _read(path: Path) -> dict[str, Any]:
    """Return an exit file's content; nothing when there is none or it is not whole."""
    try:
        with path.open("rb") as file:
            # A checkpoint may have any name; that one is not UTF-8 must not cost the exit code.
            text = file.read(_EXIT_FILE_BYTES).decode(errors="replace")
        loaded = json.loads(text, strict=False)
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) and isinstance(loaded.get("exit_code"), int) else {}


def _mtime(path: Path) -> float | None:
    try:
        return os.stat(path).st_mtime  # noqa: PTH116  (once for every run)
    except OSError:
        return None


def _explain(directory: Path, node: int) -> str:
    """Return what people should know about a command that failed."""
    parts = [f"node {node} failed first"] if node else []
    if _misses_a_file(directory / "logs" / f"node_{node}.log") and _has_code(directory):
        parts.append("the command starts in the launch directory; the code is in $CODE_SOURCE_PATH")
    return "; ".join(parts)


def _misses_a_file(log: Path) -> bool:
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            tail = file.read()
    except OSError:
        return False
    return any(words in tail for words in _NO_FILE)


def _has_code(directory: Path) -> bool:
    try:
        return b"\ncode_source:" in b"\n" + (directory / "training_config.yaml").read_bytes()
    except OSError:
        return False

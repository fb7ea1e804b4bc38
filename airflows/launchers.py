"""What launchers write when one of their processes has failed: torchrun, srun, mpirun. Pure.

It comes last in a log, and says less than what the process itself has said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TRACEBACK = "Traceback (most recent call last):"

ECHO = re.compile(
    r"[\w.]*\b(?:ChildFailedError|CalledProcessError|ProcessRaisedException)\b"
    r"|(?:srun|slurmstepd[\w-]*|mpirun|mpiexec|prterun): (?:error|fatal): "
    r"|MPI_ABORT was invoked on rank |.*\bapplication called MPI_Abort\("
    # What the other ranks say when one is gone.
    r"|RuntimeError: .*Check the logs of the remote worker"
)
"""An error that is there because a process of a launcher failed: of others in the log none is such."""

_ROOT_CAUSE = "Root Cause (first observed failure):"
_FIELD = re.compile(r"  (rank|exitcode|traceback) *: (.*)")
_RANK = re.compile(r"\[rank(\d+)\]:")
_MORE_OF_ABORT = re.compile(r"\s*(?:with errorcode|Proc:|Errorcode:)")
_SIGKILL = 9


@dataclass(frozen=True, slots=True)
class RootCause:
    """The process that torchrun saw fail first.

    Attributes:
        rank: its rank.
        exit_code: its own, as a shell would tell it.
        traceback: what it has raised, where it wrote that down; empty else.
        said: its own lines before, and those of which nobody knows whose they are.
        is_killed: by SIGKILL, before it could say anything.
    """

    rank: int
    exit_code: int
    traceback: Sequence[str]
    said: Sequence[str]
    is_killed: bool


def root_cause(lines: Sequence[str]) -> RootCause | None:
    """Return what torchrun's own error block, the last of them, says; None where there is none."""
    starts = [at for at, line in enumerate(lines) if line.startswith(_ROOT_CAUSE)]
    if not starts:
        return None
    fields: dict[str, str] = {}
    traceback: list[str] = []
    for line in lines[starts[-1] + 1 :]:
        found = _FIELD.fullmatch(line)
        if line.startswith("====="):
            break
        if "traceback" in fields:
            traceback.append(line[2:])
        elif found:
            fields[found[1]] = found[2]
    rank, code = (_number(fields.get(name, "")) for name in ("rank", "exitcode"))
    if rank is None or code is None:
        return None
    has_traceback = fields.get("traceback", "").startswith(TRACEBACK)
    return RootCause(
        rank=rank,
        exit_code=code if code >= 0 else 128 - code,
        traceback=[TRACEBACK, *traceback] if has_traceback else [],
        said=_said(lines, starts, rank),
        is_killed=code == -_SIGKILL,
    )


def _number(text: str) -> int | None:
    found = re.match(r"-?\d+", text)
    return int(found[0]) if found else None


def _said(lines: Sequence[str], starts: Sequence[int], rank: int) -> list[str]:
    """Return the lines of a rank; without any, those of its node that are nobody's in particular."""
    own = [line for line in lines if (found := _RANK.match(line)) and int(found[1]) == rank]
    begin = starts[-2] + 1 if len(starts) > 1 else 0
    return own or [line for line in lines[begin : starts[-1]] if not _RANK.match(line)]


def joined(lines: Iterable[str]) -> list[str]:
    """Return the lines, with those of which Open MPI makes two or three made one."""
    made: list[str] = []
    for line in lines:
        if made and made[-1].startswith("MPI_ABORT was invoked on rank ") and _MORE_OF_ABORT.match(line):
            made[-1] = f"{made[-1].rstrip()} {line.strip()}"
        else:
            made.append(line)
    return made

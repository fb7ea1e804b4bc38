"""What a run left on the shared disk, and what that and Slurm's word together say of its end."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflows.backends.base import Observation, Phase
from airflows.backends.slurm.parsing import TELLING, Row, TaskId
from airflows.exits import OwnExit

_NO_OUTPUT = 53
_HOSTS = re.compile(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\])?([^,\[]*)")
# Signalled by Slurm but over before it was killed: the grace time of a preemption.
_SIGNALLED = "signalled"


@dataclass(frozen=True, slots=True)
class Claim:
    """What the newest start of an attempt wrote before it did anything.

    Attributes:
        task: the array element that runs it.
        host: the machine of node 0.
        began: seconds since the epoch.
        resumed_from: the checkpoint it started from, empty for none.
    """

    task: TaskId
    host: str
    began: float
    resumed_from: str


def read_claim(claims: Path, token: str) -> Claim | None:
    """Return the claim of the last start of an attempt; None when it never started."""
    path = claims / f"{token}.0"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        restart = 1
        while (claims / f"{token}.{restart}").exists():
            lines = (claims / f"{token}.{restart}").read_text(encoding="utf-8").splitlines()
            restart += 1
        task, host, began = lines[0].split(" ")
        array, _, index = task.partition("_")
        return Claim(TaskId(int(array), int(index)), host, float(began), "".join(lines[1:2]))
    except (OSError, ValueError, IndexError):
        return None


def read_exit(launch_dir: Path) -> dict[str, Any]:
    """Return the exit file of an attempt; nothing when there is none or it is not whole yet."""
    try:
        loaded = json.loads((launch_dir / "exit.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) and isinstance(loaded.get("exit_code"), int) else {}


def is_clean(left: dict[str, Any]) -> bool:
    """Whether an exit file says that the command ended well by itself, whatever became of the job then."""
    return left.get("exit_code") == 0 and not left.get("word")


def ended(row: Row | None, left: dict[str, Any], claim: Claim | None) -> Observation:
    """Return the observation of a run that is over.

    Args:
        row: what Slurm says of it; None when it no longer knows the run.
        left: its exit file, empty for none.
        claim: of its start, None when it never started.
    """
    state = row.state if row else ""
    code, word, detail = left.get("exit_code"), str(left.get("word") or ""), ""
    if not is_clean(left):
        word = _word(state, word)
    node = int(left.get("node") or 0)
    if node:
        detail = f"node {node} failed first"
    if code is None:
        code, word, detail = _without_exit_file(row, word)
    started = left.get("began") or (claim.began if claim else None) or (row.started if row else None)
    return Observation(
        Phase.ENDED,
        exit_code=code,
        word=word,
        detail=detail,
        started_at=started,
        ended_at=left.get("ended") or (row.ended if row else None),
        host=str(left.get("host") or (claim.host if claim else "") or first_host(row.nodes if row else "")),
        resumed_from=str(left.get("resumed_from") or (claim.resumed_from if claim else "")),
        node=node,
    )


def _word(state: str, word: str) -> str:
    if state == "CANCELLED" and word and word != _SIGNALLED:
        return word
    if state in TELLING:
        return state
    return "PREEMPTED" if word == _SIGNALLED else word


def _without_exit_file(row: Row | None, word: str) -> tuple[int | None, str, str]:
    if row is None:
        return None, "LOST", "Slurm no longer knows it, and it left no exit file"
    if row.state in TELLING:
        return None, word, row.reason and f"Slurm says {row.reason}"
    code = row.exit_code
    if code == 0 and row.signal == _NO_OUTPUT:
        return (
            None,
            "",
            "its log could not be opened on the node: is the root on a disk that all nodes share?",
        )
    if code is None:
        return None, word, f"Slurm says {row.state}, and it left no exit file"
    if row.signal:
        return 128 + row.signal, word, "its batch shell was killed"
    if code == OwnExit.DUPLICATE:
        word = OwnExit.DUPLICATE.word
    return code, word, "its exit file could not be written: is the disk full?" if code and not word else ""


def first_host(nodes: str) -> str:
    """Return the first name of a host list: `n07` of `n[07-12,20]`.

    Example:
        >>> first_host("gpu-a[03,07-09]b,login1")
        'gpu-a03b'
    """
    found = _HOSTS.match(nodes)
    return "" if found is None else f"{found[1]}{found[2] or ''}{found[3] or ''}"

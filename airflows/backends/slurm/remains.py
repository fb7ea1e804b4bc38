"""What a run left on the shared disk, and what that and Slurm's word together say of its end."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflows.backends.base import Observation, Phase
from airflows.backends.slurm.parsing import TELLING, Row, TaskId
from airflows.exits import OwnExit

_NO_OUTPUT = 53
# Slurm's own number for a kill by the kernel for want of memory, where it does not say OUT_OF_MEMORY.
_NO_MEMORY = 125
_HOSTS = re.compile(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\])?([^,\[]*)")
# Signalled by Slurm but over before it was killed: the grace time of a preemption.
_SIGNALLED = "signalled"
_KILLED = 137
_SIGNAL_BASE = 128
NOBODY = "-"
"""The host in the claim of an attempt that was kept from starting."""


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
    """Return the newest claim of an attempt; None when there is none."""
    try:
        lines = _text(f"{claims}/{token}.0").splitlines()
        with contextlib.suppress(FileNotFoundError):
            for restart in itertools.count(1):
                lines = _text(f"{claims}/{token}.{restart}").splitlines()
        task, host, began = lines[0].split(" ")
        array, _, index = task.partition("_")
        return Claim(TaskId(int(array), int(index)), host, float(began), "".join(lines[1:2]))
    except (OSError, ValueError, IndexError):
        return None


def read_start(claims: Path, token: str) -> Claim | None:
    """Return the claim of the last start of an attempt; None when it never started."""
    claim = read_claim(claims, token)
    return None if claim is None or claim.host == NOBODY else claim


def read_exit(launch_dir: Path) -> dict[str, Any]:
    """Return the exit file of an attempt; nothing when there is none or it is not whole yet."""
    try:
        # A checkpoint's name may hold anything: line ends, and bytes that are no UTF-8.
        loaded = json.loads(_text(f"{launch_dir}/exit.json"), strict=False)
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) and isinstance(loaded.get("exit_code"), int) else {}


def _text(path: str) -> str:
    # Read for every run that ends, and no more than one call: path objects take longer than the disk.
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read().decode("utf-8", "replace")


def is_last_word(left: dict[str, Any]) -> bool:
    """Whether the exit file of one in a pack says all, and Slurm's word is about the others."""
    return bool(left) and left.get("word") != _SIGNALLED


def row_of_member(row: Row, left: dict[str, Any], *, started: bool) -> Row | None:
    """Return what Slurm says of an element as far as it concerns one of its pack; None for nothing.

    Args:
        row: of the element.
        left: the exit file of the one, empty for none.
        started: there is a claim of it.
    """
    is_out_of_memory = row.state == "OUT_OF_MEMORY" and left.get("exit_code") == _KILLED
    if is_last_word(left) and not is_out_of_memory:
        return None
    all_ended_well = row.exit_code == 0 and not row.signal
    if left or row.state in TELLING or (started and all_ended_well):
        return row
    # That any of them failed, or that the shell that ran them was killed, tells nothing of this one.
    return replace(row, exit_code=None, signal=0)


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
    code, word, node = left.get("exit_code"), str(left.get("word") or ""), int(left.get("node") or 0)
    details = [f"node {node} failed first"] if node else []
    if not is_clean(left):
        word = _word(state, word)
        details += _slurms_words(row)
    if code is None:
        code, word, why = _without_exit_file(row, word)
        details += [why] if why else []
    started = left.get("began") or (claim.began if claim else None) or (row.started if row else None)
    return Observation(
        Phase.ENDED,
        exit_code=code,
        word=word,
        detail="; ".join(details),
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


def _slurms_words(row: Row | None) -> list[str]:
    """Return `Slurm says NODE_FAIL (NodeDown)` where its word is more than that of an exit code."""
    if row is None or row.state not in TELLING:
        return []
    reason = f" ({row.reason})" if row.reason else ""
    return [f"Slurm says {row.state}{reason}"]


def is_blind(row: Row, claim: Claim | None) -> bool:
    """Whether the node of a run without an exit file saw nothing of the root, neither logs nor preamble."""
    if claim is not None:
        return False
    return (row.exit_code, row.signal) == (0, _NO_OUTPUT) or row.exit_code == OwnExit.INVALID


def blind(row: Row, launch_dir: Path, *, others_started: bool) -> Observation:
    """Return the observation of such a run.

    Args:
        row: what Slurm says of it.
        launch_dir: of the attempt.
        others_started: other nodes see the root, so it is this one that is at fault.
    """
    why = f"{_node(row)} does not see {launch_dir}, or cannot write there, so nothing was started"
    return _not_run(row, f"{why}: the backend's root must be on a disk that all nodes share", others_started)


def never_began(row: Row, claim: Claim | None) -> bool:
    """Whether the batch script of a run without an exit file ended before its preamble, whatever it says.

    No command is run without a claim, and without one the preamble ends with these two codes only.
    """
    if claim is not None or row.signal:
        return False
    return row.exit_code not in {None, OwnExit.INVALID, OwnExit.DUPLICATE}


def unbegun(row: Row, *, is_of_node: bool) -> Observation:
    """Return the observation of such a run.

    Args:
        row: what Slurm says of it.
        is_of_node: the node is at fault, rather than lines of `setup` that every node is given.
    """
    why = f"its batch script ended with exit code {row.exit_code} before the command, so nothing was run"
    if is_of_node:
        return _not_run(row, f"{why}: {_node(row)} could not run it; its log may say more", True)
    seen = _not_run(row, f"{why}: see the backend's `setup`, and its log", False)
    # Perhaps the node's fault all the same, so it may be tried again as often as a command that failed.
    return replace(seen, exit_code=row.exit_code, word="") if row.exit_code else seen


def _node(row: Row) -> str:
    return f"node {first_host(row.nodes) or '?'}"


def _not_run(row: Row, detail: str, is_of_node: bool) -> Observation:
    return Observation(
        Phase.ENDED,
        word="NODE_FAIL" if is_of_node else OwnExit.INVALID.word,
        detail=detail,
        started_at=row.started,
        ended_at=row.ended,
        host=first_host(row.nodes),
    )


def _without_exit_file(row: Row | None, word: str) -> tuple[int | None, str, str]:
    if row is None:
        return None, "LOST", "Slurm no longer knows it, and it left no exit file"
    if row.state in TELLING:
        return None, word, ""
    code = row.exit_code
    if row.signal == _NO_MEMORY:
        code, word = None, "OUT_OF_MEMORY"
    if code is None:
        return None, word, f"Slurm says {row.state}, and it left no exit file"
    if row.signal:
        return _SIGNAL_BASE + row.signal, word, "its batch shell was killed"
    if code == OwnExit.DUPLICATE:
        return code, OwnExit.DUPLICATE.word, ""
    if code == OwnExit.TIMED_OUT:
        word = OwnExit.TIMED_OUT.word
    return code, word, "its exit file could not be written: is the disk full?" if code else ""


def first_host(nodes: str) -> str:
    """Return the first name of a host list: `n07` of `n[07-12,20]`.

    Example:
        >>> first_host("gpu-a[03,07-09]b,login1")
        'gpu-a03b'
    """
    found = _HOSTS.match(nodes)
    return "" if found is None else f"{found[1]}{found[2] or ''}{found[3] or ''}"

"""Why an attempt ended: exit code, scheduler's word and last lines make a class and a signature. Pure.

An exit code alone says little: 137 is a SIGKILL from anybody. Nothing here guesses memory from it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from airflows.backends.base import Observation
from airflows.launchers import ECHO, TRACEBACK, joined, root_cause
from airflows.trial import Reason

_WORDS = {
    "PREEMPTED": Reason.PREEMPTED,
    "DISRUPTION_TARGET": Reason.PREEMPTED,
    "REVOKED": Reason.PREEMPTED,
    "NODE_FAIL": Reason.NODE_FAILED,
    "BOOT_FAIL": Reason.NODE_FAILED,
    "NODE_FAILED": Reason.NODE_FAILED,
    "OUT_OF_MEMORY": Reason.OUT_OF_MEMORY,
    "OOM": Reason.OUT_OF_MEMORY,
    "OOMKILLED": Reason.OUT_OF_MEMORY,
    "TIMEOUT": Reason.TIMED_OUT,
    "TIMED_OUT": Reason.TIMED_OUT,
    "TIMEDOUT": Reason.TIMED_OUT,
    "DEADLINE": Reason.TIMED_OUT,
    "LOST": Reason.LOST,
    "INVALID": Reason.INVALID,
    "DUPLICATE": Reason.DUPLICATE,
    "CODE_DAMAGED": Reason.CODE_DAMAGED,
    "NO_RENDEZVOUS": Reason.NO_RENDEZVOUS,
}
_MEMORY = re.compile(
    r"^(?:\[[^\]]*\]:?\s*)?[\w.]*MemoryError(?::|$)"
    r"|\b(?:CUDA|HIP|MPS|XPU)\b[^\n]{0,40}\bout of memory"
    r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED"
    r"|RESOURCE_EXHAUSTED: Out of memory|\bOOM when allocating"
    r"|std::bad_alloc|DefaultCPUAllocator: (?:can't allocate|not enough) memory|Cannot allocate memory"
    r"|\boom[-_]kill|Out of memory: Killed process"
    r'|^Exception in thread "[^"]*" java\.lang\.OutOfMemoryError|^Out of memory!$'
)

_NOT_TEXT = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_LINE_CHARS = 2000
# In front of a line: a rank (`[rank1]: `), a srun or Ray label, the rails of an exception group.
_PREFIX = r"[\s|+]*(?:\[[^\]]*\]:?\s|\([^)]*\)\s|\d+:\s)?"
_TRACEBACK_LINE = re.compile(rf"({_PREFIX})(?:Exception Group )?{re.escape(TRACEBACK)}")
_NOISE = ("Exception ignored in", "--- Logging error ---")
_TELLING = (
    re.compile(rf"{_PREFIX}[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|NotFound)(?::|$)"),
    # A shell's remark: FILE: line 3: foo: command not found
    re.compile(r"\S.*: line \d+: \S"),
    re.compile(r".*\b(?:error|fatal)\b:(?!\s*[-+.\d])", re.IGNORECASE),
    re.compile(r"Fatal Python error: |terminate called | +what\(\): +\S"),
    re.compile(r"MPI_ABORT was invoked on rank |.*\bapplication called MPI_Abort\("),
)
# NCCL's own words for a collective that hangs, in front of which stand times and ranks, more than once.
_WATCHDOG = re.compile(r".*(?=\bWatchdog caught collective operation timeout: )")
# A shell's remark that a signal came: FILE: line 3:  1757 Killed   python train.py
_SIGNALLED = re.compile(r"\S.*: line \d+: +\d+ [A-Z]")
_SHELL_FILE = re.compile(r"^/.*?/(?=[^/]+: line \d+: )")

_NORMALISE = (
    (re.compile(r"0x[0-9a-fA-F]+"), "0x…"),
    (re.compile(r"(?<![\w./])(?:/[^\s:'\"(),/]+)*/(?=[^\s/])"), "…/"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b"), "<id>"),
    (re.compile(r"\btmp[a-z0-9_]{8}\b"), "<tmp>"),
    (re.compile(r"(?<!\w)[-+]?(?=\d)"), ""),
    (re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"), "N"),
    (re.compile(r"\bN\.? ?(?:[KMGTP]i?B|bytes)\b"), "N bytes"),
    (re.compile(r"\s+"), " "),
)
_SIGNATURE_CHARS = 300


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why an attempt ended otherwise than well.

    Attributes:
        reason: the class, which decides about a retry.
        signature: the last error with numbers, addresses and paths levelled, so that equal causes agree.
        message: one line for people: the last error as it stood, or what the backend said.
    """

    reason: Reason
    signature: str
    message: str


def classify(seen: Observation, tail: Sequence[str]) -> Verdict:
    """Return why an ended attempt ended, from what the backend saw and its last lines of log.

    Args:
        seen: an observation with phase ENDED that is not a clean exit.
        tail: the last lines of its logs, oldest first, those of the node that failed first at the end.
    """
    lines = joined(line for line in map(_as_text, tail) if line)
    seen = replace(seen, detail=_as_text(" ".join(seen.detail.split()))[:_SIGNATURE_CHARS])
    memory = _memory_line(lines)
    reason = _reason(seen, memory)
    line = (memory if reason is Reason.OUT_OF_MEMORY else "") or last_error(lines)
    if line:
        cause, message = normalise(line), line
    else:
        cause, message = _without_error(*_ending(seen, lines), reason)
    message = message[:_SIGNATURE_CHARS]
    if seen.detail and seen.detail not in message:
        message = f"{message}; {seen.detail}"
    return Verdict(reason, f"{reason}: {cause}"[:_SIGNATURE_CHARS], message)


def _memory_line(lines: Sequence[str]) -> str:
    # Four spaces begin the source text of a traceback, which may well handle such errors.
    found = [line for line in lines if _MEMORY.search(line) and not line.startswith("    ")]
    return _bare(found[-1]) if found else ""


def _reason(seen: Observation, memory: str) -> Reason:
    word = _WORDS.get(seen.word.upper().replace("-", "_"))
    if word is not None:
        return word
    if seen.exit_code is None:
        return Reason.LOST
    return Reason.OUT_OF_MEMORY if memory else Reason.ERROR


def _ending(seen: Observation, lines: Sequence[str]) -> tuple[Observation, str]:
    """Return what was seen, and the last line; where a launcher says how its process ended, that end."""
    root = root_cause(lines)
    if root is not None and seen.exit_code is not None:
        return replace(seen, exit_code=root.exit_code), ""
    return seen, lines[-1].strip() if lines else ""


def _without_error(seen: Observation, last: str, reason: Reason) -> tuple[str, str]:
    """Return (levelled cause, message) of an end whose log names no error."""
    if seen.detail:
        return normalise(seen.detail), seen.detail
    if seen.exit_code is None:
        ending = "it ended without an exit status"
        return ending, ending
    ending = f"exit code {seen.exit_code}"
    if name := _signal_name(seen.exit_code):
        return name, f"ended by {name}, {ending}"
    if reason is not Reason.ERROR or not last:
        return ending, ending
    return f"{ending}: {normalise(last)}", f"{ending}: {last}"


def _signal_name(exit_code: int) -> str:
    number = exit_code - 128 if exit_code > 128 else -exit_code  # noqa: PLR2004 - the shell's convention
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def _as_text(line: str) -> str:
    """Return a line as a terminal would show it in the end: no colours, no overwritten progress bars."""
    shown = line.rstrip().rpartition("\r")[2]
    return _NOT_TEXT.sub("", shown[:_LINE_CHARS]).rstrip()


def last_error(tail: Sequence[str]) -> str:
    """Return the last line that names an error, empty when none does.

    That is the line under a Python traceback, whatever its class is called, a shell's remark, or a line
    with `error:`. What a launcher raises for its children comes second to what they said themselves; where it
    says which of them failed first, that one's words count, and no others'.
    """
    root = root_cause(tail)
    if root is not None and root.traceback:
        return next(filter(None, reversed(list(_telling_lines(root.traceback)))), "")
    if root is not None:
        said = [] if root.is_killed else _telling_lines(root.said)
        return ([line for line in said if not ECHO.match(line)] or [""])[-1]
    found = list(_telling_lines(tail))
    # An empty one stands for a signal: whatever was said before has nothing to do with that.
    own = [line for line in found if not ECHO.match(line)]
    # What a launcher says first is about the process that failed first.
    return (own[-1:] or found[:1] or [""])[0]


def _telling_lines(tail: Sequence[str]) -> Iterator[str]:
    # Where the lines of the traceback that is being read begin; None outside of any.
    begins: int | None = None
    is_noise, before = False, ""
    for line in tail:
        if TRACEBACK in line:
            header = _TRACEBACK_LINE.match(line)
            begins = len(header[1]) if header else 0
            is_noise = before.startswith(_NOISE)
        elif begins is not None:
            if line[begins : begins + 1].strip():
                begins = None
                if not is_noise:
                    yield _bare(line)
        elif _SIGNALLED.match(line):
            yield ""
        elif _WATCHDOG.match(line):
            yield _WATCHDOG.sub("", line)
        elif any(pattern.match(line) for pattern in _TELLING):
            yield _bare(line)
        before = line


def _bare(line: str) -> str:
    return _SHELL_FILE.sub("", re.sub(rf"^{_PREFIX}", "", line).strip())


def normalise(text: str) -> str:
    """Return the text with addresses, paths, ids, sizes and numbers levelled, at most 300 characters."""
    for pattern, replacement in _NORMALISE:
        text = pattern.sub(replacement, text)
    return text.strip()[:_SIGNATURE_CHARS]

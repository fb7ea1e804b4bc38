"""Why an attempt ended: exit code, scheduler's word and last lines make a class and a signature. Pure.

An exit code alone says little: 137 is a SIGKILL from anybody. Nothing here guesses memory from it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from airflows.backends.base import Observation
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
    r"CUDA out of memory|torch\.(?:cuda\.)?OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY"
    r"|cudaErrorMemoryAllocation|RESOURCE_EXHAUSTED: (?:Out of memory|OOM)|^MemoryError\b|std::bad_alloc|HIP out of memory"
    r"|oom-kill|Out of memory: Killed process",
    re.MULTILINE,
)
_ERROR_LINE = re.compile(
    r"^\s*(?:\[[^\]]*\]:?\s*)?(?:[\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b|.*\b(?:error|fatal|abort)\b)",
    re.IGNORECASE,
)
_EXCEPTION = re.compile(
    r"^\s*(?:\[[^\]]*\]:?\s*)?[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|NotFound)\b(?::|$)"
)
_NORMALISE = (
    (re.compile(r"0x[0-9a-fA-F]+"), "0x…"),
    (re.compile(r"(?<![\w.])(?:/[^\s:'\"(),]+)+/(?=[^/\s])"), "…/"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"), "N"),
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
        tail: the last lines of the logs of the node that failed first, oldest first.
    """
    line = last_error(tail)
    reason = _reason(seen, tail)
    shown = line or seen.detail or _ending(seen)
    return Verdict(reason, normalise(f"{reason}: {shown}"), shown[:_SIGNATURE_CHARS])


def _reason(seen: Observation, tail: Sequence[str]) -> Reason:
    word = _WORDS.get(seen.word.upper().replace("-", "_"))
    if word is not None:
        return word
    if seen.exit_code is None:
        return Reason.LOST
    return Reason.OUT_OF_MEMORY if _MEMORY.search("\n".join(tail)) else Reason.ERROR


def _ending(seen: Observation) -> str:
    if seen.exit_code is None:
        return "it ended without an exit status"
    return f"exit code {seen.exit_code}"


def last_error(tail: Sequence[str]) -> str:
    """Return the line that names the error: exceptions first, then error words, then the last."""
    lines = [line.strip() for line in tail if line.strip()]
    for pattern in (_EXCEPTION, _ERROR_LINE):
        for line in reversed(lines):
            if pattern.search(line):
                return line
    return lines[-1] if lines else ""


def normalise(text: str) -> str:
    """Return the text with addresses, paths, ids and numbers levelled, at most 300 characters."""
    for pattern, replacement in _NORMALISE:
        text = pattern.sub(replacement, text)
    return text.strip()[:_SIGNATURE_CHARS]

"""The values of directives: times, memory, node counts, arrays, GPUs, signals. Pure.

Each function returns None for what sbatch refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MAX_INDEX = 4_000_000

_NO_LIMIT = frozenset({"unlimited", "infinite", "-1"})
_TIME = re.compile(r"(?:(\d+)-(\d*)(?::(\d+))?(?::(\d+))?|(\d+)(?::(\d+))?(?::(\d+))?)", re.ASCII)
_MEMORY = re.compile(r"(\d+)([kmgt]?)b?", re.ASCII | re.IGNORECASE)
_KIB = {"k": 1, "": 1 << 10, "m": 1 << 10, "g": 1 << 20, "t": 1 << 30}
_COUNT = re.compile(r"(\d+)([km]?)", re.ASCII | re.IGNORECASE)
_TIMES = {"": 1, "k": 1 << 10, "m": 1 << 20}
_STEPS = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)
_THROTTLE = re.compile(r"%(\d*)")
_SIGNAL = re.compile(r"(?:([BR]{1,2}):)?(?:SIG)?([A-Z][A-Z0-9+]*|\d+)(?:@(\d+))?", re.ASCII)
_SIGNALS = frozenset(
    "HUP INT QUIT ABRT KILL ALRM TERM USR1 USR2 URG CONT STOP TSTP TTIN TTOU".split()  # noqa: SIM905
)
_GPU_TYPE = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)
_MAX_SIGNAL_SECONDS = 65535


def minutes(text: str) -> int | None:
    """Return a time in minutes, rounded up; 0 for no limit."""
    if text.strip().lower() in _NO_LIMIT:
        return 0
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return None
    days, hours, of_hour, of_minute, *plain = found.groups()
    if days is not None:
        parts = [int(days) * 24 + int(hours or 0), int(of_hour or 0), int(of_minute or 0)]
    else:
        given = [int(part) for part in plain if part is not None]
        parts = {1: [0, *given, 0], 2: [0, *given], 3: given}[len(given)]
    seconds = parts[0] * 3600 + parts[1] * 60 + parts[2]
    return -(-seconds // 60)


def mebibytes(text: str) -> int | None:
    """Return a memory size in MiB, rounded up."""
    found = _MEMORY.fullmatch(text.strip())
    return None if found is None else -(-int(found[1]) * _KIB[found[2].lower()] // (1 << 10))


def node_range(text: str) -> tuple[int, int] | None:
    """Return (least, most) of a node count."""
    ends = [_node_count(part) for piece in text.split(",") for part in piece.partition(":")[0].split("-")]
    counts = [end for end in ends if end is not None]
    if len(counts) != len(ends) or (len(counts) > 1 and counts[0] > counts[-1]):
        return None
    return max(1, min(counts)), max(1, *counts)


def _node_count(text: str) -> int | None:
    found = _COUNT.fullmatch(text.strip())
    return None if found is None else int(found[1]) * _TIMES[found[2].lower()]


def whole(text: str) -> int | None:
    """Return a number from 1."""
    found = _count_of(text)
    return found or None


def _count_of(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,9}", text.strip(), re.ASCII) else None


@dataclass(frozen=True, slots=True)
class Array:
    """The indices of a job array.

    Attributes:
        runs: ranges of indices, sorted, without repeats and not touching.
        throttle: most tasks at once, None for no limit.
    """

    runs: tuple[range, ...]
    throttle: int | None = None

    @property
    def count(self) -> int:
        """How many tasks there are."""
        return sum(map(len, self.runs))

    @property
    def indices(self) -> Iterator[int]:
        """All indices, in order."""
        return (index for run in self.runs for index in run)

    @property
    def text(self) -> str:
        """The indices as Slurm prints them."""
        return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in self.runs)


def array(text: str) -> Array | None:
    """Return the array that `--array` asks for: a set, with the throttle wherever it stands."""
    throttles = _THROTTLE.findall(text)
    plain = _THROTTLE.sub("", text).strip()
    if plain.startswith("[") and plain.endswith("]"):
        plain = plain[1:-1]
    ranges = [_steps(piece) for piece in plain.split(",") if piece.strip()]
    known = [each for each in ranges if each is not None]
    if not known or len(known) != len(ranges) or sum(map(len, known)) > MAX_INDEX:
        return None
    throttle = int(throttles[-1] or 0) if throttles else 0
    return Array(tuple(_joined(known)), throttle or None)


def _steps(text: str) -> range | None:
    found = _STEPS.fullmatch(text.strip())
    if found is None:
        return None
    first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
    if first > last or step == 0 or last > MAX_INDEX:
        return None
    return range(first, last + 1, step)


def _joined(ranges: Sequence[range]) -> Iterator[range]:
    """Yield the runs of consecutive numbers in all of them."""
    start = end = None
    for index in sorted({index for each in ranges for index in each}):
        if end is not None and start is not None and index != end:
            yield range(start, end)
            start = index
        elif start is None:
            start = index
        end = index + 1
    if start is not None and end is not None:
        yield range(start, end)


def gpus(text: str) -> tuple[int, str | None] | None:
    """Return (count, type) of `4`, `a100:4`, `a100` or a list of these; the type in lower case."""
    total, kinds = 0, []
    for piece in text.split(","):
        kind, _, number = piece.strip().partition("(")[0].rpartition(":")
        if not kind and _GPU_TYPE.fullmatch(number):
            kind, number = number, "1"
        count = _count_of(number)
        if count is None or (kind and not _GPU_TYPE.fullmatch(kind)):
            return None
        total += count
        kinds += [kind.lower()] if kind else []
    return total, kinds[0] if kinds else None


def gpus_of_gres(text: str) -> tuple[int, str | None] | None:
    """Return (count, type) of the GPUs in a list of generic resources; (0, None) without GPUs."""
    if not all(piece.strip() for piece in text.split(",")):
        return None
    total, kinds = 0, []
    for piece in text.split(","):
        name, _, rest = piece.strip().partition(":")
        if name.lower().removeprefix("gres/") != "gpu":
            continue
        found = gpus(rest or "1")
        if found is None:
            return None
        total += found[0]
        kinds += [found[1]] if found[1] else []
    return total, kinds[0] if kinds else None


def signal(text: str) -> tuple[str, int, bool] | None:
    """Return (name, seconds before the end, whether the batch shell alone gets it)."""
    found = _SIGNAL.fullmatch(text.strip().upper())
    if found is None or int(found[3] or 0) > _MAX_SIGNAL_SECONDS:
        return None
    if not found[2].isdigit() and found[2] not in _SIGNALS:
        return None
    return found[2], int(found[3] or 60), "B" in (found[1] or "")

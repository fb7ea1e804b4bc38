"""What Slurm's commands print, as values. Pure. The delimited formats are alike from 20.11 to 25.11."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from airflows.backends.base import Phase

SQUEUE_FORMAT = "%F|%K|%T|%V|%S|%e|%N|%r|%j"
REST = -1
SACCT_FIELDS = "JobID,State,ExitCode,Submit,Start,End,NodeList,JobName"


@dataclass(frozen=True, slots=True)
class TaskId:
    """One element of an array: `4711_12`. Never the raw id, which the last element shares with the array.

    Index `REST` stands for an array that was cancelled before any of its last elements ran: all of them
    together leave one row without an index.
    """

    array: int
    index: int

    def __str__(self) -> str:
        """Return the form that Slurm's commands take."""
        return f"{self.array}_{self.index}"


@dataclass(frozen=True, slots=True)
class Row:
    """One task as squeue or sacct shows it.

    Attributes:
        state: the long word, such as `RUNNING`, without what sacct puts behind it.
        submitted, started, ended: seconds since the epoch, None where there is none.
        nodes: host list, such as `n[1-2]`.
        reason: why it waits, or what was in its way.
        name: of the job.
        exit_code: of the batch script; None where it is not shown.
        signal: that ended the batch script, 0 for none.
    """

    state: str
    submitted: float | None
    started: float | None
    ended: float | None
    nodes: str
    reason: str = ""
    name: str = ""
    exit_code: int | None = None
    signal: int = 0


_QUEUED = frozenset(
    [
        "PENDING",
        "CONFIGURING",
        "REQUEUED",
        "REQUEUE_HOLD",
        "REQUEUE_FED",
        "RESV_DEL_HOLD",
        "SPECIAL_EXIT",
        "EXPEDITING",
    ]
)
# COMPLETING hides how it ended; it is not over before that.
_RUNNING = frozenset(["RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "STAGE_OUT", "SIGNALING", "RESIZING"])
_ENDED = frozenset(
    [
        "COMPLETED",
        "FAILED",
        "OUT_OF_MEMORY",
        "TIMEOUT",
        "CANCELLED",
        "DEADLINE",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "LAUNCH_FAILED",
        "REVOKED",
    ]
)
TELLING = _ENDED - {"COMPLETED", "FAILED"}
"""Final states that say more than an exit code does."""

STUCK = frozenset(
    [
        "DependencyNeverSatisfied",
        "JobHeldUser",
        "JobHeldAdmin",
        "PartitionTimeLimit",
        "PartitionNodeLimit",
        "InvalidAccount",
        "InvalidQOS",
        "BadConstraints",
        "AccountNotAllowed",
        "QOSNotAllowed",
        "AssocMaxWallDurationPerJobLimit",
        "QOSMaxWallDurationPerJobLimit",
        "MaxMemPerLimit",
    ]
)
"""Reasons of pending jobs that do not go away by themselves."""


def waiting_words(row: Row) -> str:
    """Return why a run waits, in Slurm's own word; empty where it does not say."""
    if not row.reason or phase_of(row.state) is not Phase.QUEUED:
        return ""
    stuck = ", which does not go away by itself" if row.reason in STUCK else ""
    return f"Slurm says {row.reason}{stuck}"


def phase_of(state: str) -> Phase:
    """Return where a run in this state is; a word that nobody knows is UNKNOWN, never an end."""
    if state in _QUEUED:
        return Phase.QUEUED
    if state in _RUNNING:
        return Phase.RUNNING
    return Phase.ENDED if state in _ENDED else Phase.UNKNOWN


def squeue_rows(text: str) -> dict[TaskId, Row]:
    """Return the array tasks of `squeue -h -r -o SQUEUE_FORMAT`, with times as epochs."""
    rows: dict[TaskId, Row] = {}
    for line in text.splitlines():
        parts = line.split("|", 8)
        if len(parts) != 9 or not parts[0].isdigit():  # noqa: PLR2004 - the fields of the format
            continue
        array, indices, state, submitted, started, ended, nodes, reason, name = parts
        row = Row(
            _word(state),
            _epoch(submitted),
            _epoch(started),
            _epoch(ended),
            nodes,
            "" if reason == "None" else reason,
            name,
        )
        for index in _indices(indices):
            rows[TaskId(int(array), index)] = row
    return rows


def sacct_rows(text: str) -> dict[TaskId, list[Row]]:
    """Return the array tasks of `sacct -nXPD -o SACCT_FIELDS`: one row for each start, oldest first."""
    rows: dict[TaskId, list[Row]] = {}
    for line in text.splitlines():
        parts = line.split("|", 7)
        if len(parts) != 8:  # noqa: PLR2004 - the fields asked for
            continue
        job, state, exit_code, submitted, started, ended, nodes, name = parts
        array, _, indices = job.partition("_")
        if not array.isdigit():
            continue
        code, _, signal = exit_code.partition(":")
        row = Row(
            _word(state),
            _epoch(submitted),
            _epoch(started),
            _epoch(ended),
            nodes if nodes != "None assigned" else "",
            name=name,
            exit_code=int(code) if code.isdigit() else None,
            signal=int(signal) if signal.isdigit() else 0,
        )
        for index in _indices(indices):
            rows.setdefault(TaskId(int(array), index), []).append(row)
    return rows


def _word(state: str) -> str:
    """Return `CANCELLED` of `CANCELLED by 1000` and of `CANCELLED+`."""
    return state.split(" ", 1)[0].rstrip("+") if state else ""


def _epoch(text: str) -> float | None:
    return float(text) if text.isdigit() else None


def _indices(text: str) -> list[int]:
    if text.isdigit():
        return [int(text)]
    return [REST] if text in {"", "N/A"} else list(indices_of(text))


def indices_of(text: str) -> Iterator[int]:
    """Yield the indices of `7` and of `[0-2,4,6-12:2%8]`; none of anything else, such as a cut list."""
    listed = text.partition("%")[0].strip("[]")
    for part in listed.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if found is None:
            continue
        first = int(found[1])
        yield from range(first, int(found[2] or first) + 1, int(found[3] or 1))


def ranges(indices: list[int]) -> str:
    """Return indices as Slurm takes them: `0-2,4`."""
    parts: list[str] = []
    start = 0
    for place, index in enumerate(indices):
        if place + 1 == len(indices) or indices[place + 1] != index + 1:
            first = indices[start]
            parts.append(str(first) if first == index else f"{first}-{index}")
            start = place + 1
    return ",".join(parts)


# The site


@dataclass(frozen=True, slots=True)
class Site:
    """What `scontrol show config` says of a site, or Slurm's own defaults.

    Attributes:
        version: such as `22.05.8`.
        max_array: tasks of one array: indices are below it.
        max_jobs: jobs that slurmctld keeps, over all users.
        min_job_age_s: how long squeue shows a job that has ended.
        accounts: jobs are kept in a database that sacct asks.
    """

    version: str = ""
    max_array: int = 1001
    max_jobs: int = 10_000
    min_job_age_s: float = 300.0
    accounts: bool = True


def site_of(text: str) -> Site:
    """Read `scontrol show config`."""
    pairs = (line.partition("=") for line in text.splitlines())
    config = {key.strip(): value.strip() for key, _, value in pairs}
    default = Site()
    largest = _number(config.get("MaxArraySize"), default.max_array)
    tasks = re.search(r"\bmax_array_tasks=(\d+)", config.get("SchedulerParameters", ""))
    return Site(
        config.get("SLURM_VERSION", ""),
        max(1, min(largest, int(tasks[1]) if tasks else largest)),
        _number(config.get("MaxJobCount"), default.max_jobs),
        float(_number(config.get("MinJobAge"), int(default.min_job_age_s))),
        "slurmdbd" in config.get("AccountingStorageType", "slurmdbd"),
    )


def _number(text: str | None, default: int) -> int:
    found = re.match(r"\d+", text or "")
    return int(found[0]) if found else default


def max_submit_of(text: str) -> int | None:
    """Read `sacctmgr -nP show assoc format=maxsubmit`: the smallest limit, None for none."""
    limits = [int(line) for line in text.split() if line.isdigit()]
    return min(limits, default=None)


def own_limits_of(text: str, user: str) -> list[int | None]:
    """Read `scontrol show assoc_mgr`: MaxSubmitJobs of each association of a user, None for no limit."""
    records = re.split(r"^(?=ClusterName=)", text, flags=re.MULTILINE)
    own = [record for record in records if f" UserName={user}(" in record.partition("\n")[0]]
    found = [re.search(r"\bMaxSubmitJobs=(\d*)", record) for record in own]
    return [int(limit[1]) if limit[1] else None for limit in found if limit is not None]


# Answers to sbatch


class Refusal(Enum):
    """What an unsuccessful sbatch means."""

    REJECTED = "rejected"
    FULL = "full"
    DOUBTFUL = "doubtful"


# Whoever asks may have been heard: the answer was lost, not the request.
_DOUBTFUL = re.compile(
    r"socket|timed out|unable to contact|communication|zero bytes|transport|connection|munge|authentication"
    r"|unexpected message|configuration source|controller not responding|sleeping and retrying"
    r"|in backup mode",
    re.IGNORECASE,
)
# Every breach of a policy is told with "(job submit limit, user's size and/or time limits)"; which one it was
# stands in a line before. Only limits on the number of jobs go away by themselves.
_LIMIT = re.compile(r"\b(?:Assoc|QOS)\w*Limit\b")
_FULL = re.compile(
    r"job submit limit|resource temporarily unavailable|temporarily unable to accept"
    r"|maximum number of jobs|too many jobs|slow down|rate limit",
    re.IGNORECASE,
)


def job_id_of(stdout: str) -> int | None:
    """Read `sbatch --parsable`: `ID` or `ID;CLUSTER` on the last line."""
    for line in reversed(stdout.splitlines()):
        found = re.fullmatch(r"(?:Submitted batch job )?(\d+)(?:;\S+)?", line.strip())
        if found is not None:
            return int(found[1])
    return None


def refusal_of(stderr: str) -> Refusal:
    """Return what sbatch's words mean. FULL was not accepted and may be later."""
    if _DOUBTFUL.search(stderr):
        return Refusal.DOUBTFUL
    limits = _LIMIT.findall(stderr)
    if limits:
        return Refusal.FULL if all("Submit" in limit for limit in limits) else Refusal.REJECTED
    return Refusal.FULL if _FULL.search(stderr) else Refusal.REJECTED


def last_words(stderr: str) -> str:
    """Return what a command complained of, in one line, without its own name."""
    lines = [re.sub(r"^\w+: (?:error: |fatal: )?", "", line).strip() for line in stderr.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))[:500] or "no reason was given"

"""What Slurm has of ours, as `airflows list --remote` shows it: asked of squeue alone, known by the name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflows.backends.base import Phase, RemoteRun
from airflows.backends.slurm.batches import Batches, Element, Entry
from airflows.backends.slurm.commands import Commands
from airflows.backends.slurm.parsing import (
    REST,
    Row,
    TaskId,
    phase_of,
    waiting_words,
)
from airflows.backends.slurm.queries import queue
from airflows.backends.slurm.remains import first_host, is_last_word, read_exit

_OURS = re.compile(r"[a-z][a-z0-9-]*-[0-9a-f]{6}-b[0-9a-f]{8}")
"""The form of a batch's name, see `batch_name`."""


def remote_runs(commands: Commands, batches: Batches) -> list[RemoteRun]:
    """Return this user's array elements that wait or run and bear a name of ours.

    Which attempt one runs is known where its array file is.

    Raises:
        BackendUnavailableError: squeue did not answer.
    """
    return [
        run
        for task, row in queue(commands, "--me").items()
        if task.index != REST and _OURS.fullmatch(row.name)
        for run in _runs(task, row, batches)
    ]


def _runs(task: TaskId, row: Row, batches: Batches) -> Iterator[RemoteRun]:
    """Yield what an element runs: of a pack those that have not ended."""
    element = Element(task, row.name)
    entries = batches.row(element)
    for entry in entries:
        if entry.slot is None or not is_last_word(read_exit(entry.launch_dir)):
            yield _run(entry.element(task.array, row.name), row, entry)
    if not entries:
        yield _run(element, row, None)


def _run(element: Element, row: Row, entry: Entry | None) -> RemoteRun:
    phase = phase_of(row.state)
    return RemoteRun(
        handle=element.to_handle(),
        name=row.name,
        token=entry.token if entry else "",
        phase=phase,
        word=row.state,
        detail=waiting_words(row),
        host=first_host(row.nodes),
        submitted_at=row.submitted,
        # Of one that waits it is when Slurm thinks it will start.
        started_at=row.started if phase is Phase.RUNNING else None,
    )

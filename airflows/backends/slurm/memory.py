"""How much memory runs have used, as Slurm's accounts have measured it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from airflows.backends.measuring import MemoryUse
from airflows.backends.slurm.batches import Element
from airflows.backends.slurm.commands import Commands
from airflows.errors import BackendUnavailableError
from airflows.trial import Handle

_ROW = re.compile(r"^(\d+_\d+)(?:\.\w+)?\|(\d+(?:\.\d+)?)([KMGT]?)$", re.MULTILINE)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def memory_of(commands: Commands, handles: Sequence[Handle]) -> Mapping[Handle, MemoryUse]:
    """Return the largest step of each run; nothing of those that no accounts were kept of.

    Nor of one in a pack: what is measured is that of all of them.
    """
    elements = {handle: Element.of(handle) for handle in handles}
    tasks = {str(element.task): handle for handle, element in elements.items() if element.slot is None}
    if not tasks:
        return {}
    try:
        answer = commands.ask("sacct", "-nP", "-o", "JobID,MaxRSS", "-j", ",".join(tasks))
    except BackendUnavailableError:
        return {}
    most = largest_steps(answer.out)
    return {handle: MemoryUse(most[task]) for task, handle in tasks.items() if task in most}


def largest_steps(text: str) -> dict[str, int]:
    r"""Return the bytes of each task's largest step in `sacct -nP -o JobID,MaxRSS`.

    Example:
        >>> largest_steps("7_0|\n7_0.batch|1024K\n7_0.0|2M\n7_1.batch|0\n")
        {'7_0': 2097152}
    """
    most: dict[str, int] = {}
    for task, number, unit in _ROW.findall(text):
        # A step that was too short to be measured has 0.
        if used := int(float(number) * _UNITS[unit]):
            most[task] = max(used, most.get(task, 0))
    return most

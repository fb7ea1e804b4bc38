"""From an array to the keys of a sweep: what its tasks differ in. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from airflows.migrate import readoff, templates
from airflows.migrate.choice import only_logs
from airflows.migrate.edits import Edit, removal
from airflows.migrate.grammar import Array
from airflows.migrate.readoff import ReadOff
from airflows.migrate.report import Report
from airflows.migrate.shell import names
from airflows.migrate.shell.tree import Script
from airflows.migrate.trace import INDEX, Entry, Read, Trace, end_of, trace

MOST_FOLLOWED = 5000


@dataclass(slots=True)
class Sweeping:
    """What becomes of an array.

    Attributes:
        keys: variable to its value for each task, in the order of the tasks.
        prelude: lines in front of the command.
        edits: changes of the script.
        params: where the values of a task came from, as `carried` tells it.
    """

    keys: dict[str, list[str]] = field(default_factory=dict)
    prelude: list[str] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    params: dict[str, Any] | None = None


def by_index(array: Array) -> Sweeping:
    """Return a sweep over nothing but the index."""
    values = [str(index) for index in array.indices]
    return Sweeping({"ARRAY_INDEX": values}, [f'export {INDEX}="$ARRAY_INDEX"'])


def sweeping(
    script: Script, array: Array, read: Read, report: Report, *, needs_index: bool, flags: str = ""
) -> Sweeping:
    """Return what becomes of an array's script.

    Args:
        script: its tree.
        array: the indices.
        read: returns what a file holds, None when it cannot be read.
        report: gets what should be looked at.
        needs_index: a program that the script runs reads the index itself.
        flags: options of the interpreter.
    """
    if array.count > MOST_FOLLOWED:
        message = f"The array has {array.count} tasks, too many to look at one by one: its index is the key."
        report.note("array", 1, message)
        return by_index(array)
    indices = list(array.indices)
    constants = {
        "SLURM_ARRAY_TASK_COUNT": str(len(indices)),
        "SLURM_ARRAY_TASK_MIN": str(indices[0]),
        "SLURM_ARRAY_TASK_MAX": str(indices[-1]),
    }
    traced = trace(script, indices, read, constants, flags)
    found = readoff.read_off(traced)
    made = Sweeping(dict(found.keys), edits=_edits(script, found))
    _settle_index(made, traced, found, indices, needs_index=needs_index)
    made.params = _params(traced, found, indices)
    _tell(traced, found, made, report)
    return made


def _edits(script: Script, found: ReadOff) -> list[Edit]:
    edits = [Edit(selector.start, selector.end, text) for selector, text in found.selectors]
    for entry in found.removed:
        text = "\n".join(found.placed.get(entry, ()))
        end = max(entry.item.stop, end_of(script, entry.item))
        start = entry.item.start
        edits.append(Edit(start, end, text) if text else removal(script.text, start, end))
    return edits


# The index


def _settle_index(
    made: Sweeping, traced: Trace, found: ReadOff, indices: Sequence[int], *, needs_index: bool
) -> None:
    """Decide whether the index is a key, and give it to the command where it is used."""
    kept = [entry for entry in traced.entries if entry not in found.removed]
    users = [entry for entry in kept if names.mentions(_as_edited(entry, found), INDEX)]
    others = {name: values for name, values in made.keys.items() if not readoff.is_index(values, indices)}
    aliases = [name for name in made.keys if name not in others]
    rows = set(zip(*others.values(), strict=True)) if others else set()
    is_told = len(rows) == len(indices)
    is_used = bool(users) or needs_index
    number = templates.by_number([str(index) for index in indices])
    if is_told and not is_used and not aliases:
        made.prelude.append(f"unset {INDEX}  # the keys of the sweep take its place")
    elif is_told and not needs_index and not aliases and number and all(map(only_logs, users)):
        made.prelude.append(f"{INDEX}={number}  # for the log")
    else:
        _key_the_index(made, kept, indices, aliases, others)
    hidden = [name for name in made.keys if name in found.hidden or name not in found.keys]
    if hidden:
        made.prelude.append(f"export -n {' '.join(hidden)}  # for this script only, as before")


def _key_the_index(
    made: Sweeping,
    kept: Sequence[Entry],
    indices: Sequence[int],
    aliases: Sequence[str],
    others: dict[str, list[str]],
) -> None:
    name = aliases[0] if aliases else readoff.index_name(kept, others)
    made.keys = {name: [str(index) for index in indices], **others}
    made.prelude.append(f'export {INDEX}="${name}"')
    made.prelude += [f'{alias}="${name}"' for alias in aliases[1:]]


def _as_edited(entry: Entry, found: ReadOff) -> str:
    text = entry.text
    for selector, instead in found.selectors:
        if selector in entry.selectors:
            text = text.replace(selector.text, instead, 1)
    return text


# What is said of it


def _params(traced: Trace, found: ReadOff, indices: Sequence[int]) -> dict[str, Any] | None:
    """Return where the values of a task come from, None when the index itself is all."""
    from_file = _from_file(traced, indices)
    if from_file is not None:
        return from_file
    chosen = [values for values in found.keys.values() if not readoff.is_index(values, indices)]
    if not chosen:
        return None
    rows = zip(*chosen, strict=True)
    return {
        "source": "script",
        "values": {index: list(row) for index, row in zip(indices, rows, strict=True)},
    }


def _from_file(traced: Trace, indices: Sequence[int]) -> dict[str, Any] | None:
    counts = Counter(path for picked in traced.picked for path in {path for path, _ in picked})
    if not counts or counts.most_common(1)[0][1] < len(indices):
        return None
    path = counts.most_common(1)[0][0]
    lines = [next(line for each, line in picked if each == path) for picked in traced.picked]
    shifts = {line - index for line, index in zip(lines, indices, strict=True)}
    shift = shifts.pop() if len(shifts) == 1 else None
    line = "computed" if shift is None else f"index{shift:+d}" if shift else "index"
    params: dict[str, Any] = {"source": "file", "path": path, "line": line}
    if traced.separators:
        params["split"] = traced.separators[-1]
    return params


def _tell(traced: Trace, found: ReadOff, made: Sweeping, report: Report) -> None:
    keys = ", ".join(f"env_variables.{name}" for name in made.keys)
    for entry in found.unread:
        report.warn(
            "array-runtime-params",
            entry.line,
            "Which values a task has is found when it runs, and cannot be read off here: the line stays and"
            f" finds them by the index, which is the key {keys}. For a sweep over the values themselves list"
            " them under space in sweep.yaml and use their variables here.",
        )
    by_values = [entry for entry in found.removed if entry.is_tainted]
    lines = [entry.line for entry in by_values] + [
        entry.line
        for entry in traced.entries
        for selector, _ in found.selectors
        if selector in entry.selectors
    ]
    if made.params is not None and not found.unread and lines:
        report.warn(
            "array-runtime-params",
            min(lines),
            f"The values of a task were found by its index; they are now keys of the sweep: {keys}. They are"
            " what the script gives today. A program that reads SLURM_ARRAY_TASK_ID itself must be given them"
            " too.",
        )

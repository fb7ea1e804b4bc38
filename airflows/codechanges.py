"""What has become of code since it was kept. Reads files; writes none."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflows.errors import AirflowsError
from airflows.plans import Plan
from airflows.snapshot import file_digests

_FEW = 5
# How `airflows plan` begins a file, whatever its name.
_PLAN = re.compile(rb'\{\s*"plan": \d+,\s*"hash": "[0-9a-f]{64}"')
_PLAN_HEAD = 200


@dataclass(frozen=True, slots=True)
class CodeChanges:
    """Files that differ, by their names below the code's root; falsy when none does."""

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.added or self.removed)

    def __str__(self) -> str:
        kinds = {"changed": self.changed, "added": self.added, "removed": self.removed}
        return "; ".join(f"{_few(names)} {kind}" for kind, names in kinds.items() if names)


def _ordered(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def _few(names: Sequence[str]) -> str:
    hidden = len(names) - _FEW
    return ", ".join(names[:_FEW]) + (f" and {hidden} more" if hidden > 0 else "")


def code_digests(directory: Path, *, without: Collection[Path] = ()) -> dict[str, str]:
    """Return the digest of each file of a directory of code by its name; a plan that lies there is no code.

    Args:
        directory: the code, as it was kept.
        without: files, relative to it, that do not matter.

    Raises:
        OSError: a file cannot be read.
    """
    left = {str(path) for path in without}
    return {
        name: made
        for name, made in file_digests(directory).items()
        if not (name in left or (name.endswith(".json") and _is_plan(directory / name)))
    }


def _is_plan(path: Path) -> bool:
    with path.open("rb") as file:
        if _PLAN.match(file.read(_PLAN_HEAD)) is None:
            return False
    try:
        Plan.from_document(json.loads(path.read_bytes()), file=str(path))
    except (AirflowsError, ValueError):
        # A configuration, say, that only begins like a plan.
        return False
    return True


def code_changes(before: Path, now: Path, *, without: Collection[Path] = ()) -> CodeChanges:
    """Return what differs between two directories of code.

    Args:
        before: the directory as it was.
        now: as it is.
        without: files, relative to both, that do not matter.

    Raises:
        OSError: a file cannot be read.
    """
    one, other = (code_digests(directory, without=without) for directory in (before, now))
    return CodeChanges(
        changed=_ordered(name for name in one.keys() & other.keys() if one[name] != other[name]),
        added=_ordered(other.keys() - one.keys()),
        removed=_ordered(one.keys() - other.keys()),
    )

"""What has become of code since it was kept. Reads files; writes none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflows.snapshot import file_digests

_FEW = 5


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


def code_changes(before: Path, now: Path, *, without: Collection[Path] = ()) -> CodeChanges:
    """Return what differs between two directories of code.

    Args:
        before: the directory as it was.
        now: as it is.
        without: files, relative to both, that do not matter.

    Raises:
        OSError: a file cannot be read.
    """
    left = {str(path) for path in without}
    one, other = (
        {name: made for name, made in file_digests(directory).items() if name not in left}
        for directory in (before, now)
    )
    return CodeChanges(
        changed=_ordered(name for name in one.keys() & other.keys() if one[name] != other[name]),
        added=_ordered(other.keys() - one.keys()),
        removed=_ordered(one.keys() - other.keys()),
    )

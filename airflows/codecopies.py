"""A copy of the code for every attempt, so that what one writes beside its code changes it for no other.

Copies stay in the launch directories, as the rest of what an attempt ran does. Code that is too large for
that is shared; it is read-only, which holds for every user but root.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from airflows.snapshot import Snapshot, kept_files

_MOST_BYTES = 10 << 20
_MOST_FILES = 500
_BLOCK = 1 << 30


@dataclass(frozen=True, slots=True)
class _Content:
    """What a small snapshot holds: directories and links by relative name, files with their modes."""

    directories: tuple[str, ...]
    files: tuple[tuple[str, int], ...]
    links: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class CodeCopies:
    """Copies the code of a sweep into launch directories; looks once at what there is to copy."""

    _contents: dict[Path, _Content | None] = field(default_factory=dict)

    def path(self, code: Snapshot, launch_dir: Path) -> Path:
        """Return where an attempt finds its code; the last part is the name of the root."""
        if self._content(code) is None:
            return code.path
        return _own(code, launch_dir) / code.path.name

    def make(self, code: Snapshot, launch_dir: Path) -> None:
        """Copy small code into a launch directory, unless it is there: a run may be using it.

        Raises:
            OSError: it cannot be written.
        """
        content, target = self._content(code), _own(code, launch_dir)
        if content is None or target.exists():
            return
        target.parent.mkdir(exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
        aside.chmod(0o755)
        try:
            _copy(content, str(code.path), f"{aside}/{code.path.name}")
            aside.rename(target)
        except OSError as exc:
            shutil.rmtree(aside, ignore_errors=True)
            # Otherwise another driver was quicker.
            if exc.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise

    def _content(self, code: Snapshot) -> _Content | None:
        if code.path not in self._contents:
            self._contents[code.path] = _small_content(code.path)
        return self._contents[code.path]


def _own(code: Snapshot, launch_dir: Path) -> Path:
    # By digest, because an attempt that was never started may be written again with corrected code.
    return launch_dir / "code" / code.digest[:16]


def _small_content(directory: Path) -> _Content | None:
    """Return what is in a snapshot, None when it is too much for a copy per attempt."""
    names = kept_files(directory)
    if len(names) > _MOST_FILES:
        return None
    files, links, total = [], [], 0
    for name in names:
        path = directory / name
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            links.append((name, str(path.readlink())))
        else:
            files.append((name, stat.S_IMODE(state.st_mode) | stat.S_IWUSR))
            total += state.st_size
    if total > _MOST_BYTES:
        return None
    parents = {str(parent) for name in names for parent in Path(name).parents if parent.name}
    return _Content(tuple(sorted(parents)), tuple(files), tuple(links))


def _copy(content: _Content, source: str, target: str) -> None:
    # Not pathlib and shutil: this is done for every attempt.
    os.mkdir(target)  # noqa: PTH102
    for name in content.directories:
        os.mkdir(f"{target}/{name}")  # noqa: PTH102
    for name, mode in content.files:
        _copy_file(f"{source}/{name}", f"{target}/{name}", mode)
    for name, goal in content.links:
        os.symlink(goal, f"{target}/{name}")  # noqa: PTH211


def _copy_file(source: str, target: str, mode: int) -> None:
    """Copy a file, never link it: a hard link would be changed along with it."""
    reader = os.open(source, os.O_RDONLY)
    try:
        writer = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            # No bytes are copied where the file system can share them until one side is written to.
            while os.copy_file_range(reader, writer, _BLOCK):
                pass
        except OSError as exc:
            if exc.errno not in {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}:
                raise
            shutil.copyfile(source, target)
        finally:
            os.close(writer)
    finally:
        os.close(reader)

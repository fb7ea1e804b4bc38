"""The code of a run, kept as it was when the sweep started: `snapshots/<digest>/<root name>/`.

The digest is that of the files themselves (path, executable or not, content), so equal code is kept once,
whatever repository, commit or machine it came from. What is kept is read-only, and used again only after
its files were found to have that digest still.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from airflows import gitrepo
from airflows.errors import AirflowsError, SpecError
from airflows.gitrepo import Repository
from airflows.packing import code_files, committed_paths
from airflows.train import Git, TrainConfig
from airflows.train import Snapshot as Wanted

SIDECARS = ("git_state.json", "git_diff.patch")
_FIELD = "code_source.snapshot"
_LARGE_BYTES = 500 << 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Code that is kept.

    Attributes:
        digest: 64 hex characters, of all its files.
        path: the directory with the code; its name is that of the root.
        notices: what people should know about it.
    """

    digest: str
    path: Path
    notices: tuple[str, ...] = ()

    @property
    def sidecars(self) -> list[Path]:
        """The files that tell which state of which repository it was, if it came from one."""
        return [file for name in SIDECARS if (file := self.path.parent / name).exists()]


def snapshot(
    config: TrainConfig, base_dir: Path, root: Path, *, at: datetime | None = None
) -> Snapshot | None:
    """Keep the code that a train.yaml names; return None when it names none.

    Args:
        config: the train.yaml.
        base_dir: its directory, which relative paths start from.
        root: gets `snapshots/<digest>/<root name>/` unless it is there already.
        at: now, for the sidecar.

    Raises:
        SpecError: the directory, the branch, the commit or an included path is not there, the branch has
            uncommitted changes, or nothing is left to pack.
        AirflowsError: it cannot be written; nothing is left behind.
    """
    if config.code_source is None or config.code_source.snapshot is None:
        return None
    wanted = config.code_source.snapshot
    source = _existing_root(wanted.root_path, base_dir)
    now = at or datetime.now(UTC)
    with _beside(root / "snapshots") as aside:
        if wanted.git is None:
            kept = _keep_files(source, wanted, root, aside)
            commit = None
        else:
            commit = _keep_commit(source, wanted, wanted.git, aside / source.name)
            kept = _move(aside, source.name, root)
        _write_sidecars(kept.path.parent, gitrepo.state_files(source, commit=commit, at=now))
    return kept


def kept_snapshot(root: Path, digest: str, name: str) -> Snapshot | None:
    """Return a snapshot that was kept before under a root's name, None when it is gone or was changed."""
    path = root / "snapshots" / digest / name
    return Snapshot(digest, path) if digest and _has_digest(path, digest) else None


def kept_files(directory: Path) -> list[str]:
    """Return the files and links of a snapshot, relative, sorted; without what Python adds by running it."""
    found = []
    for here, names, files in os.walk(directory):
        names[:] = [name for name in names if name != "__pycache__"]
        found += [Path(here, name) for name in (*names, *files)]
    return sorted(str(path.relative_to(directory)) for path in found if path.is_symlink() or path.is_file())


def file_digests(directory: Path) -> dict[str, str]:
    """Return the digest of each file and link of a snapshot by its name.

    Raises:
        OSError: one cannot be read.
    """
    return {name: _digest(directory, [name]) for name in kept_files(directory)}


def _has_digest(directory: Path, digest: str) -> bool:
    try:
        return directory.is_dir() and _digest(directory, kept_files(directory)) == digest
    except OSError:
        return False


def root_directory(text: str, base_dir: Path) -> Path:
    """Return the directory that a `root_path` means, whether it exists or not.

    `$VAR` and `${VAR}` are expanded (to nothing when unset), then `~`; `project_root/` and every other
    relative path start from the directory of the train.yaml.
    """
    expanded = re.sub(
        r"\$(?:\{(\w*)\}|(\w+))", lambda found: os.environ.get(found[1] or found[2] or "", ""), text.strip()
    )
    if expanded == "~" or expanded.startswith("~/"):
        expanded = str(Path.home()) + expanded[1:]
    return (base_dir / expanded.removeprefix("project_root/")).resolve()


def _existing_root(text: str, base_dir: Path) -> Path:
    field = f"{_FIELD}.root_path"
    path = root_directory(text, base_dir)
    if not path.is_dir():
        problem = "is not a directory" if path.exists() else "does not exist"
        message = f"the code directory {path} {problem}."
        raise SpecError(message, field=field, hint=f"It was written as {text}, relative to {base_dir}.")
    if not path.name:
        message = "the code directory cannot be the root of the file system."
        raise SpecError(message, field=field)
    return path


# Files as they are


def _keep_files(source: Path, wanted: Wanted, root: Path, aside: Path) -> Snapshot:
    files = code_files(source, wanted.include_paths or [], without=root)
    kept = kept_snapshot(root, _digest(source, files), source.name)
    if kept is not None:
        return kept
    notices = []
    total = _copy(source, files, aside / source.name)
    if total > _LARGE_BYTES:
        notices.append(
            f"The code snapshot of {source} has {len(files):,} files and {total / 1e6:,.0f} MB: "
            ".gitignore or include_paths would keep data out of it."
        )
    return _move(aside, source.name, root, tuple(notices))


def _copy(source: Path, files: Sequence[str], target: Path) -> int:
    """Copy files and links; return the bytes."""
    total = 0
    made: set[Path] = set()
    for name in files:
        path = target / name
        if path.parent not in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.add(path.parent)
        try:
            shutil.copy2(source / name, path, follow_symlinks=False)
        except FileNotFoundError:
            # It went away between the listing and now.
            continue
        total += path.lstat().st_size
    return total


def _digest(directory: Path, files: Sequence[str]) -> str:
    """Return the digest of files and links: name, executable or not, content."""
    whole = hashlib.sha256()
    for name in files:
        path = directory / name
        try:
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                kind, content = "link", hashlib.sha256(os.fsencode(path.readlink()))
            elif stat.S_ISREG(mode):
                kind = "program" if mode & stat.S_IXUSR else "file"
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256")
            else:
                continue
        except FileNotFoundError:
            continue
        whole.update(f"{kind} {content.hexdigest()} ".encode() + os.fsencode(name) + b"\0")
    return whole.hexdigest()


# Commits


def _keep_commit(source: Path, wanted: Wanted, git: Git, target: Path) -> str:
    """Unpack a commit; return its full id."""
    repository = Repository.at(source)
    if repository is None:
        message = (
            f"{source} is not in a git repository."
            if gitrepo.is_installed()
            else "git is not installed, and a commit is asked for."
        )
        raise SpecError(message, field=f"{_FIELD}.git", hint="Leave `git` out to pack the files as they are.")
    commit = _commit(repository, git, wanted.include_paths or [])
    paths = committed_paths(repository, commit, wanted.include_paths or [])
    archive = repository.run("archive", "--format=tar", commit, *(["--", *paths] if paths else []))
    target.mkdir()
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        # Older 3.11, such as Debian 12's, has no filters; the archive is git's own and holds nothing outside.
        if hasattr(tarfile, "tar_filter"):
            packed.extractall(target, filter="tar")
        else:
            packed.extractall(target)  # noqa: S202
    return commit


def _commit(repository: Repository, git: Git, include: Sequence[str]) -> str:
    if git.commit is not None:
        commit = repository.resolve(git.commit.strip())
        if commit is None:
            message = f"commit {git.commit} is not in the repository of {repository.directory}."
            hint = "Fetch it first: nothing is fetched when a sweep starts."
            raise SpecError(message, field=f"{_FIELD}.git.commit", hint=hint)
        return commit
    field = f"{_FIELD}.git.branch"
    commit = repository.resolve(f"refs/heads/{git.branch}")
    if commit is None:
        message = f"there is no local branch {git.branch} in the repository of {repository.directory}."
        raise SpecError(message, field=field)
    if repository.is_dirty([path.strip() for path in include]):
        message = f"{repository.directory} has uncommitted changes, which branch {git.branch} does not hold."
        raise SpecError(
            message, field=field, hint="Commit them, or leave `git` out to pack the files as they are."
        )
    return commit


# Into place


@contextmanager
def _beside(snapshots: Path) -> Iterator[Path]:
    """Give a directory to make a snapshot in, gone afterwards; say plainly what cannot be written."""
    aside = None
    try:
        snapshots.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".new-", dir=snapshots))
        yield aside
    except OSError as exc:
        message = f"the code snapshot cannot be kept in {snapshots}: {exc.strerror or exc}."
        raise AirflowsError(
            message, hint="Free some space there, or set AIRFLOWS_HOME to another place."
        ) from exc
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)


def _move(aside: Path, name: str, root: Path, notices: tuple[str, ...] = ()) -> Snapshot:
    made = aside / name
    files = kept_files(made)
    if not files:
        message = "there is nothing to pack: no file is left of the code directory."
        raise SpecError(message, field=_FIELD, hint="See .gitignore and include_paths.")
    digest = _digest(made, files)
    target = root / "snapshots" / digest
    target.mkdir(exist_ok=True)
    return Snapshot(digest, target / name, (*notices, *_place(made, target / name, digest)))


def _place(made: Path, target: Path, digest: str) -> Iterator[str]:
    """Move code to where it belongs; yield what people should know about what was there."""
    try:
        made.rename(target)
    except OSError as exc:
        if exc.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
        if _has_digest(target, digest):
            # Somebody else was quicker with the same code.
            return
        # Not removed: it may hold what a trial wrote beside its code.
        changed = Path(tempfile.mkdtemp(prefix=f"{target.name}.changed-", dir=target.parent))
        with suppress(FileNotFoundError):
            target.rename(changed)
        made.rename(target)
        yield f"The kept code {target} had been changed. It was kept anew; what was there is in {changed}."
    _protect(target)


def _protect(directory: Path) -> None:
    """Take the right to write from everybody, as far as the file system has it."""
    for here, _, files in os.walk(directory):
        for path in (Path(here), *(Path(here, name) for name in files)):
            if not path.is_symlink():
                with suppress(OSError):
                    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222)


def _write_sidecars(directory: Path, files: dict[str, bytes]) -> None:
    for name in SIDECARS:
        path = directory / name
        if name not in files:
            path.unlink(missing_ok=True)
            continue
        # A new file each time: launch directories of earlier attempts are links to the one before.
        aside = directory / f".{name}.{os.getpid()}"
        aside.touch(mode=0o600)
        aside.write_bytes(files[name])
        aside.replace(path)

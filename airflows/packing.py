"""Which files of a directory belong to its code: what git does not ignore, without git's own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from airflows import gitrepo
from airflows.errors import SpecError
from airflows.gitrepo import Repository

_FIELD = "code_source.snapshot.include_paths"
# Byte code is made by looking: a snapshot with it would change whenever somebody ran the code.
_NEVER = (".git", "__pycache__")


def code_files(root: Path, include: Sequence[str], *, without: Path | None = None) -> list[str]:
    """Return the files and links below `root` that are packed, relative, sorted.

    What git would ignore is left out, by git's own rules where git is installed, else by those of
    `root/.gitignore` that need no git; `.git`, `._*` and `__pycache__` always are.

    Args:
        root: directory with the code.
        include: only these files and directories; all when empty.
        without: a directory to leave out, such as the one that snapshots are kept in.

    Raises:
        SpecError: an included path does not exist or holds no files.
    """
    found = _not_ignored(root) if gitrepo.is_installed() else _walk(root, _simple_rules(root))
    kept = sorted(
        path
        for path in found
        if _is_code(path) and _can_be_copied(root / path) and not _is_below(root / path, without)
    )
    if not include:
        return kept
    wanted = [PurePosixPath(path.strip()) for path in include]
    chosen = {path: [file for file in kept if PurePosixPath(file).is_relative_to(path)] for path in wanted}
    for path, files in chosen.items():
        if files:
            continue
        if not os.path.lexists(root / path):
            message = f"{path} does not exist below {root}."
        else:
            message = f"{path} holds no files to pack, or git ignores them (.gitignore)."
        raise SpecError(message, field=_FIELD)
    return sorted({file for files in chosen.values() for file in files})


def _is_code(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return not any(part in _NEVER or part.startswith("._") for part in parts)


def _can_be_copied(path: Path) -> bool:
    """Whether it is a file or a link: reading a pipe would wait for a writer."""
    return path.is_symlink() or path.is_file()


def _is_below(path: Path, directory: Path | None) -> bool:
    return directory is not None and path.is_relative_to(directory)


def _not_ignored(root: Path) -> Iterator[str]:
    repository = Repository.at(root)
    if repository is None or repository.has("check-ignore", "--quiet", "."):
        # Outside a work tree, or in a corner of one that it ignores as a whole: an empty repository of our
        # own makes git apply the rules below `root` alone.
        listed = _list_alone(root)
    else:
        listed = repository.run("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for path in dict.fromkeys(os.fsdecode(listed).split("\0")):
        if not path or not os.path.lexists(root / path):
            continue
        if (root / path).is_dir() and not (root / path).is_symlink():
            # A repository inside this one, which git names and does not look into.
            yield from (f"{path.rstrip('/')}/{file}" for file in _not_ignored(root / path))
        else:
            yield path


def _list_alone(root: Path) -> bytes:
    with tempfile.TemporaryDirectory(prefix="airflows-") as directory:
        gitrepo.run(Path(directory), ["init", "--quiet"])
        where = {"GIT_DIR": f"{directory}/.git", "GIT_WORK_TREE": str(root)}
        arguments = ["ls-files", "-z", "--others", "--exclude-standard"]
        return gitrepo.run(root, arguments, variables=where)


def _walk(root: Path, rules: Sequence[tuple[str, bool]]) -> Iterator[str]:
    for directory, names, files in os.walk(root):
        here = Path(directory).relative_to(root)
        links = [name for name in names if Path(directory, name).is_symlink()]
        names[:] = [name for name in names if name not in links and not _is_ruled_out(here / name, rules)]
        for name in [*files, *links]:
            if not _is_ruled_out(here / name, rules):
                yield str(here / name)


def _is_ruled_out(path: Path, rules: Iterable[tuple[str, bool]]) -> bool:
    return any(fnmatchcase(str(path) if anchored else path.name, pattern) for pattern, anchored in rules)


def _simple_rules(root: Path) -> list[tuple[str, bool]]:
    """Return (pattern, anchored at the root) of the lines that mean the same without git."""
    try:
        lines = (root / ".gitignore").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    rules = []
    for line in lines:
        pattern = line.strip()
        if not pattern or pattern.startswith(("#", "!")):
            continue
        pattern = pattern.rstrip("/").removeprefix("**/").removesuffix("/**")
        if "**" not in pattern:
            rules.append((pattern.lstrip("/"), "/" in pattern))
    return rules


def committed_paths(repository: Repository, commit: str, include: Sequence[str]) -> list[str]:
    """Return the included paths after checking that each exists at the commit.

    Raises:
        SpecError: some do not.
    """
    paths = [path.strip() for path in include]
    missing = [path for path in paths if not repository.ask("ls-tree", commit, "--", path)]
    if missing:
        message = f"{', '.join(missing)} does not exist at commit {commit[:12]}."
        raise SpecError(message, field=_FIELD)
    return paths

"""Questions to git about one directory, and what it says of the state of the code in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflows import addresses
from airflows.errors import AirflowsError

_LONGEST_S = 120.0
_DIFF_LONGEST_S = 5.0
_DIFF_BYTES = 1 << 20
_BASES = ("origin/HEAD", "origin/main", "origin/master", "main", "master")


class GitError(AirflowsError):
    """git refused, or is not installed; what was asked for cannot be had."""


def is_installed() -> bool:
    """Whether there is a git to ask."""
    return shutil.which("git") is not None


@dataclass(frozen=True, slots=True)
class Repository:
    """A directory in a git work tree; every path is relative to it."""

    directory: Path

    @classmethod
    def at(cls, directory: Path) -> Repository | None:
        """Return the repository that a directory is in, None when it is in none (or git is missing)."""
        if not is_installed():
            return None
        repository = cls(directory)
        answer = repository.ask("rev-parse", "--is-inside-work-tree")
        return repository if answer == "true" else None

    def run(self, *arguments: str, timeout_s: float = _LONGEST_S) -> bytes:
        """Return what git prints.

        Raises:
            GitError: git failed or took too long; the message ends with its last line.
        """
        return run(self.directory, arguments, timeout_s=timeout_s)

    def ask(self, *arguments: str) -> str | None:
        """Return git's answer without spaces around it, None when it has none."""
        try:
            return os.fsdecode(self.run(*arguments)).strip()
        except GitError:
            return None

    def has(self, *arguments: str) -> bool:
        """Whether git's exit status is 0."""
        return self.ask(*arguments) is not None

    def resolve(self, name: str) -> str | None:
        """Return the full id of the commit that a name means now, None when there is none."""
        return self.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")

    def is_dirty(self, paths: Sequence[str]) -> bool:
        """Whether files under the paths (all of the directory when there are none) differ from HEAD."""
        return bool(self.run("status", "--porcelain", "--", *(paths or ["."])).strip())


def run(
    directory: Path,
    arguments: Sequence[str],
    *,
    timeout_s: float = _LONGEST_S,
    variables: dict[str, str] | None = None,
) -> bytes:
    """Run git in a directory and return what it prints; see `Repository.run`."""
    # GIT_DIR and its like are set inside hooks, and would send git to another repository.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **(variables or {})}
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=directory,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        message = f"git {arguments[0]} in {directory} did not end well: {exc}"
        raise GitError(message) from exc
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        message = f"git {arguments[0]} in {directory} failed: {lines[-1] if lines else done.returncode}"
        raise GitError(message)
    return done.stdout


def state_files(directory: Path, *, commit: str | None, at: datetime) -> dict[str, bytes]:
    """Return `git_state.json`'s content and, when there is one, `git_diff.patch`, by file name.

    Both tell people which code ran. The patch holds uncommitted changes as they are, secrets included.
    Empty outside a work tree, and whenever git does not answer: a missing sidecar never stops a run.

    Args:
        directory: what is packed.
        commit: the packed commit, None when the files were packed as they are.
        at: now.
    """
    repository = Repository.at(directory)
    if repository is None:
        return {}
    try:
        state, patch = _state(repository, commit, at)
    except GitError:
        return {}
    files = {"git_state.json": (json.dumps(state, indent=2) + "\n").encode()}
    if patch:
        files["git_diff.patch"] = patch
    return files


def _state(repository: Repository, commit: str | None, at: datetime) -> tuple[dict[str, Any], bytes]:
    head = repository.resolve("HEAD")
    dirty = repository.is_dirty([])
    status, patch = _diff(repository) if dirty and head and commit is None else ("clean", b"")
    state = {
        "schema_version": 1,
        "packaging_mode": "plain_tar" if commit is None else "git_archive",
        "base_commit": _base(repository),
        "tip_commit": commit or head,
        "branch": repository.ask("symbolic-ref", "--short", "--quiet", "HEAD"),
        "repo_url": _without_credentials(repository.ask("config", "--get", "remote.origin.url")),
        "dirty": dirty,
        "diff_status": status,
        "diff_path": "git_diff.patch" if patch else None,
        "generated_at_utc": at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    return state, patch


def _base(repository: Repository) -> str | None:
    for name in _BASES:
        if repository.resolve(name):
            return repository.ask("merge-base", "HEAD", name)
    return None


def _diff(repository: Repository) -> tuple[str, bytes]:
    try:
        # Whatever the user's configuration says: no program of theirs, no colors.
        how = ("--no-ext-diff", "--no-color")
        patch = repository.run("diff", *how, "HEAD", "--", ".", timeout_s=_DIFF_LONGEST_S)
    except GitError as exc:
        if isinstance(exc.__cause__, subprocess.TimeoutExpired):
            return "timeout", b""
        raise
    if len(patch) > _DIFF_BYTES:
        return "size_exceeded", b""
    # Only new files are no diff, and the tree is dirty all the same.
    return "captured", patch


def _without_credentials(url: str | None) -> str | None:
    return addresses.bare(url) if url else None

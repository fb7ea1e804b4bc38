"""The Python that trials run with: the one that runs airflows, or a virtual environment of their own."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from airflows import addresses
from airflows.errors import SpecError

_COMPLETE = ".complete"
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:$|[\[<>=!~;,@#(])")


def current(environ: Mapping[str, str], inherit: Sequence[str]) -> dict[str, str]:
    """Return what every job inherits; `python` is the one that runs airflows.

    Args:
        environ: the driver's environment.
        inherit: further names to take from it.
    """
    names = ["PATH", "HOME", "LANG", *inherit]
    taken = {name: environ[name] for name in names if name in environ}
    return taken | {"PATH": _with_first(str(Path(sys.executable).parent), environ.get("PATH", os.defpath))}


def _with_first(directory: str, path: str) -> str:
    if directory in path.split(os.pathsep) and sys.prefix == sys.base_prefix:
        return path
    rest = [part for part in path.split(os.pathsep) if part != directory]
    return os.pathsep.join([directory, *rest])


def missing(dependencies: Sequence[str], directory: Path) -> list[str]:
    """Return the packages that are named and not installed here; versions are not compared."""
    names = [name for line in _lines(dependencies, directory) if (name := _package(line))]
    return [name for name in dict.fromkeys(names) if not _is_installed(name)]


def _lines(dependencies: Sequence[str], directory: Path) -> Iterator[str]:
    for item in dependencies:
        words = shlex.split(item, comments=True)
        if len(words) == 2 and words[0] in {"-r", "--requirement"}:  # noqa: PLR2004
            yield from _requirement_file(directory / words[1])
        else:
            yield item


def _requirement_file(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _package(line: str) -> str:
    """Return the name in a requirement; empty for options, addresses, files and comments."""
    found = _REQUIREMENT.match(line)
    return found[1] if found else ""


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def isolated(dependencies: Sequence[str], directory: Path, root: Path) -> dict[str, str]:
    """Return the variables of a virtual environment with the dependencies; built on first use.

    Args:
        dependencies: as pip takes them.
        directory: where relative files in them are.
        root: gets `environments/<digest>/`.

    Raises:
        SpecError: it cannot be built; the last words of pip are in the message.
    """
    text = "\n".join([sys.version, *dependencies, *_lines(dependencies, directory)])
    path = root / "environments" / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not (path / _COMPLETE).exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.with_suffix(".lock")):
            if not (path / _COMPLETE).exists():
                _build(path, dependencies, directory)
    return {
        "VIRTUAL_ENV": str(path),
        "PATH": f"{path / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(path: Path, dependencies: Sequence[str], directory: Path) -> None:
    words = [word for item in dependencies for word in shlex.split(item)]
    pip = [str(path / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
    try:
        _run([sys.executable, "-m", "venv", "--clear", str(path)], directory)
        if words:
            _run([*pip, "--disable-pip-version-check", *words], directory)
    except (OSError, subprocess.CalledProcessError) as exc:
        shutil.rmtree(path, ignore_errors=True)
        said = (getattr(exc, "stderr", "") or str(exc)).strip().splitlines()
        last = addresses.hidden(said[-1] if said else str(exc))
        message = f"the isolated environment cannot be built: {last}"
        raise SpecError(message, field="environment.dependencies") from exc
    (path / _COMPLETE).touch()


def _run(command: Sequence[str], directory: Path) -> None:
    subprocess.run(
        command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )

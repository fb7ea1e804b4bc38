"""Secrets of a run on a machine of one's own: `scope/key` is the variable SCOPE__KEY, or a line of a file.

Values go into the environment of the job and nowhere else: not into files, arguments, messages or the ledger.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from airflows.errors import SpecError

FILE_NAME = "secrets.env"


def variable(reference: str) -> str:
    """Return the variable of a reference: `nlp/hf-token` is `NLP__HF_TOKEN`."""
    scope, _, key = reference.partition("/")
    return "__".join(re.sub(r"[^A-Z0-9_]", "_", part.upper()) for part in (scope, key))


def resolve(
    secrets: Mapping[str, str], home: Path, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the values of secrets by the name of the job's variable.

    Args:
        secrets: name of the job's variable to `scope/key`.
        home: the directory with the secrets file.
        environ: looked through first.

    Raises:
        SpecError: a secret is missing (all of them are named, and both ways to give them), or the file may
            be read by others.
    """
    if not secrets:
        return {}
    wanted = {name: variable(reference) for name, reference in secrets.items()}
    missing = [name for name, source in wanted.items() if source not in environ]
    path = home / FILE_NAME
    kept = read_file(path) if missing else {}
    absent = [name for name in missing if wanted[name] not in kept]
    if absent:
        named = ", ".join(f"{name} (secret {secrets[name]})" for name in absent)
        sources = sorted({wanted[name] for name in absent})
        lines = ", ".join(f"{source}=…" for source in sources)
        message = f"no value was found for {named}."
        hint = f"Set the environment variable {', '.join(sources)}, or write {lines} into {path} (mode 0600)."
        raise SpecError(message, field=f"secrets.{absent[0]}", hint=hint)
    return {name: environ[source] if source in environ else kept[source] for name, source in wanted.items()}


def read_file(path: Path) -> dict[str, str]:
    """Return the lines `NAME=value` of a secrets file; empty when there is no file.

    A value is taken as it stands, without the quotes around it if there are any.

    Raises:
        SpecError: the file may be read by others, is not a file, or has a line of another form.
    """
    try:
        with path.open("rb") as file:
            _check_mode(path, os.fstat(file.fileno()).st_mode)
            text = file.read().decode("utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return {}
    except OSError as exc:
        message = f"the secrets file cannot be read: {exc.strerror}."
        raise SpecError(message, file=str(path)) from exc
    return dict(
        _entry(line.strip(), path, number)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    )


def _check_mode(path: Path, mode: int) -> None:
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        message = f"the secrets file may be read by others: its mode is {stat.S_IMODE(mode):04o}."
        raise SpecError(message, file=str(path), hint=f"Run: chmod 600 {path}")


def _entry(line: str, path: Path, number: int) -> tuple[str, str]:
    name, equals, value = line.removeprefix("export ").partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name.strip()):
        # Never the line itself: it may be a value that was broken over two lines.
        message = "this line is not of the form NAME=value."
        raise SpecError(message, file=str(path), line=number)
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return name.strip(), value

"""`init`: a project to start from."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from airflows.cli.failure import SUCCEEDED, UsageError
from airflows.cli.newfiles import write_new
from airflows.cli.terminal import Session

_IGNORED = ".gitignore"


def init(
    session: Session,
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where; made when it is not there.", show_default=False)
    ] = Path(),
    *,
    template: Annotated[
        str, typer.Option("--template", "-t", metavar="NAME", help="torch, lightning or huggingface.")
    ] = "torch",
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Of the sweep; the directory's by default.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
) -> int:
    """Write a project that runs at once: train.yaml, sweep.yaml, train.py, flows/ and prefect.yaml."""
    from airflows.projects import TEMPLATES, name_for, project_files  # noqa: PLC0415
    from airflows.spec import NAME_PATTERN  # noqa: PLC0415

    if template not in TEMPLATES:
        message = f"there is no template {template!r}."
        raise UsageError(message, hint=f"There are {', '.join(TEMPLATES)}: airflows init --template torch")
    target = directory.expanduser()
    chosen = name_for(target.absolute().name) if name is None else name
    if not re.match(NAME_PATTERN, chosen):
        message = f"{chosen!r} cannot be the name of a sweep."
        raise UsageError(message, hint="Use up to 64 of A-Z, a-z, 0-9, _ and -, such as --name my-sweep.")
    files = project_files(template, chosen)
    if (target / _IGNORED).exists():
        # It is the user's own, and a project has one at most.
        del files[_IGNORED]
    written = write_new(files, target, force=force)
    missing = [package for package in TEMPLATES[template] if find_spec(_module(package)) is None]
    document = {
        "files": [str(path) for path in written],
        "name": chosen,
        "template": template,
        "missing": missing,
    }
    session.answer(document, _lines(written, target, missing))
    return SUCCEEDED


def _module(package: str) -> str:
    return package.removesuffix("-skinny")


def _lines(written: list[Path], target: Path, missing: list[str]) -> list[str]:
    lines = [f"wrote {path}" for path in written]
    lines += ["", "Run it:"]
    lines += [f"  cd {shlex.quote(str(target))}"] if target != Path() else []
    lines += [f"  pip install {' '.join(missing)}"] if missing else []
    return [
        *lines,
        "  airflows sweep sweep.yaml --dry-run",
        "  airflows sweep sweep.yaml",
        "",
        "Every night with Prefect: prefect --no-prompt deploy --all",
    ]

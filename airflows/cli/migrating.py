"""`migrate`: from what people have to a train.yaml and a sweep.yaml."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airflows.cli.failure import SUCCEEDED
from airflows.cli.newfiles import write_new
from airflows.cli.table import one_line
from airflows.cli.terminal import Session, Style
from airflows.errors import SpecError

if TYPE_CHECKING:
    from airflows.migrate import Finding, Migration

_MOST_BYTES = 4 << 20


def migrate(
    session: Session,
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE | -- COMMAND...",
            help="A script for sbatch, a sweep file of W&B, or a multirun command of Hydra.",
        ),
    ],
    *,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Where to write; beside the file by default.")
    ] = None,
    accelerator: Annotated[
        str | None,
        typer.Option("--accelerator", metavar="TYPE", help="Accelerator type; the nearest by default."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
) -> int:
    """Write train.yaml and sweep.yaml from what you have; list what is lost."""
    from airflows.migrate import from_hydra  # noqa: PLC0415

    words = what if len(what) > 1 else _words(what[0])
    if len(words) > 1:
        source, beside = "the command", Path.cwd()
        target = to.expanduser() if to is not None else Path()
        made = from_hydra(
            words,
            root=os.path.relpath(beside, target.absolute()),
            read=lambda path: _beside(beside / path),
            accelerator=accelerator,
        )
    else:
        script = Path(what[0]).expanduser()
        source, beside = script.name, script.absolute().parent
        target = to.expanduser() if to is not None else script.parent
        made = _from_file(script, os.path.relpath(beside, target.absolute()), accelerator)
    check(made, source)
    written = write_new(_texts(made), target, force=force)
    session.answer(_document(made, written), _lines(made, written, source, session.style))
    return SUCCEEDED


def _words(what: str) -> list[str]:
    """Return the words of a command that was given as one; of a file its name."""
    if " " not in what or Path(what).expanduser().exists():
        return [what]
    try:
        return shlex.split(what)
    except ValueError as exc:
        message = f"The command cannot be split into words: {exc}."
        raise SpecError(message, field="command") from exc


def _from_file(script: Path, root: str, accelerator: str | None) -> Migration:
    """Return what a file becomes, whatever kind it is of.

    Args:
        script: the file.
        root: its directory, relative to where files are written.
        accelerator: the accelerator type to use; the nearest by default.
    """
    from airflows.migrate import from_wandb, is_wandb  # noqa: PLC0415
    from airflows.migrate import migrate as from_sbatch  # noqa: PLC0415

    text, beside = _text(script), script.absolute().parent

    def read(path: str) -> str | None:
        return _beside(beside / path)

    if script.suffix in (".yaml", ".yml"):
        if not is_wandb(text):
            message = "This is no sweep file of W&B: it has no `method` with `parameters`."
            raise SpecError(message, file=str(script), hint="Slurm scripts do not end in .yaml.")
        return from_wandb(text, name=script.name, root=root, read=read, accelerator=accelerator)
    return from_sbatch(
        text, name=script.name, directory=str(beside), root=root, read=read, accelerator=accelerator
    )


def _text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        SpecError: it cannot be read, or is no text.
    """
    try:
        content = path.read_bytes()
    except OSError as exc:
        message = f"The file cannot be read: {exc.strerror or exc}."
        raise SpecError(message, file=str(path)) from exc
    if len(content) > _MOST_BYTES:
        message = "The script is larger than 4 MiB, which sbatch refuses too."
        raise SpecError(message, file=str(path))
    try:
        text = content.decode()
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        message = "The script is no UTF-8 text."
        raise SpecError(
            message, file=str(path), line=line, hint="Convert it, for example with iconv."
        ) from exc
    if "\0" in text:
        message = "This is no script: it holds null bytes."
        raise SpecError(message, file=str(path))
    return text


def _beside(path: Path) -> str | None:
    """Return what a file holds that the script names, None when that cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        return path.read_bytes().decode()
    except (OSError, ValueError):
        return None


def check(made: Migration, source: str) -> None:
    """Read the files as they would be written, before they are.

    Raises:
        SpecError: airflows itself would refuse them.
    """
    from airflows.sweepfile import load_sweep  # noqa: PLC0415
    from airflows.train import load_train  # noqa: PLC0415
    from airflows.vetting import validate_points  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="airflows-") as aside:
        write_new(_texts(made), Path(aside), force=True)
        try:
            load_train(Path(aside, "train.yaml"))
            if made.sweep is not None:
                validate_points(load_sweep(Path(aside, "sweep.yaml"), backend="local"))
            _check_backend(made.backend)
        except SpecError as exc:
            message = f"What {source} asks for cannot be written: {exc.message}"
            raise SpecError(message, field=exc.field, hint=exc.hint) from exc


def _check_backend(settings: Mapping[str, object]) -> None:
    from pydantic import ValidationError  # noqa: PLC0415

    from airflows.backends.registry import settings_model  # noqa: PLC0415

    try:
        settings_model("slurm").model_validate(settings)
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        field = ".".join(["backend", *map(str, first["loc"])])
        message = f"{first['msg']}."
        raise SpecError(message, field=field) from exc


def _texts(made: Migration) -> dict[str, str]:
    texts = {"train.yaml": made.train_text}
    return texts if made.sweep is None else {**texts, "sweep.yaml": made.sweep_text}


def _document(made: Migration, written: Sequence[Path]) -> dict[str, object]:
    return {
        "files": [str(path) for path in written],
        "train": made.train,
        "sweep": made.sweep,
        "backend": made.backend,
        "carried": made.carried,
        "warnings": [finding.document() for finding in made.warnings],
        "notes": [finding.document() for finding in made.notes],
    }


def _lines(made: Migration, written: Sequence[Path], source: str, style: Style) -> list[str]:
    from airflows.migrate import one_run  # noqa: PLC0415

    lines = [f"wrote {path}" for path in written]
    lines += _findings(made.warnings, "Not carried over as it is:", "yellow", source, style)
    lines += _findings(made.notes, "To look at:", "cyan", source, style)
    if made.sweep is not None:
        return [*lines, "", f"Try it: airflows sweep {written[1]} --dry-run"]
    lines += ["", style.paint("On Slurm with the same settings, as a sweep.yaml beside it:", "bold")]
    lines += [f"  {line}" for line in one_run(made.train, made.backend)]
    return [*lines, "", f"Try it: airflows run -f {written[0]} --dry-run"]


def _findings(findings: Sequence[Finding], title: str, look: str, source: str, style: Style) -> list[str]:
    if not findings:
        return []
    return [
        "",
        style.paint(title, "bold"),
        *(
            f"  {style.paint(f'{source}:{each.line}', look)} {each.kind}: {one_line(each.message)}"
            for each in findings
        ),
    ]

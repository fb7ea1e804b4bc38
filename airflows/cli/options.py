"""What every command has in common: `-o`, `--no-color`, `--debug`, and options that several share."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from airflows.cli.failure import SUCCEEDED, UserInterruptError
from airflows.cli.terminal import Output, Session, drop_output

OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Format of what stdout holds.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours (as NO_COLOR).")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

Override = Annotated[
    list[str] | None,
    typer.Option("--override", metavar="KEY=VALUE", help="Change a key of the train.yaml. Repeatable."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the sweep file. Repeatable."),
]
BackendName = Annotated[
    str | None, typer.Option("--backend", metavar="NAME", help="Where to run, in place of the file's.")
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", "-p", metavar="NAME", help="Profile of ~/.databrickscfg, for Databricks."),
]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="KEY=VALUE", help="Only those with this override. Repeatable."),
]
NoEffectYet = Annotated[
    list[str] | None,
    typer.Option(
        "--no-effect-yet",
        metavar="KEY",
        help="A swept key that changes nothing in the first steps of a rehearsal. Repeatable.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would run; write and start nothing.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Drive it in the background.")]
SweepId = Annotated[str, typer.Argument(metavar="SWEEP", help="Its id, or its name for the newest.")]
AnyId = Annotated[str, typer.Argument(metavar="ID", help="SWEEP, SWEEP/12, SWEEP/12.0 or a backend's id.")]

Command = Callable[..., int | None]


def add(app: typer.Typer, name: str, command: Command, *, hidden: bool = False) -> None:
    """Add a command whose first parameter is the session; the common options are added to its own."""
    app.command(name, hidden=hidden)(_with_session(command))


def _with_session(command: Command) -> Command:
    hints = get_type_hints(command, include_extras=True)
    own = list(inspect.signature(command).parameters.values())[1:]
    common = {"output": (OutputOption, "text"), "no_color": (NoColor, False), "debug": (Debug, False)}
    parameters = [parameter.replace(annotation=hints[parameter.name]) for parameter in own]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in common.items()
    ]

    @wraps(command)
    def run(*, output: Output, no_color: bool, debug: bool, **given: Any) -> int:
        session = Session(output, no_color, debug)
        try:
            return command(session, **given) or 0
        except BrokenPipeError:
            # Whoever read has seen enough.
            drop_output()
            return SUCCEEDED
        except KeyboardInterrupt:
            raise UserInterruptError from None

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def use_profile(profile: str | None) -> None:
    """Let Databricks be asked with a profile, for as long as this process lives."""
    if profile:
        os.environ["DATABRICKS_CONFIG_PROFILE"] = profile


def home() -> Path:
    """Return `$AIRFLOWS_HOME`."""
    from airflows.home import home_directory  # noqa: PLC0415

    return home_directory()

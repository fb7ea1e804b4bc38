"""The command itself: its words, and how it ends."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated

import typer

import airflows
from airflows.cli import failure, options
from airflows.cli.terminal import be_unbreakable, drop_output

# Name to module and function, in the order of the help. Only what is called is imported.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("start", "run"),
    "sweep": ("start", "sweep"),
    "plan": ("plans", "plan"),
    "rehearse": ("rehearsing", "rehearse"),
    "resume": ("start", "resume"),
    "list": ("looking", "list_all"),
    "get": ("looking", "get"),
    "logs": ("logs", "logs"),
    "cancel": ("cancelling", "cancel"),
    "results": ("outcome", "results"),
    "best": ("outcome", "best"),
    "watch": ("watching", "watch"),
    "stop-check": ("stopcheck", "stop_check"),
    "validate": ("checking", "validate"),
    "init": ("creating", "init"),
    "migrate": ("migrating", "migrate"),
    "backends": ("checking", "backends"),
    "_drive": ("start", "drive_in_background"),
}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"airflows {airflows.__version__}")
        raise typer.Exit


def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Sweeps over a train.yaml, run exactly once, resumed when something fails, with honest winners.

    Exit status: 0 all succeeded, 1 something that ran failed, 2 the request is wrong, 3 a backend, MLflow or
    the ledger cannot be reached, 130 interrupted.
    """


def app_for(args: Sequence[str]) -> typer.Typer:
    """Return the command line: with one command when the arguments name it first, else with all."""
    app = typer.Typer(
        name="airflows",
        # Plain help needs no rich, which takes longer to import than all the rest.
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(about)
    for name in args[:1] if args and args[0] in COMMANDS else COMMANDS:
        module, function = COMMANDS[name]
        command = getattr(import_module(f"airflows.cli.{module}"), function)
        options.add(app, name, command, hidden=name.startswith("_"))
    return app


def main() -> None:
    """Run the command of this process's arguments and end the process."""
    status = run(sys.argv[1:])
    # Memory goes with the process; to look through it for garbage first takes a seventh of a short command.
    gc.freeze()
    sys.exit(status)


def run(args: Sequence[str]) -> int:
    """Run a command; return its exit status."""
    be_unbreakable()
    # Looking for pydantic plugins among all installed packages is a tenth of the time of a short command.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if list(args) == ["--version"]:
        # What typer would import to find that out takes longer than everything else.
        sys.stdout.write(f"airflows {airflows.__version__}\n")
        return failure.SUCCEEDED
    try:
        return int(app_for(args)(list(args), prog_name="airflows", standalone_mode=False) or 0)
    except BrokenPipeError:
        drop_output()
        return failure.SUCCEEDED
    except KeyboardInterrupt:
        return failure.INTERRUPTED
    except Exception as exc:  # noqa: BLE001 - the one place where every error becomes a paragraph
        return failure.report(exc, args)

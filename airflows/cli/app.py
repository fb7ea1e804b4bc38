"""The command itself: its words, and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import airflows
from airflows.cli import cancelling, checking, failure, logs, looking, options, outcome, start, watching
from airflows.cli.terminal import be_unbreakable, drop_output

app = typer.Typer(
    name="airflows",
    # Plain help needs no rich, which takes longer to import than all the rest.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"airflows {airflows.__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Sweeps over a train.yaml, run exactly once, resumed when something fails, with honest winners.

    Exit status: 0 all succeeded, 1 something that ran failed, 2 the request is wrong, 3 a backend, MLflow or
    the ledger cannot be reached, 130 interrupted.
    """


options.add(app, "run", start.run)
options.add(app, "sweep", start.sweep)
options.add(app, "resume", start.resume)
options.add(app, "list", looking.list_all)
options.add(app, "get", looking.get)
options.add(app, "logs", logs.logs)
options.add(app, "cancel", cancelling.cancel)
options.add(app, "results", outcome.results)
options.add(app, "best", outcome.best)
options.add(app, "watch", watching.watch)
options.add(app, "validate", checking.validate)
options.add(app, "backends", checking.backends)
options.add(app, "_drive", start.drive_in_background, hidden=True)


def main() -> None:
    """Run the command of this process's arguments and end the process."""
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Run a command; return its exit status."""
    be_unbreakable()
    if list(args) == ["--version"]:
        # What typer would import to find that out takes longer than everything else.
        sys.stdout.write(f"airflows {airflows.__version__}\n")
        return failure.SUCCEEDED
    try:
        return int(app(list(args), prog_name="airflows", standalone_mode=False) or 0)
    except BrokenPipeError:
        drop_output()
        return failure.SUCCEEDED
    except KeyboardInterrupt:
        return failure.INTERRUPTED
    except Exception as exc:  # noqa: BLE001 - the one place where every error becomes a paragraph
        return failure.report(exc, args)

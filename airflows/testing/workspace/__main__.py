"""`python -m airflows.testing.workspace`: serve a fake workspace until interrupted."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from airflows.errors import AirflowsError
from airflows.testing.workspace.settings import Settings, load_settings
from airflows.testing.workspace.workspace import FakeWorkspace


def main(arguments: list[str] | None = None) -> int:
    """Serve; the first line of the output is the address."""
    options = _parser().parse_args(arguments)
    try:
        settings = _settings(options)
        made = FakeWorkspace(settings, directory=options.directory, port=options.port)
    except (AirflowsError, ValueError, TypeError, OSError) as exc:
        sys.stderr.write(f"{exc}\n")
        return 2
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with made as workspace:
        sys.stdout.write(f"{workspace.host}\n")
        sys.stdout.flush()
        for name, value in workspace.environment.items():
            sys.stderr.write(f"export {name}={value}\n")
        over.wait()
    return 0


def _settings(options: argparse.Namespace) -> Settings:
    named = {"clock_scale": options.scale, "seed": options.seed, "execute": options.execute or None}
    changes = {name: value for name, value in named.items() if value is not None}
    settings = load_settings(options.script, **changes) if options.script else Settings(**changes)
    # A test moves the clock by hand, a person expects it to go.
    return settings if "clock_scale" in settings.model_fields_set else settings.with_clock(1.0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m airflows.testing.workspace",
        description="A fake Databricks workspace with AI Runtime, on the loopback interface.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 for any that is free")
    parser.add_argument("--execute", action="store_true", help="really run command.sh")
    parser.add_argument("--script", type=Path, help="settings in YAML: outcomes, faults, users and more")
    parser.add_argument("--scale", type=float, help="speed of the clock; 0: it stands until advanced")
    parser.add_argument("--seed", type=int, help="of all chances")
    parser.add_argument("--directory", type=Path, help="where its files go; removed in the end if not given")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Commands for scripts that are kept whole: in another language, or not understood. Pure."""

from __future__ import annotations

import re
from typing import Protocol

from airflows.migrate import prelude, tame
from airflows.migrate.command import Command
from airflows.migrate.directives import Header
from airflows.migrate.facts import value
from airflows.migrate.prelude import Surrounding
from airflows.migrate.report import Report
from airflows.migrate.sweeping import Sweeping
from airflows.migrate.templates import quoted
from airflows.migrate.trace import INDEX


class Whole(Protocol):
    """As much of a script as is needed to run it as it is."""

    text: str
    name: str
    directory: str
    header: Header
    report: Report


def foreign_command(whole: Whole, around: Surrounding, sweep: Sweeping | None) -> Command:
    """Return the command that runs a script by its own interpreter, from the snapshot of the code."""
    lines = _lines(whole, around, sweep)
    path = whole.name if value(whole.header, "chdir") is None else f"{whole.directory}/{whole.name}"
    return Command("\n".join([*lines, f"{whole.header.interpreter} {quoted(path)}"]))


def whole_command(whole: Whole, around: Surrounding, sweep: Sweeping | None) -> Command:
    """Return the command that is the script itself, all but its directives."""
    body = whole.text.split("\n")[whole.header.body - 1 :]
    lines = [tame.PLAIN, *_lines(whole, around, sweep)]
    return Command("\n".join([*lines, *body]).strip("\n"))


def _lines(whole: Whole, around: Surrounding, sweep: Sweeping | None) -> list[str]:
    lines = ['cd "$CODE_SOURCE_PATH"']
    if around.resources.nodes > 1 and not re.search(r"\bsrun\b", whole.text):
        lines.append('[ "$NODE_RANK" = 0 ] || exit 0')
    lines += sweep.prelude if sweep else []
    for name in prelude.slurm_names(whole.text):
        line = around.line_for(name)
        if line is not None:
            lines.append(line)
        elif name != INDEX:
            found = whole.text.index(name)
            whole.report.warn(
                "slurm-variable",
                whole.text.count("\n", 0, found) + 1,
                f"{name} is there on Slurm only, and nothing stands for it elsewhere.",
            )
    return lines

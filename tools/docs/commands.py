"""The page about commands, made of the command itself."""

# ruff: noqa: INP001

from __future__ import annotations

from typing import Any

from typer.main import get_command

from airflows.cli.app import app_for

COMMON = {"--output", "--no-color", "--debug", "--help"}
"""Options of every command: told once."""


def page() -> str:
    """Return the page: what all commands have in common, then each one."""
    group: Any = get_command(app_for([]))
    context = group.make_context("airflows", ["list"])
    made = [f"# Commands\n\n{_text(group)}\n"]
    shown = [name for name in group.list_commands(context) if not group.get_command(context, name).hidden]
    first = group.get_command(context, shown[0])
    common = [row for row in _rows(first, context) if _names(row[0]) & COMMON]
    made.append(f"Every command also takes:\n\n{_table(common)}")
    made.append(
        "`airflows --install-completion` sets up your shell, `airflows --version` tells the version.\n"
    )
    made += [_section(name, group.get_command(context, name), context) for name in shown]
    return "\n".join(made)


def _section(name: str, command: Any, parent: Any) -> str:
    context = type(parent)(command, info_name=name, parent=parent)
    usage = " ".join(["airflows", name, *command.collect_usage_pieces(context)])
    own = [row for row in _rows(command, parent) if not _names(row[0]) & COMMON]
    return f"## {name}\n\n{_text(command)}\n\n    {usage}\n\n{_table(own)}"


def _rows(command: Any, parent: Any) -> list[tuple[str, str]]:
    context = type(parent)(command, info_name=command.name, parent=parent)
    records = [param.get_help_record(context) for param in command.get_params(context)]
    return [record for record in records if record is not None]


def _names(option: str) -> set[str]:
    return set(option.replace(",", " ").split())


def _table(rows: list[tuple[str, str]]) -> str:
    lines = [f"| `{option.strip()}` | {' '.join(about.split())} |" for option, about in rows]
    return "\n".join(["| option | |", "|---|---|", *lines, ""]) if lines else ""


def _text(command: Any) -> str:
    return str(command.help).replace("\n    ", "\n")

"""Which variables a part of a script sets or mentions, whatever happens when it runs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflows.migrate.shell.tree import (
    Arith,
    Assign,
    Case,
    CFor,
    Command,
    Cond,
    For,
    Function,
    Group,
    If,
    Item,
    Simple,
    While,
)

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SETTERS = frozenset(
    {
        "read",
        "mapfile",
        "readarray",
        "getopts",
        "unset",
        "let",
        "printf",
        "declare",
        "typeset",
        "local",
    }
)
_DEFAULTED = re.compile(r"\$\{([A-Za-z_]\w*)(?:\[[^]]*\])?:?=", re.ASCII)
_ARITHMETIC = re.compile(r"\$\(\((.*?)\)\)|\$\[([^]]*)\]", re.DOTALL)
_CHANGED = re.compile(
    r"(?:\+\+|--)\s*([A-Za-z_]\w*)|([A-Za-z_]\w*)(?:\[[^]]*\])?\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))",
    re.ASCII,
)


def commands_of(items: tuple[Item, ...]) -> Iterator[Command]:
    """Yield all commands of a list, those inside compound ones too, in the order of the text."""
    for item in items:
        for pipeline in item.pipelines:
            for command in pipeline.commands:
                yield from walk(command)


def walk(command: Command) -> Iterator[Command]:
    """Yield a command and all inside it."""
    yield command
    for items in bodies_of(command):
        yield from commands_of(items)
    if isinstance(command, Function):
        yield from walk(command.body)


def bodies_of(command: Command) -> Iterator[tuple[Item, ...]]:
    """Yield the lists that stand in a compound command."""
    match command:
        case Group() | For() | CFor():
            yield command.body
        case While():
            yield command.test
            yield command.body
        case If():
            for test, body in command.branches:
                yield test
                yield body
            yield command.orelse
        case Case():
            for arm in command.arms:
                yield arm.body


def assigned(text: str, command: Command) -> set[str]:
    """Return the names that a command, or any inside it, may set.

    Args:
        text: the whole script.
        command: any command of it.
    """
    found: set[str] = set()
    for each in walk(command):
        source = text[each.start : each.end]
        found |= set(_DEFAULTED.findall(source))
        match each:
            case Simple():
                found |= {assign.name for assign in each.assigns} | _set_by_words(each)
                found |= _in_arithmetic(source)
            case For():
                found.add(each.name)
            case Arith() | CFor():
                found |= {one or other for one, other in _CHANGED.findall(source)}
            case Cond() if "=~" in source:
                found.add("BASH_REMATCH")
    return found


def _in_arithmetic(source: str) -> set[str]:
    inner = " ; ".join(one or other for one, other in _ARITHMETIC.findall(source))
    return {one or other for one, other in _CHANGED.findall(inner)}


def _set_by_words(command: Simple) -> set[str]:
    words = [word.text for word in command.words]
    if not words or words[0] not in _SETTERS:
        return set()
    if words[0] == "let":
        return {name for word in words[1:] for name in _NAME.findall(word)}
    if words[0] == "printf":
        return {words[at + 1] for at, word in enumerate(words[:-1]) if word == "-v"}
    plain = [word.strip("'\"") for word in words[1:] if not word.startswith("-")]
    extra = {"read": {"REPLY"}, "mapfile": {"MAPFILE"}, "getopts": {"OPTARG", "OPTIND"}}
    return {name for name in plain if _NAME.fullmatch(name)} | extra.get(words[0], set())


def exported(assigns: tuple[Assign, ...], words: tuple[str, ...]) -> set[str]:
    """Return the names that `export …` makes visible to programs."""
    is_export = words[:1] == ("export",) or (words[:1] in (("declare",), ("typeset",)) and "-x" in words)
    if not is_export or "-n" in words:
        return set()
    return {assign.name for assign in assigns} | {word for word in words[1:] if _NAME.fullmatch(word)}


def mentions(text: str, name: str) -> bool:
    """Whether a text mentions a variable, or anything of its name."""
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", text) is not None


def mentioned(text: str) -> set[str]:
    """Return all names in a text: of variables, and of anything else."""
    return set(re.findall(r"(?<![A-Za-z0-9_])[A-Za-z_]\w*", text, re.ASCII))

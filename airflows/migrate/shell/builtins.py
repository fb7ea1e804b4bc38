"""The shell's own commands that set variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from airflows.migrate.shell import conditions
from airflows.migrate.shell.arithmetic import UnknownValueError
from airflows.migrate.shell.commands import Files
from airflows.migrate.shell.expand import Expander
from airflows.migrate.shell.memory import Listed, Memory

OPAQUE = frozenset({"eval", "source", "."})
"""Commands that may do anything to any variable."""

DECLARING = frozenset({"declare", "typeset", "local", "readonly", "export"})
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_BLANKS = " \t\n"
_HARMLESS = re.compile(
    r"(?:.*/)?(?:\.?bashrc|\.?bash_profile|\.profile|profile|activate|conda\.sh|mamba\.sh|modules?\.sh"
    r"|(?:z00_)?lmod\.sh|init/(?:ba)?sh)"
)


class Host(Protocol):
    """As much of the machine as these commands need."""

    memory: Memory
    expander: Expander
    files: Files
    has_effect: bool
    directory: str | None

    @property
    def stdin(self) -> list[str]:
        """The lines that are left to read."""


Action = Callable[[Host, Sequence[str], str | None], bool | None]


def is_harmless(words: Sequence[str]) -> bool:
    """Whether `source FILE` reads what sets up an environment and none of its variables."""
    return words[0] != "eval" and len(words) > 1 and _HARMLESS.fullmatch(words[1]) is not None


def lines_of(text: str) -> list[str]:
    """Return the lines of an input."""
    return text.removesuffix("\n").split("\n") if text else []


def _true(_: Host, __: Sequence[str], ___: str | None) -> bool:
    return True


def _false(_: Host, __: Sequence[str], ___: str | None) -> bool:
    return False


def _test(_: Host, words: Sequence[str], __: str | None) -> bool:
    return conditions.holds(words)


def _bracket(_: Host, words: Sequence[str], __: str | None) -> bool:
    if not words or words[-1] != "]":
        raise UnknownValueError
    return conditions.holds(words[:-1])


def _let(host: Host, words: Sequence[str], _: str | None) -> bool:
    value = 0
    for word in words:
        value = host.expander.number(word)
    return value != 0


def _set(host: Host, words: Sequence[str], _: str | None) -> bool:
    host.has_effect = True
    rest = list(words)
    while rest and re.fullmatch(r"[-+][a-zA-Z]+", rest[0]):
        option = rest.pop(0)
        names = option[1:]
        if "o" in names and rest:
            names += {"nounset": "u", "errexit": "e"}.get(rest.pop(0), "")
        if "u" in names:
            host.memory.ends_on_unset = option[0] == "-"
        if "e" in names:
            host.memory.ends_on_failure = option[0] == "-"
    if rest[:1] == ["--"] or (rest and not words[0].startswith(("-", "+"))):
        host.memory.arguments = rest[1:] if rest[0] == "--" else rest
    elif rest:
        host.memory.arguments = None
    return True


def _shift(host: Host, words: Sequence[str], _: str | None) -> bool:
    count = int(words[0]) if words and words[0].isdigit() else 1
    if host.memory.arguments is not None:
        host.memory.arguments = host.memory.arguments[count:]
    host.has_effect = True
    return True


def _unset(host: Host, words: Sequence[str], _: str | None) -> bool:
    for word in words:
        if word.startswith("-"):
            continue
        if not _NAME.fullmatch(word):
            raise UnknownValueError
        host.memory.remove(word)
    host.has_effect = True
    return True


def _cd(host: Host, words: Sequence[str], _: str | None) -> None:
    host.has_effect = True
    target = words[0] if len(words) == 1 else ""
    if not target or target.startswith("-") or ".." in target.split("/"):
        host.directory = None
    elif target.startswith("/"):
        host.directory = target.rstrip("/") + "/"
    elif host.directory is not None and target != ".":
        host.directory += target.rstrip("/") + "/"


def _wander(host: Host, _: Sequence[str], __: str | None) -> None:
    host.has_effect = True
    host.directory = None


def _printf(host: Host, words: Sequence[str], _: str | None) -> bool | None:
    if words[:1] != ["-v"] or len(words) < 2:  # noqa: PLR2004
        host.has_effect = True
        return True
    from airflows.migrate.shell.commands import COMMANDS  # noqa: PLC0415

    host.memory.assign(words[1], COMMANDS["printf"](words[2:], None, host.files))
    return True


def _read(host: Host, words: Sequence[str], separator: str | None) -> bool:
    raw, array, rest = False, False, list(words)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if not re.fullmatch(r"-[ra]+", option):
            raise UnknownValueError
        raw, array = raw or "r" in option, array or "a" in option
    lines = host.stdin
    targets = rest or ["REPLY"]
    if not lines:
        _give(host, targets, [], array=array)
        return False
    line = lines.pop(0)
    if not raw and "\\" in line:
        raise UnknownValueError
    if separator is None:
        ifs = host.memory.values.get("IFS", _BLANKS)
        separator = ifs if isinstance(ifs, str) else None
    if separator is None or "\n" in separator.strip(_BLANKS):
        raise UnknownValueError
    host.files.separators.append("whitespace" if not separator.strip(_BLANKS) else separator)
    _give(host, targets, _split(line, separator, 0 if array else len(targets)), array=array)
    return True


def _give(host: Host, targets: Sequence[str], fields: Sequence[str], *, array: bool) -> None:
    if array:
        host.memory.values[targets[0]] = Listed({str(at): field for at, field in enumerate(fields)})
        host.memory.unset.discard(targets[0])
        return
    for at, target in enumerate(targets):
        if not _NAME.fullmatch(target):
            raise UnknownValueError
        host.memory.assign(target, fields[at] if at < len(fields) else "")


def _split(line: str, separator: str, most: int) -> list[str]:
    """Return the fields of a line as `read` splits it, the last with all the rest; 0 for no limit."""
    blanks = "".join(char for char in separator if char in _BLANKS)
    others = "".join(char for char in separator if char not in _BLANKS)
    if not separator:
        return [line]
    rest = line.strip(blanks) if blanks else line
    gap = f"[{re.escape(blanks)}]*" if blanks else ""
    hard = f"{gap}[{re.escape(others)}]{gap}" if others else ""
    soft = f"[{re.escape(blanks)}]+" if blanks else ""
    pattern = re.compile("|".join(part for part in (hard, soft) if part))
    fields: list[str] = []
    while rest and (not most or len(fields) < most - 1):
        found = pattern.search(rest)
        if found is None:
            break
        fields.append(rest[: found.start()])
        rest = rest[found.end() :]
        if not rest and others:
            # A separator at the very end closes the last field and opens none.
            return fields
    if most and len(fields) == most - 1 and others and rest[-1:] in tuple(others):
        inner = pattern.search(rest)
        if inner is not None and inner.end() == len(rest):
            rest = rest[: inner.start()]
    return [*fields, rest] if rest else fields


def _mapfile(host: Host, words: Sequence[str], _: str | None) -> bool:
    trims, rest = False, list(words)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option != "-t":
            raise UnknownValueError
        trims = True
    lines = [*host.stdin]
    name = rest[0] if rest else "MAPFILE"
    if not trims:
        raise UnknownValueError
    host.memory.values[name] = Listed({str(at): line for at, line in enumerate(lines)})
    host.memory.unset.discard(name)
    return True


ACTIONS: Mapping[str, Action] = {
    ":": _true, "true": _true, "false": _false, "test": _test, "[": _bracket, "let": _let, "set": _set,
    "shift": _shift, "unset": _unset, "cd": _cd, "printf": _printf, "read": _read, "mapfile": _mapfile,
    "readarray": _mapfile, "pushd": _wander, "popd": _wander,
}  # fmt: skip

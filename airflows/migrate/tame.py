"""Whether a script does the same under `set -euo pipefail`, which a command runs with. Pure."""

from __future__ import annotations

from airflows.migrate import surroundings
from airflows.migrate.shell import names
from airflows.migrate.shell.parse import parse
from airflows.migrate.shell.tree import Item, ParseError, Script, Simple, Word
from airflows.migrate.shell.words import Literal, Variable, parts_of

PLAIN = "set +euo pipefail  # the script goes on after a failure, as it did"
_QUIET = frozenset({"export", "echo", "mkdir", "cd", ":", "umask"})
_PLATFORM = frozenset({"CODE_SOURCE_PATH", "HOME", "PATH", "PWD", "HOSTNAME"})


def options(text: str, flags: str, known: set[str]) -> list[str]:
    """Return the lines that give the script the shell options it was written for.

    A script of one program does as well under `set -euo pipefail` as without.

    Args:
        text: the command.
        flags: options of the interpreter, such as `e`.
        known: variables that are set.
    """
    wanted = "".join(flag for flag in flags if flag in "eux")
    if not wanted and _is_tame(text, known):
        return []
    return [PLAIN, *([f"set -{wanted}"] if wanted else [])]


def _is_tame(text: str, known: set[str]) -> bool:
    """Whether a script behaves the same when it ends at the first failure."""
    try:
        script = parse(text)
    except ParseError:
        return False
    if not script.items or not _all_known(script, known):
        return False
    *before, last = script.items
    if not all(_is_plain(word) for item in script.items for word in surroundings.words_of(item)):
        return False
    if last.background or not isinstance(last.command, Simple):
        return False
    return all(map(_is_quiet, before))


def _is_plain(word: Word) -> bool:
    """Whether a word holds nothing that may be unset or fail: arithmetic, elements, commands."""
    try:
        parts = parts_of(word.text)
    except (ParseError, ValueError):
        return False
    return all(
        isinstance(part, Literal) or (isinstance(part, Variable) and part.subscript is None) for part in parts
    )


def _is_quiet(item: Item) -> bool:
    simple = item.simple
    if simple is None or item.background:
        return False
    has_output = any("$(" in assign.value.text or "`" in assign.value.text for assign in simple.assigns)
    words = [word.text for word in simple.words]
    if words[:1] == ["mkdir"]:
        return "-p" in words
    return not has_output and (not words or words[0] in _QUIET)


def _all_known(script: Script, given: set[str]) -> bool:
    """Whether all variables that a script uses are set when it uses them."""
    known = given | _PLATFORM | surroundings.GIVEN
    for command in names.commands_of(script.items):
        known |= names.assigned(script.text, command)
    return all(
        reference.has_default or reference.name in known or _is_set(reference.name)
        for reference in surroundings.references(script)
    )


def _is_set(name: str) -> bool:
    return name.startswith("SLURM") and name != "SLURM_RESTART_COUNT"

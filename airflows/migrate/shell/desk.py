"""Assignments, expansions, input and output of single commands that are followed, not run. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from airflows.migrate.shell import builtins
from airflows.migrate.shell.arithmetic import UnknownValueError
from airflows.migrate.shell.commands import COMMANDS, Files
from airflows.migrate.shell.expand import Expander
from airflows.migrate.shell.memory import Listed, Memory
from airflows.migrate.shell.parse import parse
from airflows.migrate.shell.tree import Assign, Command, Function, ParseError, Redirect, Simple
from airflows.migrate.shell.words import is_glob

_INPUTS = frozenset({"<", "<<<", "<<", "<<-"})


class Desk:
    """What a script's commands work with: variables, files, input.

    Attributes:
        memory: what the variables hold.
        files: which lines of files were picked.
        has_effect: something other than setting variables would have happened since this was last cleared.
        exports: names that programs would see.
        directory: where relative paths start; None when it is not known.
        functions: those that the script has defined.

    Args:
        values: variables that are known from the start.
        read: returns what a file holds, None when it cannot be read.
    """

    def __init__(self, values: dict[str, str], read: Callable[[str], str | None]) -> None:
        self.memory = Memory(dict(values))
        self.files = Files(self._read_file)
        self.has_effect = False
        self.exports: set[str] = set()
        self.directory: str | None = ""
        self.functions: dict[str, Function] = {}
        self.expander = Expander(self.memory, self._output_of)
        self._read = read
        self._stdin: list[str] | None = None

    def _read_file(self, path: str) -> str | None:
        if path.startswith("/"):
            return self._read(path)
        return None if self.directory is None else self._read(self.directory + path)

    # Assignments

    def field_separator(self, command: Simple) -> str | None:
        """Return the IFS that a command is given, None without."""
        given = [assign for assign in command.assigns if assign.name == "IFS"]
        return self.expander.text(given[-1].value.text) if given else None

    def assign(self, assign: Assign) -> None:
        """Carry out an assignment."""
        if assign.items is not None:
            self._assign_items(assign)
            return
        key = None
        if assign.subscript is not None:
            key = self._key(assign.name, assign.subscript)
        value = self.expander.text(assign.value.text)
        if assign.appends:
            value = (self.memory.element(assign.name, key) or "") + value
        self.memory.assign(assign.name, value, key)

    def _key(self, name: str, subscript: str) -> str:
        if self.memory.is_associative(name):
            return self.expander.text(subscript)
        return str(self.expander.number(subscript))

    def _assign_items(self, assign: Assign) -> None:
        known = self.memory.values.get(assign.name)
        is_associative = self.memory.is_associative(assign.name)
        listed = Listed(is_associative=is_associative)
        if assign.appends:
            if not isinstance(known, Listed):
                raise UnknownValueError
            listed.elements = dict(known.elements)
        for word in assign.items or ():
            found = re.match(r"\[([^]]*)\]=", word.text)
            if found is not None:
                key = self.expander.text(found[1]) if is_associative else str(self.expander.number(found[1]))
                listed.elements[key] = self.expander.text(word.text[found.end() :])
            elif is_associative:
                raise UnknownValueError
            else:
                for field in self.expander.fields(word.text):
                    listed.elements[str(listed.next_index())] = field
        self.memory.values[assign.name] = listed
        self.memory.unset.discard(assign.name)

    def declare(self, command: Simple, words: list[str]) -> bool | None:
        """Carry out `export`, `declare` and their like."""
        options = {letter for word in words[1:] if word.startswith("-") for letter in word[1:]}
        plain = [word for word in words[1:] if not word.startswith(("-", "+"))]
        if options - set("aAxrg") or any(word.startswith("+") for word in words):
            raise UnknownValueError
        if any(is_glob(assign.value.text) for assign in command.assigns if assign.items is None):
            # Unlike in an assignment, braces mean several words here.
            raise UnknownValueError
        if plain and not options & set("aA"):
            # `export NAME` and its like say something about a variable that has its value already.
            self.has_effect = True
        for assign in command.assigns:
            if options & set("aA"):
                self.memory.values[assign.name] = Listed(is_associative="A" in options)
            self.assign(assign)
        for name in plain if options & set("aA") else ():
            self.memory.values[name] = Listed(is_associative="A" in options)
            self.memory.unset.discard(name)
        if words[0] == "export" or "x" in options:
            self.exports |= {assign.name for assign in command.assigns} | set(plain)
        return True

    # Input and output

    def redirected(self, redirects: Sequence[Redirect]) -> None:
        """Open what a command reads; anything else is an effect."""
        for redirect in redirects:
            if redirect.op not in _INPUTS or redirect.target is None:
                self.has_effect = True
            else:
                self._stdin = builtins.lines_of(self._input(redirect))

    def _input(self, redirect: Redirect) -> str:
        if redirect.heredoc is not None:
            text = redirect.heredoc.text
            if redirect.heredoc.indented:
                text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
            return text if redirect.heredoc.quoted else self.expander.heredoc(text)
        word = redirect.target.text if redirect.target else ""
        if redirect.op == "<<<":
            return self.expander.text(word) + "\n"
        return self.files.text(self.expander.text(word))

    @property
    def stdin(self) -> list[str]:
        """The lines that are left to read; refuse when they are not known."""
        if self._stdin is None:
            raise UnknownValueError
        return self._stdin

    def _output_of(self, text: str) -> str:
        """Return what a command substitution prints."""
        try:
            items = parse(text).items
        except ParseError as exc:
            raise UnknownValueError from exc
        if len(items) != 1 or items[0].rest or items[0].background or items[0].first.negated:
            raise UnknownValueError
        given: str | None = None
        for command in items[0].first.commands:
            given = self._printed(command, given)
        return given or ""

    def _printed(self, command: Command, given: str | None) -> str:
        if not isinstance(command, Simple) or command.assigns:
            raise UnknownValueError
        for redirect in command.redirects:
            if redirect.op not in _INPUTS:
                raise UnknownValueError
            given = self._input(redirect)
        words = [field for word in command.words for field in self.expander.fields(word.text)]
        if not words and command.redirects:
            return given or ""
        run = COMMANDS.get(words[0]) if words else None
        if run is None or words[0] in self.functions:
            raise UnknownValueError
        return run(words[1:], given, self.files)

"""A script followed once for every index of its array: what each variable holds then. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from airflows.migrate.shell import names
from airflows.migrate.shell.arithmetic import UnknownValueError
from airflows.migrate.shell.memory import Listed
from airflows.migrate.shell.run import Machine, StoppedError
from airflows.migrate.shell.tree import Function, Item, Script, Simple, Word
from airflows.migrate.shell.words import Inner, Part, Variable, parts_of

_LONGEST_NAME = 40
INDEX = "SLURM_ARRAY_TASK_ID"
Read = Callable[[str], str | None]


@dataclass(slots=True, eq=False)
class Selector:
    """An expansion in a command that picks something by the index, such as `${RATES[$I]}`.

    Attributes:
        start: where it begins in the script.
        end: where it ends.
        text: as written.
        name: what to call its value: after the option it belongs to.
        is_word: it is a word of its own, which is split where it holds spaces.
        is_words: it is any number of words, whatever they hold.
        values: what it is, by position of the index; None where that is not known.
    """

    start: int
    end: int
    text: str
    name: str
    is_word: bool = False
    is_words: bool = False
    values: list[str | None] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Entry:
    """One entry of the script's top level, and what was seen of it.

    Attributes:
        item: the entry.
        text: as written, here-documents included.
        line: where it stands.
        assigned: names that it may set.
        mentioned: all names in it, but for those that plain assignments set.
        is_tainted: what it does depends on the index.
        has_effect: it does more than set variables, for some index.
        selectors: expansions in it that depend on the index.
        before: values of the tainted names before it, by position of the index.
        exported: names that it makes visible to programs, by position of the index.
    """

    item: Item
    text: str
    line: int
    assigned: set[str]
    mentioned: set[str]
    is_tainted: bool = False
    has_effect: bool = False
    selectors: list[Selector] = field(default_factory=list)
    before: list[dict[str, str | None]] = field(default_factory=list)
    exported: list[set[str]] = field(default_factory=list)

    @property
    def function(self) -> str | None:
        """The name of the function that it defines."""
        command = self.item.command
        return command.name if isinstance(command, Function) else None


@dataclass(slots=True)
class Trace:
    """What was seen of a script.

    Attributes:
        entries: its top level.
        final: values at the end, by name; one for each index, None where it is not known or no plain text.
        picked: (path, line) of a file, by position of the index.
        separators: what split the lines that were picked.
        is_complete: every index runs to the end of the script.
    """

    entries: list[Entry]
    final: dict[str, list[str | None]] = field(default_factory=dict)
    picked: list[list[tuple[str, int]]] = field(default_factory=list)
    separators: list[str] = field(default_factory=list)
    is_complete: bool = True


def trace(
    script: Script, indices: Sequence[int], read: Read, constants: dict[str, str], flags: str = ""
) -> Trace:
    """Follow a script for each index.

    Args:
        script: its tree.
        indices: of the array.
        read: returns what a file holds, None when it cannot be read.
        constants: further variables that are known.
        flags: options of the interpreter, such as `e`.
    """
    entries = [_entry(script, item) for item in script.items]
    tainted = _taint(entries)
    for entry in entries:
        entry.selectors = list(_selectors(entry, tainted)) if entry.is_tainted else []
    traced = Trace(entries)
    seen: dict[str, str | None] = {}
    for index in indices:
        known = _memo(read, seen)
        machine = Machine(script.text, {**constants, INDEX: str(index)}, known)
        machine.memory.ends_on_unset, machine.memory.ends_on_failure = "u" in flags, "e" in flags
        _follow(traced, machine, tainted)
        if not traced.is_complete:
            break
    return traced


def _memo(read: Read, seen: dict[str, str | None]) -> Read:
    def remembered(path: str) -> str | None:
        if path not in seen:
            seen[path] = read(path)
        return seen[path]

    return remembered


def _entry(script: Script, item: Item) -> Entry:
    text = script.text[item.start : end_of(script, item)]
    assigned: set[str] = set()
    for pipeline in item.pipelines:
        for command in pipeline.commands:
            assigned |= names.assigned(script.text, command)
    return Entry(item, text, script.line(item.start), assigned, _mentioned(script, item, text))


def end_of(script: Script, item: Item) -> int:
    """Return where an entry ends, the here-documents below it included."""
    end = item.end
    for heredoc in script.heredocs:
        if item.start <= heredoc.start and any(
            redirect.heredoc is heredoc for command in _simples(item) for redirect in command.redirects
        ):
            close = script.text.find("\n", heredoc.end)
            end = max(end, len(script.text) if close < 0 else close)
    return end


def _simples(item: Item) -> Iterator[Simple]:
    for pipeline in item.pipelines:
        for command in pipeline.commands:
            yield from (each for each in names.walk(command) if isinstance(each, Simple))


def _mentioned(script: Script, item: Item, text: str) -> set[str]:
    """Return the names in an entry; of plain assignments only those on the right."""
    simple = item.simple
    if simple is None or item.background:
        return names.mentioned(text)
    found: set[str] = set()
    for assign in simple.assigns:
        if assign.appends or assign.subscript is not None:
            found.add(assign.name)
        found |= names.mentioned(assign.value.text) | names.mentioned(assign.subscript or "")
    rest = text
    for assign in simple.assigns:
        rest = rest.replace(script.text[assign.start : assign.end], " ", 1)
    return found | names.mentioned(rest)


def _taint(entries: Sequence[Entry]) -> set[str]:
    """Mark the entries that depend on the index; return the names that do."""
    tainted, size = {INDEX}, 0
    while len(tainted) != size:
        size = len(tainted)
        for entry in entries:
            if entry.mentioned & tainted:
                entry.is_tainted = True
                tainted |= entry.assigned | ({entry.function} if entry.function else set())
    return tainted


# Selectors


def _selectors(entry: Entry, tainted: set[str]) -> Iterator[Selector]:
    for pipeline in entry.item.pipelines:
        for command in pipeline.commands:
            if not isinstance(command, Simple):
                continue
            words = [*command.words, *(redirect.target for redirect in command.redirects if redirect.target)]
            words += [assign.value for assign in command.assigns if assign.items is None]
            for word in words:
                yield from _in_word(command, word, entry, tainted)


def _in_word(command: Simple, word: Word, entry: Entry, tainted: set[str]) -> Iterator[Selector]:
    for part in parts_of(word.text):
        text = word.text[part.start : part.end]
        mentioned = names.mentioned(text)
        if _selects(part) and mentioned & tainted and not mentioned & entry.assigned:
            start, end = word.start + part.start, word.start + part.end
            is_word = text == word.text and any(word is each for each in command.words)
            yield Selector(start, end, text, _name_for(command, word, part, text), is_word, _is_words(part))


def _selects(part: Part) -> bool:
    if isinstance(part, Variable):
        return not part.is_plain
    return isinstance(part, Inner) and part.kind != "unknown"


def _is_words(part: Part) -> bool:
    """Whether it is `"${LIST[@]}"`: as many words as there are elements, which no value of a key can be."""
    return isinstance(part, Variable) and part.quoted and part.subscript == "@" and part.prefix != "#"


def _name_for(command: Simple, word: Word, part: Part, text: str) -> str:
    """Return a name for the value: after `--option value`, `--option=value` or `option=value`."""
    ahead = word.text[: part.start].strip("'\"")
    if ahead.endswith("="):
        return option_name(ahead[:-1]) or "VALUE"
    at = next((at for at, each in enumerate(command.words) if each is word), 0)
    before = command.words[at - 1].text if at and not ahead else ""
    if before.startswith("-") and option_name(before):
        return option_name(before)
    return part.name if isinstance(part, Variable) else option_name(text) or "VALUE"


def option_name(text: str) -> str:
    """Return an option as the name of a variable: `--learning-rate` is `LEARNING_RATE`; empty for none."""
    if re.fullmatch(r"[-+]{0,2}[A-Za-z][\w.-]*", text, re.ASCII) is None:
        return ""
    name = re.sub(r"\W", "_", text.lstrip("-+").rpartition(".")[2], flags=re.ASCII).upper()
    return name if name[:1].isalpha() and 1 < len(name) <= _LONGEST_NAME and "SLURM" not in name else ""


# Following


def _follow(traced: Trace, machine: Machine, tainted: set[str]) -> None:
    for at, entry in enumerate(traced.entries):
        entry.before.append({name: _text(machine, name) for name in tainted & set(machine.memory.values)})
        for selector in entry.selectors:
            selector.values.append(None if selector.is_words else _value(machine, selector.text))
        machine.has_effect, machine.exports = False, set()
        try:
            machine.item(entry.item)
        except StoppedError:
            machine.has_effect = True
            traced.is_complete = traced.is_complete and at == len(traced.entries) - 1
        except UnknownValueError:
            machine.has_effect = True
        entry.has_effect = entry.has_effect or machine.has_effect
        entry.exported.append(machine.exports)
        if not traced.is_complete:
            return
    position = len(traced.picked)
    for name in machine.memory.values:
        values = traced.final.setdefault(name, [None] * position)
        values.append(_text(machine, name))
    for values in traced.final.values():
        values.extend([None] * (position + 1 - len(values)))
    traced.picked.append(machine.files.picked)
    traced.separators += [each for each in machine.files.separators if each not in traced.separators]


def _text(machine: Machine, name: str) -> str | None:
    value = machine.memory.values.get(name)
    return None if isinstance(value, Listed) else value


def _value(machine: Machine, text: str) -> str | None:
    # Finding out must not change anything, not even by `${NAME:=word}` or `$((i++))`.
    kept, unset = dict(machine.memory.values), set(machine.memory.unset)
    try:
        return machine.expander.text(text)
    except (UnknownValueError, StoppedError):
        return None
    finally:
        machine.memory.values.clear()
        machine.memory.values.update(kept)
        machine.memory.unset = unset

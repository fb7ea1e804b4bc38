"""Which variables of an array's script become keys of the sweep, and what then goes from the script. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from airflows.migrate import templates
from airflows.migrate.choice import Choice, is_free, only_logs
from airflows.migrate.shell import builtins, names
from airflows.migrate.shell.tree import Simple
from airflows.migrate.shell.words import Literal, Variable, parts_of
from airflows.migrate.trace import INDEX, Entry, Selector, Trace, option_name

_EXPORTS_ALL = re.compile(r"\s-[a-zA-Z]*a|allexport")
_HOOK = re.compile(r"\"?\$\((?:\S*/)?(?:conda|mamba|micromamba|pyenv|rbenv|direnv|pixi|spack)\b[^)]*\)\"?")


@dataclass(slots=True)
class ReadOff:
    """What was read off.

    Attributes:
        keys: variable to its value for each index, in the order of the script.
        removed: entries that go.
        placed: text that stands in the place of an entry that goes.
        selectors: expansions that are replaced, with what stands for them.
        hidden: keys that programs did not see before.
        unread: entries that pick something by the index and stay.
    """

    keys: dict[str, list[str]] = field(default_factory=dict)
    removed: list[Entry] = field(default_factory=list)
    placed: dict[Entry, list[str]] = field(default_factory=dict)
    selectors: list[tuple[Selector, str]] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)
    unread: list[Entry] = field(default_factory=list)


def read_off(traced: Trace) -> ReadOff:
    """Return what becomes of the variables that depend on the index."""
    if not traced.is_complete or any(map(_is_opaque, traced.entries)):
        return ReadOff(unread=list(_picking(traced.entries)))
    return _Outcome(traced).made()


def _is_opaque(entry: Entry) -> bool:
    """Whether an entry may use or set any variable without naming it."""
    if re.search(r"\$\{![A-Za-z_]\w*(?:\[[^]@*]|\}|[^[])", entry.text):
        return True
    for pipeline in entry.item.pipelines:
        for command in pipeline.commands:
            for each in names.walk(command):
                words = [word.text for word in each.words] if isinstance(each, Simple) else []
                if words[:1] == ["set"] and _EXPORTS_ALL.search(" ".join(words)):
                    return True
                if words and words[0] in builtins.OPAQUE and not builtins.is_harmless(words):
                    return not _is_shell_hook(words)
    return False


def _is_shell_hook(words: Sequence[str]) -> bool:
    """Whether it is `eval "$(conda shell.bash hook)"` or its like."""
    return words[0] == "eval" and _HOOK.fullmatch(" ".join(words[1:])) is not None


def _picking(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the entries that choose values by the index, rather than just mention it."""
    for entry in entries:
        simple = entry.item.simple
        is_plain = simple is not None and not entry.selectors and not _picks(simple)
        if entry.is_tainted and not is_plain and (entry.assigned or entry.selectors):
            yield entry


def _picks(simple: Simple) -> bool:
    return any(
        not isinstance(part, Literal) and not (isinstance(part, Variable) and part.is_plain)
        for assign in simple.assigns
        for part in parts_of(assign.value.text)
    )


class _Outcome:
    """Puts together what a choice of entries means."""

    def __init__(self, traced: Trace) -> None:
        self._final = traced.final
        self._choice = Choice(traced)
        self._entries = self._choice.entries

    def made(self) -> ReadOff:
        """Return what was read off."""
        live = self._choice.live()
        made = ReadOff(removed=[entry for entry in self._entries if entry in self._choice.gone])
        needed = [name for entry in made.removed for name in _in_order(entry) if name in live]
        for name in dict.fromkeys(needed):
            self._give(made, name)
        self._give_selected(made)
        self._derive(made)
        made.hidden |= {name for name in made.keys if not self._choice.is_exported(name)}
        made.removed += self._dead(made, live)
        made.unread = [
            entry
            for entry in _picking(self._entries)
            if entry not in self._choice.gone and not self._is_replaced(entry)
        ]
        return made

    def _is_replaced(self, entry: Entry) -> bool:
        known = self._choice.replaceable(entry)
        return bool(known) and len(known) == len(entry.selectors)

    def _give(self, made: ReadOff, name: str) -> None:
        """Make a variable a key, or write down its value where it is always the same."""
        values = [value or "" for value in self._final[name]]
        place = self._place(made, name)
        if len(set(values)) == 1 and len(values) > 1:
            place.append(self._assignment(name, templates.quoted(values[0])))
            return
        split = None if self._choice.is_exported(name) else templates.options_in(values)
        taken = {each for entry in self._entries for each in entry.mentioned | entry.assigned} | set(
            made.keys
        )
        if split is not None and not taken & split.keys.keys() and all(map(is_free, split.keys)):
            made.keys.update(split.keys)
            place.append(f"{name}={split.text}")
        else:
            made.keys[name] = values
            self._export_late(made, name, place)

    def _place(self, made: ReadOff, name: str) -> list[str]:
        """Return the lines that stand where a variable is first set: all later uses found its last value."""
        first = next(entry for entry in self._entries if name in entry.assigned)
        return made.placed.setdefault(first, [])

    def _export_late(self, made: ReadOff, name: str, place: list[str]) -> None:
        """Keep an exported key from programs that ran before it was set."""
        if not self._choice.is_exported(name):
            return
        first, _ = self._choice.span([entry for entry in self._entries if name in entry.assigned])
        if any(map(self._choice.may_run, self._entries[:first])):
            made.hidden.add(name)
            place.append(f"export {name}")

    def _assignment(self, name: str, text: str) -> str:
        export = "export " if self._choice.is_exported(name) else ""
        return f"{export}{name}={text}"

    def _give_selected(self, made: ReadOff) -> None:
        """Replace the expansions that pick something, by keys or by what they always are."""
        taken = self._taken(made)
        for entry in self._entries:
            for selector in [] if entry in self._choice.gone else self._choice.replaceable(entry):
                values = [value or "" for value in selector.values]
                made.selectors.append((selector, self._stands_for(selector, values, made, taken)))

    def _stands_for(self, selector: Selector, values: list[str], made: ReadOff, taken: set[str]) -> str:
        if len(set(values)) == 1 < len(values):
            return values[0]
        split = templates.options_in(values) if selector.is_word else None
        if (
            split is not None
            and not (taken | made.keys.keys()) & split.keys.keys()
            and all(map(is_free, split.keys))
        ):
            made.keys.update(split.keys)
            return split.text.strip('"')
        same = [name for name, known in made.keys.items() if known == values]
        name = same[0] if same else _fresh(_base(selector.name, taken), taken | made.keys.keys())
        made.keys[name] = values
        return f"${{{name}}}"

    def _taken(self, made: ReadOff) -> set[str]:
        """Return the names that a key must not have, because something that stays has them."""
        live = self._choice.live()
        selected = [each for entry in self._entries for each in self._choice.replaceable(entry)]
        served = {name for entry in made.removed for name in entry.mentioned}
        served |= {name for selector in selected for name in names.mentioned(selector.text)}
        gone = self._choice.gone.union(self._served_only(served, live))
        stays = [entry for entry in self._entries if entry not in gone]
        taken = {name for entry in stays for name in self._choice.uses(entry) | entry.assigned}
        return taken | {name for entry in made.removed for name in entry.assigned & live}

    def _derive(self, made: ReadOff) -> None:
        """Make what only goes to the log of the other keys, or of the trial's number."""
        for name in [name for name in made.keys if self._is_logged_only(name)]:
            values = made.keys[name]
            others = {other: known for other, known in made.keys.items() if other != name}
            text = templates.made_of(values, others)
            if text is None and others and len(set(zip(*others.values(), strict=True))) == len(values):
                text = templates.by_number(values)
            if text is not None:
                self._place(made, name).append(self._assignment(name, text))
                made.keys = others

    def _is_logged_only(self, name: str) -> bool:
        users = [
            entry
            for entry in self._entries
            if entry not in self._choice.gone and name in self._choice.uses(entry)
        ]
        return bool(users) and all(map(only_logs, users)) and not self._choice.is_exported(name)

    def _dead(self, made: ReadOff, live: set[str]) -> list[Entry]:
        """Return entries that only served what went: lists of values, names of files."""
        served = {name for entry in made.removed for name in entry.mentioned}
        served |= {name for selector, _ in made.selectors for name in names.mentioned(selector.text)}
        return self._served_only(served, live)

    def _served_only(self, served: set[str], live: set[str]) -> list[Entry]:
        return [
            entry
            for entry in self._entries
            if entry not in self._choice.gone
            and entry.assigned
            and entry.assigned <= served - live
            and not entry.has_effect
            and entry.function is None
        ]


def _in_order(entry: Entry) -> list[str]:
    """Return the names that an entry sets, in the order of the text."""
    places = {name: re.search(rf"\b{name}\b", entry.text) for name in entry.assigned}
    return sorted(
        places, key=lambda name: (found.start() if (found := places[name]) else len(entry.text), name)
    )


def _base(name: str, taken: set[str]) -> str:
    return name if is_free(name) and name not in taken else f"{name}_VALUE"


def is_index(values: Sequence[str], indices: Sequence[int]) -> bool:
    """Whether values are the indices themselves."""
    return list(values) == [str(index) for index in indices]


def index_name(entries: Sequence[Entry], keys: Mapping[str, Sequence[str]]) -> str:
    """Return a name for the key that is the index: that of the option it is given to, else ARRAY_INDEX."""
    taken = {name for entry in entries for name in entry.mentioned | entry.assigned} | set(keys)
    found: set[str] = set()
    for entry in entries:
        for word, before in () if only_logs(entry) else _words_with_index(entry):
            head, _, rest = word.partition("=")
            option = head if rest else before
            found.add(option_name(option) if (rest or option.startswith("-")) else "")
    name = found.pop() if len(found) == 1 else ""
    return name if name and name not in taken and is_free(name) else _fresh("ARRAY_INDEX", taken)


def _words_with_index(entry: Entry) -> Iterator[tuple[str, str]]:
    """Yield (word, the word before) of each word that holds the index."""
    for pipeline in entry.item.pipelines:
        for command in pipeline.commands:
            if not isinstance(command, Simple):
                yield from [("", "")] if names.mentions(entry.text, INDEX) else []
                continue
            words = [word.text for word in command.words]
            for at, word in enumerate(words):
                if names.mentions(word, INDEX):
                    yield word, words[at - 1] if at else ""


def _fresh(base: str, taken: set[str]) -> str:
    name, number = base, 2
    while name in taken:
        name, number = f"{base}{number}", number + 1
    return name

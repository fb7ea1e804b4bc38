"""Which statements of an array's script go, because their work is done by the keys of the sweep. Pure.

A statement goes when it does nothing but set variables by the index. What it set and the rest of the script
uses is then given by the sweep. In doubt a statement stays and finds its values itself by the index.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from airflows.migrate import templates
from airflows.migrate.shell import names
from airflows.migrate.shell.words import Literal, Variable, parts_of
from airflows.migrate.trace import Entry, Selector, Trace

RESERVED = frozenset(
    """
    BASH_ENV CODE_SOURCE_PATH CUDA_VISIBLE_DEVICES ENV HOME HYPERPARAMETERS_PATH IFS LANG LD_LIBRARY_PATH
    LD_PRELOAD LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT NODE_RANK NUM_NODES OPTARG OPTIND PATH PWD
    PYTHONHOME PYTHONPATH RANK SHELL SHELLOPTS BASHOPTS TMPDIR USER WORLD_SIZE POSIXLY_CORRECT
    _ BASH BASHPID COLUMNS DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD HOSTNAME HOSTTYPE
    LINENO LINES LOGNAME MACHTYPE OLDPWD OPTERR OSTYPE PIPESTATUS PPID PS4 RANDOM REPLY SECONDS SHLVL SRANDOM
    TERM UID
    """.split()  # noqa: SIM905
)
_OURS = ("AIRFLOWS_", "MLFLOW_", "SLURM_", "BASH_", "LC_")
_LOGGING = ("echo", "printf")
_MOST_CHARACTERS = 4000


def is_free(name: str) -> bool:
    """Whether a variable may be set from outside without changing what programs do."""
    return name not in RESERVED and not name.startswith(_OURS)


def only_logs(entry: Entry) -> bool:
    """Whether an entry does nothing but print to the log."""
    simple = entry.item.simple
    if simple is None or simple.redirects or entry.item.background or not simple.words or entry.assigned:
        return False
    return simple.words[0].text in _LOGGING


class Choice:
    """Decides which entries go: starts with all that could, and takes back what would not be right.

    Attributes:
        entries: the script's top level.
        gone: those that go.
    """

    def __init__(self, traced: Trace) -> None:
        self._final = traced.final
        self.entries = traced.entries
        self.gone = {entry for entry in self.entries if self._could_go(entry)}
        self._stays: set[Entry] = set()
        self._used: dict[Entry, set[str]] = {}
        while back := self._wrong():
            self.gone.difference_update(back)
            self._stays.update(back)

    def _could_go(self, entry: Entry) -> bool:
        is_pure = not entry.has_effect and not entry.item.background and entry.function is None
        return entry.is_tainted and is_pure and bool(entry.assigned)

    # What is needed

    def uses(self, entry: Entry) -> set[str]:
        """Return the names that an entry uses where it stays, functions it calls included."""
        if entry not in self._used:
            mentioned = entry.mentioned - self._only_selected(entry)
            for other in self.entries:
                if other.function in mentioned and other is not entry:
                    mentioned |= other.mentioned
            self._used[entry] = mentioned
        return self._used[entry]

    def _only_selected(self, entry: Entry) -> set[str]:
        """Return names that an entry mentions only in expansions that are replaced."""
        known = self.replaceable(entry)
        if not known:
            return set()
        inside = {name for selector in known for name in names.mentioned(selector.text)}
        rest = entry.text
        for selector in known:
            rest = rest.replace(selector.text, " ", 1)
        return inside - names.mentioned(rest)

    def replaceable(self, entry: Entry) -> list[Selector]:
        """Return the expansions of an entry that a key can stand for."""
        if self._could_go(entry):
            return []
        return [each for each in entry.selectors if is_known(each.values) and _may_be_replaced(each.values)]

    def live(self) -> set[str]:
        """Return the names that what stays uses, programs that see an exported variable included."""
        live = {name for entry in self.entries for name in exports_of(entry)}
        for entry in self.entries:
            if entry not in self.gone:
                live |= self.uses(entry)
        return live

    # Taking back

    def _wrong(self) -> list[Entry]:
        """Return entries that must stay after all."""
        live = self.live()
        back = [entry for entry in self.entries if entry in self.gone and self._composes(entry, live)]
        if back:
            return back
        for name in sorted(self._set_by_gone() & live):
            setters = [entry for entry in self.entries if name in entry.assigned]
            if not self._may_be_key(name, setters):
                return setters
            # Whatever else sets it, such as a default before, goes with it.
            missing = [entry for entry in setters if entry not in self.gone]
            self.gone.update(missing)
            if missing:
                return self._wrong()
        return []

    def _set_by_gone(self) -> set[str]:
        return {name for entry in self.entries if entry in self.gone for name in entry.assigned}

    def _composes(self, entry: Entry, live: set[str]) -> bool:
        """Whether an entry only puts other variables into a text: it stays when the text is needed."""
        simple, needed = entry.item.simple, entry.assigned & live
        if simple is None or not needed or simple.words[1:] or not simple.assigns:
            return False
        if any(other.assigned & needed for other in self.entries if other is not entry):
            return False
        return all(_is_composed(assign.value.text) and assign.items is None for assign in simple.assigns)

    def _may_be_key(self, name: str, setters: Sequence[Entry]) -> bool:
        values = self._final.get(name, [])
        if not is_free(name) or not is_known(values):
            return False
        if any(
            entry.has_effect or entry.item.background or entry.function or entry in self._stays
            for entry in setters
        ):
            return False
        if any(_computes(entry, name, values) for entry in self.entries):
            return False
        first, last = self.span(setters)
        if not self._exports_plainly(name, setters):
            return False
        if self.is_exported(name) and any(map(self.may_run, self.entries[first:last])):
            return False
        return all(
            self._agrees(entry, name, values)
            for entry in self.entries[: last + 1]
            if entry not in self.gone and entry not in setters and entry.function is None
        )

    def _exports_plainly(self, name: str, setters: Sequence[Entry]) -> bool:
        """Whether a name is exported for all indices or none, and where it is set or else by what stays."""
        exporters = [entry for entry in self.entries if name in exports_of(entry)]
        if any(name not in seen for entry in exporters for seen in entry.exported):
            return False
        by_setters = [entry in setters for entry in exporters]
        return all(by_setters) or not any(by_setters)

    def is_exported(self, name: str) -> bool:
        """Whether what goes exports a name."""
        return any(name in exports_of(entry) for entry in self.entries if entry in self.gone)

    def span(self, setters: Sequence[Entry]) -> tuple[int, int]:
        """Return the places of the first and the last of some entries."""
        places = [at for at, entry in enumerate(self.entries) if entry in setters]
        return min(places), max(places)

    def may_run(self, entry: Entry) -> bool:
        """Whether an entry that stays may start a program, which sees what is exported."""
        return entry.has_effect and not only_logs(entry) and entry not in self.gone

    def _agrees(self, entry: Entry, name: str, values: Sequence[str | None]) -> bool:
        """Whether an entry before the last one that sets a variable finds its final value."""
        if name not in self.uses(entry):
            return True
        before = [seen.get(name) for seen in entry.before]
        return before == list(values)


def exports_of(entry: Entry) -> set[str]:
    """Return the names that an entry exports for some index."""
    return set().union(*entry.exported)


def _is_composed(text: str) -> bool:
    """Whether a value is text with variables in it, and not the value of the index alone."""
    parts = [part for part in parts_of(text) if not isinstance(part, Literal) or part.text]
    variables = [part for part in parts if isinstance(part, Variable) and part.is_plain]
    literals = [part for part in parts if isinstance(part, Literal)]
    return len(variables) + len(literals) == len(parts) > 1 and bool(variables)


def _computes(entry: Entry, name: str, values: Sequence[str | None]) -> bool:
    """Whether an entry computes with values that are expressions, which may name other variables."""
    if all(re.fullmatch(r"-?\d+", value or "", re.ASCII) for value in values) or name not in entry.mentioned:
        return False
    return re.search(rf"\(\([^;\n]*\b{name}\b|\[[^]\n]*\b{name}\b[^]\n]*\]", entry.text) is not None


def _may_be_replaced(values: Sequence[str | None]) -> bool:
    """Whether values differ, or are always the same plain word."""
    return len(values) == 1 or len(set(values)) > 1 or templates.quoted(values[0] or "") == values[0]


def is_known(values: Sequence[str | None]) -> bool:
    """Whether all values are known and plain enough to be values of a variable."""
    return bool(values) and all(
        value is not None and value.isprintable() and len(value) <= _MOST_CHARACTERS for value in values
    )

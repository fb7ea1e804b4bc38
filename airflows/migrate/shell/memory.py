"""What the variables of a shell script hold, as far as it is known. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from airflows.migrate.shell.arithmetic import UnknownValueError


@dataclass(slots=True)
class Listed:
    """An array: index to element; of an associative one, key to element."""

    elements: dict[str, str] = field(default_factory=dict)
    is_associative: bool = False

    def ordered(self) -> list[str]:
        """Return the elements by index; refuse those of an associative array, whose order nobody promises."""
        return [self.elements[key] for key in self.keys()]

    def keys(self) -> list[str]:
        """Return the indices in order."""
        if self.is_associative and len(self.elements) > 1:
            raise UnknownValueError
        return list(self.elements) if self.is_associative else sorted(self.elements, key=int)

    def next_index(self) -> int:
        """Return the index of an element that is appended."""
        return max((int(key) for key in self.elements), default=-1) + 1


_OWN = frozenset(
    """
    _ BASHPID BASH_COMMAND BASH_SUBSHELL EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME HOSTNAME LINENO OLDPWD
    PIPESTATUS PPID PWD RANDOM SECONDS SHLVL SRANDOM UID
    """.split()  # noqa: SIM905
)
"""Variables that the shell sets itself, whatever a script assigns to them."""

Value = str | Listed | None
"""None is a value that is not known."""


@dataclass(slots=True)
class Memory:
    """Variables by name. A name that the script never set may come from outside, so its value is not known.

    Attributes:
        values: by name.
        unset: names that the script has unset.
        arguments: `$1`, `$2`…; None where they are not known.
        ends_on_unset: `set -u`: the use of what is not set ends the script.
        ends_on_failure: `set -e`.
    """

    values: dict[str, Value] = field(default_factory=dict)
    unset: set[str] = field(default_factory=set)
    arguments: list[str] | None = None
    ends_on_unset: bool = False
    ends_on_failure: bool = False

    def find(self, name: str) -> Value:
        """Return the value of a variable, None also when it is unset for sure.

        Raises:
            UnknownValueError: it is not known.
        """
        if name in _OWN:
            raise UnknownValueError
        if name.isdigit():
            return self._argument(int(name))
        if name in self.unset:
            return None
        value = self.values.get(name)
        if value is None:
            raise UnknownValueError
        return value

    def _argument(self, number: int) -> str | None:
        if self.arguments is None or number == 0:
            raise UnknownValueError
        return self.arguments[number - 1] if number <= len(self.arguments) else None

    def element(self, name: str, key: str | None) -> str | None:
        """Return the text of a variable or of one of its elements; None when there is none.

        Raises:
            UnknownValueError: it is not known.
        """
        value = self.find(name)
        if not isinstance(value, Listed):
            return value if key in (None, "0") else None
        wanted = key or "0"
        if not value.is_associative and wanted.startswith("-"):
            wanted = str(value.next_index() + int(wanted))
        return value.elements.get(wanted)

    def is_associative(self, name: str) -> bool:
        """Whether the subscripts of a variable are texts rather than numbers."""
        value = self.values.get(name)
        return isinstance(value, Listed) and value.is_associative

    def assign(self, name: str, value: Value, key: str | None = None) -> None:
        """Set a variable, or one element; a value of None makes it unknown."""
        known = self.values.get(name)
        if key is not None and not isinstance(known, Listed):
            known = self._as_list(name, key)
        elif key is not None and isinstance(known, Listed):
            known = Listed(dict(known.elements), known.is_associative)
        if key is None:
            self.values[name] = self._kept_list(name, value)
        elif isinstance(known, Listed) and isinstance(value, str):
            known.elements[key] = value
            self.values[name] = known
        elif name in self.unset and isinstance(value, str):
            self.values[name] = Listed({key: value})
        else:
            self.values[name] = None
        self.unset.discard(name)

    def _as_list(self, name: str, key: str) -> Listed | None:
        """Return the array that a variable becomes by `NAME[key]=value`, None for one that is not known."""
        known = self.values.get(name)
        if isinstance(known, str):
            return Listed({"0": known})
        # What comes from outside is no array, so it is at most the element that is replaced.
        return Listed() if key == "0" and name not in self.values and name not in self.unset else None

    def _kept_list(self, name: str, value: Value) -> Value:
        """Return what a variable holds after `NAME=value`: of an array that changes the first element."""
        known = self.values.get(name)
        if not isinstance(known, Listed) or not isinstance(value, str):
            return value
        return Listed({**known.elements, "0": value}, known.is_associative)

    def remove(self, name: str) -> None:
        """Unset a variable."""
        self.values.pop(name, None)
        self.unset.add(name)

    def forget(self, names: Iterable[str]) -> None:
        """Make variables unknown."""
        for name in names:
            self.values[name] = None
            self.unset.discard(name)

    def forget_all(self) -> None:
        """Make every variable unknown."""
        self.forget(list(self.values))
        self.forget(list(self.unset))
        self.arguments = None

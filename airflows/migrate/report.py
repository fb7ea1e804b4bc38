"""What is said about a script: what could not be carried over, and what is worth knowing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark about the script.

    Attributes:
        line: line in the script, counted from 1.
        kind: short code, such as `partition` or `output-pattern`.
        message: what it is about and what to do instead.
        directive: the option of sbatch it is about, such as `--partition`; None for a line of the body.
    """

    line: int
    kind: str
    message: str
    directive: str | None = None

    def document(self) -> dict[str, object]:
        """Return it as JSON has it."""
        return {
            "line": self.line,
            "directive": self.directive,
            "kind": self.kind,
            "message": self.message,
        }


@dataclass(slots=True)
class Report:
    """Collects findings while a script is read.

    Attributes:
        warnings: what could not be carried over as it is.
        notes: choices that were made, and what people should look at.
    """

    _warnings: list[Finding] = field(default_factory=list)
    _notes: list[Finding] = field(default_factory=list)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """All warnings, by line."""
        return tuple(sorted(self._warnings, key=lambda finding: finding.line))

    @property
    def notes(self) -> tuple[Finding, ...]:
        """All notes, by line."""
        return tuple(sorted(self._notes, key=lambda finding: finding.line))

    @property
    def kinds(self) -> frozenset[str]:
        """The codes of the warnings so far."""
        return frozenset(finding.kind for finding in self._warnings)

    def warn(self, kind: str, line: int, message: str, directive: str | None = None) -> None:
        """Add a warning; the same one about the same line is said once."""
        self._add(self._warnings, Finding(line, kind, message, directive))

    def note(self, kind: str, line: int, message: str, directive: str | None = None) -> None:
        """Add a note; the same one about the same line is said once."""
        self._add(self._notes, Finding(line, kind, message, directive))

    def _add(self, to: list[Finding], finding: Finding) -> None:
        if finding not in to:
            to.append(finding)

    def __iter__(self) -> Iterator[Finding]:
        """Iterate over warnings, then notes."""
        return iter((*self.warnings, *self.notes))

"""What a shell script consists of. Every part knows where it stands in the text."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflows.errors import AirflowsError


class ParseError(AirflowsError):
    """The text is no shell script, or uses what this parser does not know.

    Attributes:
        offset: where in the text.
    """

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Word:
    """A word as it is written, quotes and all."""

    start: int
    end: int
    text: str


@dataclass(slots=True)
class Heredoc:
    """The lines below a command that are its input."""

    delimiter: str
    quoted: bool
    indented: bool
    start: int = 0
    end: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Redirect:
    """`> file`, `<<EOF`, `<<< word`, `2>&1`."""

    start: int
    end: int
    op: str
    target: Word | None
    heredoc: Heredoc | None = None


@dataclass(frozen=True, slots=True)
class Assign:
    """`NAME=value`, `NAME+=value`, `NAME[i]=value` or `NAME=(a b c)`."""

    start: int
    end: int
    name: str
    subscript: str | None
    appends: bool
    value: Word
    items: tuple[Word, ...] | None = None


@dataclass(frozen=True, slots=True)
class Simple:
    """A command of words, or assignments alone."""

    start: int
    end: int
    assigns: tuple[Assign, ...] = ()
    words: tuple[Word, ...] = ()
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """`{ …; }`, or `( … )` when it is a subshell."""

    start: int
    end: int
    is_subshell: bool
    body: tuple[Item, ...]
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    """`if … then … elif … else … fi`."""

    start: int
    end: int
    branches: tuple[tuple[tuple[Item, ...], tuple[Item, ...]], ...]
    orelse: tuple[Item, ...] = ()
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class For:
    """`for NAME in words; do … done`; without words over the arguments."""

    start: int
    end: int
    name: str
    words: tuple[Word, ...] | None
    body: tuple[Item, ...]
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class CFor:
    """`for ((first; test; step)); do … done`."""

    start: int
    end: int
    first: str
    test: str
    step: str
    body: tuple[Item, ...]
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class While:
    """`while … do … done`, or `until`."""

    start: int
    end: int
    is_until: bool
    test: tuple[Item, ...]
    body: tuple[Item, ...]
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Arm:
    """`a|b) …;;` of a case statement."""

    patterns: tuple[Word, ...]
    body: tuple[Item, ...]
    ending: str


@dataclass(frozen=True, slots=True)
class Case:
    """`case word in … esac`."""

    start: int
    end: int
    word: Word
    arms: tuple[Arm, ...]
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Arith:
    """`(( … ))`."""

    start: int
    end: int
    text: str
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Cond:
    """`[[ … ]]`."""

    start: int
    end: int
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Function:
    """`name() { … }`."""

    start: int
    end: int
    name: str
    body: Command
    redirects: tuple[Redirect, ...] = ()


Command = Simple | Group | If | For | CFor | While | Case | Arith | Cond | Function


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands joined by `|`."""

    start: int
    end: int
    negated: bool
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """Pipelines joined by `&&` and `||`; the whole may go to the background.

    `end` is where the last command ends, `stop` where the `;` or `&` behind it does.
    """

    start: int
    end: int
    first: Pipeline
    rest: tuple[tuple[str, Pipeline], ...] = ()
    background: bool = False
    stop: int = 0

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """All of them, in order."""
        return (self.first, *(pipeline for _, pipeline in self.rest))

    @property
    def command(self) -> Command | None:
        """The only command there is, None for several."""
        is_one = not self.rest and not self.first.negated and len(self.first.commands) == 1
        return self.first.commands[0] if is_one else None

    @property
    def simple(self) -> Simple | None:
        """The only command, if it is a simple one."""
        command = self.command
        return command if isinstance(command, Simple) else None


@dataclass(slots=True)
class Script:
    """A parsed script.

    Attributes:
        text: all of it.
        items: what stands at its top level.
        heredocs: all here-documents, wherever they are.
    """

    text: str
    items: tuple[Item, ...]
    heredocs: list[Heredoc] = field(default_factory=list)

    def line(self, offset: int) -> int:
        """Return the line of an offset, counted from 1."""
        return self.text.count("\n", 0, offset) + 1

    def source(self, part: Item | Command | Word | Pipeline | Assign) -> str:
        """Return a part as it is written."""
        return self.text[part.start : part.end]

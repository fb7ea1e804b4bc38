"""What a script does, step by step: programs, modules, environments, exported variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from airflows.migrate.programs import Container, Program, name_of, program_of
from airflows.migrate.shell import names
from airflows.migrate.shell.parse import parse
from airflows.migrate.shell.tree import Command, Function, Item, ParseError, Script, Simple
from airflows.migrate.shell.words import literal

PLUMBING = frozenset(
    """
    : . [ alias bg break cd command conda continue date declare dirs disown echo eval exit export fg hash
    hostname jobs let local mamba micromamba ml module nvidia-smi popd printf pushd pwd read readarray mapfile
    readonly return set shift shopt sleep source test trap true false type typeset ulimit umask unalias unset
    wait which nproc free df lscpu uname whoami env printenv sync
    """.split()  # noqa: SIM905
)
"""Commands that prepare, report or control, and start no work of their own."""

_PREPARING = frozenset("mkdir cp mv ln tar unzip gunzip rsync wget curl git cat tee touch chmod rm".split())  # noqa: SIM905
_QUICK_PYTHON = ("-c", "-V", "--version", "-m pip", "-m venv", "-m ensurepip")
_JOINED = re.compile(r"\s*\\\n\s*|\s*\n\s*")


@dataclass(frozen=True, slots=True)
class Step:
    """One program that the script runs.

    Attributes:
        command: where it stands.
        item: the entry of the top level that it is part of.
        program: what it runs.
        text: the command as people read it: on one line, without srun and the container.
        is_inner: it stands in the text of `bash -c`.
    """

    command: Simple
    item: Item
    program: Program
    text: str
    is_inner: bool = False

    @property
    def is_training(self) -> bool:
        """Whether it starts something that may be the training."""
        return self.program.launcher is not None and not self.is_quick

    @property
    def is_quick(self) -> bool:
        """Whether it only looks, or installs something."""
        if self.program.launcher != "python":
            return False
        words = self.program.arguments
        return any(" ".join(words[1:]).startswith(start) for start in _QUICK_PYTHON)


@dataclass(slots=True)
class Body:
    """What a script does.

    Attributes:
        script: its tree.
        steps: programs, in the order of the text.
        env: variables that are exported with a literal value.
        modules: modules that are loaded.
        conda_env: the environment that is activated.
        container: what the training runs in.
        functions: names of functions that it defines.
    """

    script: Script
    steps: list[Step] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)
    conda_env: str | None = None
    container: Container | None = None
    functions: set[str] = field(default_factory=set)

    @property
    def training(self) -> list[Step]:
        """The steps that train: those with a known launcher, or what else there is."""
        for chosen in (
            [step for step in self.steps if step.is_training],
            [step for step in self.steps if step.is_quick or not self._is_preparing(step)],
            self.steps,
        ):
            if chosen:
                return chosen
        return []

    def _is_preparing(self, step: Step) -> bool:
        words = [word.text for word in step.command.words]
        name = name_of(words[step.program.at]) if step.program.at < len(words) else ""
        return name in PLUMBING or name in _PREPARING

    @property
    def launcher(self) -> str | None:
        """The program that starts the training."""
        return next((step.program.launcher for step in self.training if step.program.launcher), None)

    @property
    def uses_srun(self) -> bool:
        """Whether srun starts the training."""
        return any(step.program.srun is not None for step in self.training)

    @property
    def commands(self) -> list[str]:
        """The lines that train."""
        return [text for step in self.training for text in _heterogeneous(step)]

    @property
    def setup(self) -> list[str]:
        """The lines that prepare files before the first training, as far as they are read here."""
        first = self.training[0].command.start if self.training else len(self.script.text)
        return [
            self.script.source(step.command).partition("\n")[0]
            for step in self.steps
            if step.command.start < first
            and self._is_preparing(step)
            and not step.is_training
            and name_of(step.command.words[step.program.at].text) in _PREPARING
        ]


def _heterogeneous(step: Step) -> Iterator[str]:
    """Yield the programs of a heterogeneous step one by one, or the one there is."""
    if step.program.srun is None or not step.program.srun.is_heterogeneous:
        yield step.text
        return
    groups: list[list[str]] = [["srun"]]
    for word in step.command.words[1:]:
        groups += [["srun"]] if word.text == ":" else []
        groups[-1] += [] if word.text == ":" else [word.text]
    for words in groups:
        yield " ".join(words[program_of(words).at :])


def read_body(script: Script) -> Body:
    """Return what a script does."""
    body = Body(script)
    for item in script.items:
        for pipeline in item.pipelines:
            for command in pipeline.commands:
                for each in names.walk(command):
                    _read(body, item, each)
    body.container = next((step.program.container for step in body.steps if step.program.container), None)
    return body


def _read(body: Body, item: Item, command: Command) -> None:
    if isinstance(command, Function):
        body.functions.add(command.name)
    if not isinstance(command, Simple):
        return
    words = [word.text for word in command.words]
    _read_exports(body, command, words)
    if not words:
        return
    _read_environment(body, words)
    if words[0] in body.functions or (words[0] in PLUMBING and words[0] not in ("echo", "hostname")):
        return
    if words[0] in ("conda", "mamba", "micromamba") and "run" not in words:
        return
    step = Step(command, item, program_of(words), _text_of(body.script, command, program_of(words).at))
    inner = _inner(step)
    body.steps += inner or [step]


def _text_of(script: Script, command: Simple, at: int) -> str:
    """Return a command from its word number `at`, on one line with single spaces."""
    if at >= len(command.words):
        return ""
    end = max([command.end, *(redirect.end for redirect in command.redirects)])
    return _single_spaced(script.text[command.words[at].start : end])


def _single_spaced(text: str) -> str:
    """Return a text on one line, white space single but for what stands in quotes."""
    made, quote = "", ""
    for char in _JOINED.sub(" ", text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char.isspace():
            made += "" if made.endswith(" ") else " "
            continue
        made += char
    return made.strip()


def _inner(step: Step) -> list[Step]:
    """Return the steps in the text of `bash -c 'text'`, none for another command."""
    arguments = step.program.arguments
    if step.program.launcher not in ("bash", "sh") or len(arguments) < 3:  # noqa: PLR2004 - bash -c text
        return []
    options = [word for word in arguments[1:-1] if word.startswith("-")]
    text = literal(arguments[-1]) if any("c" in word for word in options) else None
    if text is None:
        return []
    try:
        inner = parse(text)
    except ParseError:
        return []
    found = []
    for command in names.commands_of(inner.items):
        if isinstance(command, Simple) and command.words and command.words[0].text not in PLUMBING:
            words = [word.text for word in command.words]
            program = program_of(words)
            container = program.container or step.program.container
            whole = Program(program.at, program.launcher, step.program.srun, container, program.arguments)
            found.append(Step(step.command, step.item, whole, _text_of(inner, command, program.at), True))
    return [each for each in found if each.is_training]


def _read_exports(body: Body, command: Simple, words: Sequence[str]) -> None:
    for assign in command.assigns:
        value = literal(assign.value.text) if assign.items is None else None
        is_exported = assign.name in names.exported(command.assigns, tuple(words))
        if value is not None and is_exported and not value.startswith("~"):
            body.env[assign.name] = value
        elif is_exported:
            body.env.pop(assign.name, None)


def _read_environment(body: Body, words: Sequence[str]) -> None:
    plain = [literal(word) or word for word in words]
    if plain[0] == "module" and len(plain) > 1:
        if plain[1] in ("load", "add", "try-load"):
            body.modules += [word for word in plain[2:] if not word.startswith("-")]
        elif plain[1] in ("swap", "switch"):
            body.modules += plain[-1:]
        elif plain[1] == "purge":
            body.modules.clear()
    elif plain[0] == "ml" and len(plain) > 1:
        rest = plain[2:] if plain[1] in ("load", "add") else plain[1:]
        if plain[1] not in ("purge", "unload", "list", "avail", "use", "spider", "restore", "swap"):
            body.modules += [word for word in rest if not word.startswith("-")]
    elif "activate" in plain[1:2] and plain[0] in ("conda", "mamba", "micromamba", "source", "."):
        body.conda_env = plain[2] if len(plain) > 2 else "base"  # noqa: PLR2004 - conda activate NAME
    elif plain[0] in ("conda", "mamba", "micromamba") and plain[1:2] == ["run"]:
        chosen = [plain[at + 1] for at, word in enumerate(plain[:-1]) if word in ("-n", "--name", "-p")]
        body.conda_env = chosen[0] if chosen else body.conda_env

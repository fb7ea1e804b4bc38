"""A Hydra multirun command as a train.yaml and a sweep.yaml. Pure.

The program stays as it is: each trial is one run of it, with the swept overrides on its command line.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from airflows.errors import SpecError
from airflows.migrate.hydra_settings import Settings
from airflows.migrate.hydra_values import swept
from airflows.migrate.migration import Migration
from airflows.migrate.passing import Imported, ask_for_mlflow, variables
from airflows.migrate.report import Report

Read = Callable[[str], str | None]

_MULTIRUN = ("-m", "--multirun")
_WITH_VALUE = ("--config-name", "-cn", "--config-path", "-cp", "--config-dir", "-cd", "--package", "-p")
_OVERRIDE = re.compile(r"(\+\+|\+|~)?([\w.$/@:-]+)=(.*)", re.DOTALL)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)
_METRIC = "objective"


@dataclass(slots=True)
class _Parts:
    """A command, taken apart.

    Attributes:
        variables: of the environment, which stand in front.
        start: words up to and with the program.
        program: its file, empty for a module.
        options: words for Hydra that stay.
        overrides: the others, in their order.
    """

    variables: list[tuple[str, str]]
    start: list[str]
    program: str
    options: list[str] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)


def from_hydra(
    words: Sequence[str], *, root: str = ".", read: Read, accelerator: str | None = None
) -> Migration:
    """Return the files for a multirun command.

    Args:
        words: of the command, after the shell: `python train.py -m lr=0.1,0.01`.
        root: the directory it runs in, relative to where the files are written.
        read: returns what a file holds that the command names, None when it cannot be read.
        accelerator: the accelerator type to use; the smallest by default.

    Raises:
        SpecError: it is no such command, or there is no way to write files for it.
    """
    parts = _taken_apart(words)
    report, settings = Report(), Settings()
    text = read(parts.program) if parts.program else None
    domains, kept = _read(parts, settings, report)
    if not domains:
        _fail(
            "No override of the command has several values, so there is nothing to sweep.",
            "Write lr=0.1,0.01; hydra.sweeper.params of the config files is not read.",
        )
    by_key = variables(domains)
    name = settings.name or (parts.program.rpartition("/")[2].partition(".")[0] or parts.start[-1])
    made = Imported(
        source=shlex.join(words),
        name=name,
        experiment=name,
        command=_command(parts, kept, by_key),
        space={f"env_variables.{by_key[key]}": domain for key, domain in domains.items()},
        report=report,
        root=root,
        sweep=settings.sweep(report, _METRIC),
        train=settings.train(),
        carried={"from": "hydra", "overrides": parts.overrides},
    )
    _remark(parts, text, settings, report)
    ask_for_mlflow(report, text, _METRIC if settings.is_adaptive else None)
    return made.made(accelerator, settings.gpus)


def _taken_apart(words: Sequence[str]) -> _Parts:
    variables = [
        (found[1], found[2])
        for found in itertools.takewhile(bool, map(_ASSIGNMENT.fullmatch, words))
        if found
    ]
    words = words[len(variables) :]
    end, program = _program(words)
    parts = _Parts(variables, list(words[:end]), program)
    rest = list(words[end:])
    is_multirun = False
    while rest:
        word = rest.pop(0)
        if word in _MULTIRUN:
            is_multirun = True
        elif word in _WITH_VALUE and rest:
            parts.options += [word, rest.pop(0)]
        elif word.startswith("-"):
            parts.options.append(word)
        else:
            parts.overrides.append(word)
    if not is_multirun:
        _fail("This is no multirun: it has no -m or --multirun behind the program.", None)
    return parts


def _program(words: Sequence[str]) -> tuple[int, str]:
    """Return where the words behind the program begin, and its file; of a module there is none."""
    for position, word in enumerate(words):
        if word.endswith(".py") and not word.startswith("-") and not _OVERRIDE.fullmatch(word):
            return position + 1, word
    for position, word in enumerate(words):
        if word == "-m" and _is_module(words, position):
            return position + 2, ""
        if position and (word in _MULTIRUN or (not word.startswith("-") and _OVERRIDE.fullmatch(word))):
            # An installed program: the word before the first of Hydra's.
            return position, ""
    message = "No program is found in the command."
    raise SpecError(message, field="command", hint="Write it as in python train.py -m lr=0.1,0.01.")


def _is_module(words: Sequence[str], position: int) -> bool:
    """Whether the word behind an -m is a module, not an override of Hydra's."""
    after = words[position + 1 : position + 2]
    if not after or after[0].startswith("-") or _OVERRIDE.fullmatch(after[0]):
        return False
    is_python = any(word.rpartition("/")[2].startswith("python") for word in words[:position])
    return is_python or any(word in _MULTIRUN for word in words[position + 1 :])


def _read(parts: _Parts, settings: Settings, report: Report) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the swept overrides with their domains, and the text of all that stay, by key."""
    domains: dict[str, Any] = {}
    kept: dict[str, str] = {}
    given: set[str] = set()
    several: set[str] = set()
    for word in parts.overrides:
        found = _OVERRIDE.fullmatch(word)
        if found is None:
            if not word.startswith("~"):
                _fail(f"{word} is no override of Hydra: key=value.", None)
            kept[word] = word
            continue
        key = f"{found[1] or ''}{found[2]}"
        if found[2].startswith("hydra.") or found[2].startswith("hydra/"):
            settings.take(found[2], found[3], report)
            continue
        sweep = swept(found[3])
        for note in sweep.notes:
            report.note("order", 1, f"{word}: {note}")
        name = found[2]
        if name in several or (name in given and sweep.domain is not None):
            # To Hydra the last one wins, and whole runs are there twice.
            _fail(f"{name} is given more than once, and not always with one value.", "Leave one of them.")
        if found[1] != "~":
            given.add(name)
            several |= set() if sweep.domain is None else {name}
        if sweep.domain is None:
            kept[key] = word
        else:
            domains[key] = sweep.domain
            kept[key] = ""
    return domains, kept


def _command(parts: _Parts, kept: dict[str, str], variable: dict[str, str]) -> str:
    words = [f"{name}={shlex.quote(value)}" for name, value in parts.variables]
    words += [shlex.quote(word) for word in (*parts.start, *parts.options)]
    words += [
        f'{shlex.quote(f"{key}=")}"${variable[key]}"' if key in variable else shlex.quote(word)
        for key, word in kept.items()
    ]
    # Of its own for each trial: Hydra names it by the second, and many start in one.
    words.append("hydra.run.dir=\"'$AIRFLOWS_CHECKPOINT_DIR/hydra'\"")
    return f'cd "$CODE_SOURCE_PATH"\n{" ".join(words)}'


def _remark(parts: _Parts, text: str | None, settings: Settings, report: Report) -> None:
    if parts.program and text is None:
        message = f"{parts.program} is not here: code_source.snapshot.root_path must be where it is."
        report.warn("program", 1, message)
    report.note(
        "output",
        1,
        "What Hydra kept under multirun/ is in each trial's checkpoint directory now, in hydra/, the same for"
        " all its attempts.",
    )
    if settings.is_adaptive:
        message = f"Hydra takes what the function returns: log it to MLflow as the metric {_METRIC!r}."
        report.warn("objective", 1, message)


def _fail(message: str, hint: str | None) -> NoReturn:
    raise SpecError(message, field="command", hint=hint)

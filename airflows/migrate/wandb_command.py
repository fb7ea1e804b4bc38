"""The command of a W&B sweep, with its macros, as lines of a train.yaml. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflows.errors import SpecError
from airflows.migrate.wandb_domains import Parameter

_DEFAULT = ("${env}", "${interpreter}", "${program}", "${args}")
_WORDS = {"${env}": "/usr/bin/env", "${interpreter}": "python"}
_FLAGS = {"${args}": "--{}=", "${args_no_hyphens}": "{}=", "${args_no_boolean_flags}": "--{}="}
_WHOLE = ("${args_json}", "${args_json_file}")
_ENVIRONMENT = re.compile(r"\$\{envvar:(\w+)\}", re.ASCII)
_MACRO = re.compile(r"\$\{\w+\}")
_TAKES_ARGUMENTS = re.compile(
    r"argparse|\bargv\b|\b(?:click|typer|fire|absl|tyro|hydra|omegaconf|simple_parsing|jsonargparse)\b"
    r"|ArgumentParser|LightningCLI"
)


@dataclass(frozen=True, slots=True)
class Command:
    """How a program is started.

    Attributes:
        words: of the command, macros included.
        program: what stands for `${program}`.
        booleans: parameters that have only True and False.
        why_not_by_flags: why it does not get its values as flags, empty when it does.
    """

    words: tuple[str, ...]
    program: str
    booleans: frozenset[str]
    why_not_by_flags: str

    @property
    def takes_flags(self) -> bool:
        """Whether the program gets its values as flags."""
        return not self.why_not_by_flags

    def text(self, names: Mapping[str, str]) -> str:
        """Return the lines for bash.

        Args:
            names: parameter to the variable with its value, in the order of the flags.
        """
        before: list[str] = []
        words: list[str] = []
        for word in self.words:
            if word in _FLAGS:
                words += self._flags(word, names, before)
            elif word not in _WHOLE:
                words.append(self._word(word))
        return "\n".join(['cd "$CODE_SOURCE_PATH"', *before, " ".join(words)])

    def _flags(self, macro: str, names: Mapping[str, str], before: list[str]) -> list[str]:
        words = []
        for key, variable in names.items():
            if macro == "${args_no_boolean_flags}" and key in self.booleans:
                # Such a flag is there or not. Of an unset array `set -u` would complain in old shells.
                flag = shlex.quote(f"--{key}")
                before.append(f'{variable}_FLAG=""')
                before.append(f'if [ "${variable}" = True ]; then {variable}_FLAG={flag}; fi')
                words.append(f'${{{variable}_FLAG:+"${variable}_FLAG"}}')
            else:
                words.append(f'{shlex.quote(_FLAGS[macro].format(key))}"${variable}"')
        return words

    def _word(self, word: str) -> str:
        if word == "${program}":
            return shlex.quote(self.program)
        named = _ENVIRONMENT.fullmatch(word)
        if named is not None:
            return f'"${named[1]}"'
        return _WORDS.get(word) or shlex.quote(word)


def command_of(given: Any, program: str, text: str | None, parameters: Sequence[Parameter]) -> Command:
    """Return how the program of a sweep is started.

    Args:
        given: `command` of the file, None for W&B's default.
        program: `program` of the file, empty for none.
        text: what the program's file holds, None when it cannot be read.
        parameters: of the sweep.

    Raises:
        SpecError: there is no program, or a macro is not known.
    """
    words = _split(given) if isinstance(given, str) else [str(word) for word in given or _DEFAULT]
    if not program and ("${program}" in words or given is None):
        message = "It names no program."
        raise SpecError(message, field="program", hint="Write program: train.py.")
    for word in words:
        known = word in _WORDS or word in _FLAGS or word in _WHOLE or word == "${program}"
        if _MACRO.fullmatch(word) and not known:
            message = f"{word} is no macro that can be carried over."
            raise SpecError(message, field="command")
    booleans = {
        each.key
        for each in parameters
        if all(isinstance(value, bool) for value in each.given.get("values", [each.given.get("value")]))
    }
    return Command(tuple(words), program, frozenset(booleans), _why_not(words, text, parameters))


def _split(given: str) -> list[str]:
    try:
        return shlex.split(given)
    except ValueError as exc:
        message = f"It cannot be split into words: {exc}."
        raise SpecError(message, field="command") from exc


def _why_not(words: Sequence[str], text: str | None, parameters: Sequence[Parameter]) -> str:
    if any(word in _WHOLE for word in words):
        return "The program gets its parameters as one JSON text, which is not made here."
    if not any(word in _FLAGS for word in words):
        return "The command has no ${args}, so the program reads wandb.config."
    if any(len(each.path) > 1 for each in parameters):
        return "Nested parameters are no flags of a command line."
    if text is not None and "wandb.config" in text and not _TAKES_ARGUMENTS.search(text):
        return "The program takes no arguments: it reads wandb.config."
    return ""

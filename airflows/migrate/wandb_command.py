"""The command of a W&B sweep, with its macros, as lines of a train.yaml. Pure."""

from __future__ import annotations

import itertools
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
_COMMENT = re.compile(r"#.*")
_TAKES_ARGUMENTS = re.compile(
    r"(?:^|;)\s*(?:import\s+(?:[\w.]+(?:\s+as\s+\w+)?\s*,\s*)*|from\s+)"
    r"(?:argparse|getopt|optparse|click|typer|fire|absl|tyro|hydra|omegaconf|simple_parsing|jsonargparse|docopt"
    r"|configargparse|draccus|plac|cyclopts|tap|chz|pydantic_settings)\b"
    r"|\bargv\b|ArgumentParser|LightningCLI",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Command:
    """How a program is started.

    Attributes:
        words: of the command, macros included.
        program: what stands for `${program}`.
        booleans: parameters that have True or False among their values.
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
                flag, name = shlex.quote(f"--{key}"), f"{variable}_FLAG"
                before.append(f'{name}={flag}="${variable}"')
                before.append(f'if [ "${variable}" = True ]; then {name}={flag}; fi')
                before.append(f'if [ "${variable}" = False ]; then {name}=""; fi')
                words.append(f'${{{variable}_FLAG:+"${variable}_FLAG"}}')
            else:
                words.append(f'{shlex.quote(_FLAGS[macro].format(key))}"${variable}"')
        return words

    def _word(self, word: str) -> str:
        if word == "${program}":
            return shlex.quote(self.program)
        if word in _WORDS:
            return _WORDS[word]
        # Text and the names of variables by turns.
        parts = _ENVIRONMENT.split(word)
        texts = [shlex.quote(text) if text else "" for text in parts[::2]]
        names = [f'"${name}"' for name in parts[1::2]]
        return "".join(itertools.chain(*itertools.zip_longest(texts, names, fillvalue=""))) or "''"


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
    words = _words(given)
    if not program and ("${program}" in words or given is None):
        message = "It names no program."
        raise SpecError(message, field="program", hint="Write program: train.py.")
    for word in words:
        known = word in _WORDS or word in _FLAGS or word in _WHOLE or word == "${program}"
        if not known and "${" in _ENVIRONMENT.sub("", word):
            message = f"{word} has no macro that can be carried over."
            raise SpecError(message, field="command")
    booleans = {each.key for each in parameters if any(isinstance(value, bool) for value in _values(each))}
    # Of another language nothing is known.
    reads = text if not program or program.endswith(".py") else None
    return Command(tuple(words), program, frozenset(booleans), _why_not(words, reads, parameters))


def _values(parameter: Parameter) -> list[Any]:
    given = parameter.given
    if "value" in given:
        return [given["value"]]
    return given["values"] if isinstance(given.get("values"), list) else []


def _words(given: Any) -> list[str]:
    """Return the words of `command`, which may be one text."""
    if isinstance(given, list):
        return [str(word) for word in given] or list(_DEFAULT)
    if given is None:
        return list(_DEFAULT)
    if not isinstance(given, str):
        message = "It is neither a list of words nor a text."
        raise SpecError(message, field="command")
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
    if text is not None and not _TAKES_ARGUMENTS.search(_COMMENT.sub("", text)):
        return "Nothing in the program itself parses arguments, so it gets none."
    return ""

"""Texts that are made of other values: `--lr 0.1 --bs 32` for each task is two options. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflows.migrate.trace import option_name

_TOKEN = re.compile(r"[^\s,;:=]+|[\s,;:=]")
_SAFE = re.compile(r"[\w@%+:,./=;-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Split:
    """A text as a template.

    Attributes:
        text: the template, as a shell word.
        keys: variable in it to its value for each task.
    """

    text: str
    keys: dict[str, list[str]]


def quoted(text: str) -> str:
    """Return a text as a word of the shell."""
    if re.fullmatch(r"[\w@%+:,./-]+", text, re.ASCII):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def options_in(texts: Sequence[str]) -> Split | None:
    """Return the options that texts consist of, None unless all have the same ones in the same order.

    Args:
        texts: one for each task, such as `--lr 0.1 --bs 32`.
    """
    rows = [text.split(" ") for text in texts]
    if len({len(row) for row in rows}) != 1 or not all(all(row) for row in rows):
        return None
    keys: dict[str, list[str]] = {}
    words: list[str] = []
    for column in zip(*rows, strict=True):
        word = _word(list(column), words[-1] if words else "", keys)
        if word is None:
            return None
        words.append(word)
    return Split(f'"{" ".join(words)}"', keys) if keys else None


def _word(column: list[str], before: str, keys: dict[str, list[str]]) -> str | None:
    """Return one word of the template, None where it has no name."""
    if len(set(column)) == 1:
        return column[0] if _SAFE.fullmatch(column[0]) else None
    heads = {value.partition("=")[0] for value in column}
    if len(heads) == 1 and all("=" in value for value in column):
        head = heads.pop()
        values = [value.partition("=")[2] for value in column]
        prefix, name = f"{head}=", option_name(head)
    else:
        values, prefix = column, ""
        name = option_name(before) if before.startswith("-") and "=" not in before else ""
    if not name or name in keys or not all(values) or not _SAFE.fullmatch(prefix or "-"):
        return None
    keys[name] = values
    return f"{prefix}${{{name}}}"


def by_number(values: Sequence[str]) -> str | None:
    """Return values that go up in equal steps as a shell word of the trial's number, else None."""
    if not all(re.fullmatch(r"0|-?[1-9]\d{0,9}", value, re.ASCII) for value in values):
        return None
    numbers = [int(value) for value in values]
    steps = {later - earlier for earlier, later in itertools.pairwise(numbers)}
    if len(steps) != 1:
        return None
    step, number = steps.pop(), "${AIRFLOWS_TRIAL:-0}"
    if step == 1 and not numbers[0]:
        return f'"{number}"'
    return f"$(({numbers[0]} + {number if step == 1 else f'{step} * {number}'}))"


def made_of(texts: Sequence[str], keys: Mapping[str, Sequence[str]]) -> str | None:
    """Return texts as a shell word of the values of variables, None where they are not made of them.

    Args:
        texts: one for each task.
        keys: variable to its value for each task.
    """
    rows = [_TOKEN.findall(text) for text in texts]
    if len({len(row) for row in rows}) != 1:
        return None
    words: list[str] = []
    for column in zip(*rows, strict=True):
        same = [name for name, values in keys.items() if list(values) == list(column)]
        if len(set(column)) == 1 and (_SAFE.fullmatch(column[0]) or column[0].isspace()):
            words.append(column[0])
        elif same:
            words.append(f"${{{same[0]}}}")
        else:
            return None
    return f'"{"".join(words)}"'

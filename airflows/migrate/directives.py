"""The directives of a batch script, read line by line as sbatch reads them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from airflows.migrate import options, pbs
from airflows.migrate.report import Report

_MARK = "#SBATCH"
_OTHER = re.compile(r"#(?:PBS|BSUB)\b")
_MISSED = re.compile(r"\s*#\s*SBATCH\b|\s*#\s*sbatch\s+-", re.ASCII)
_HET = ("hetjob", "packjob")


@dataclass(frozen=True, slots=True)
class Directive:
    """One option as the script gives it.

    Attributes:
        line: its line, counted from 1.
        name: long name without dashes.
        value: its value; empty for an option without.
        written: the option as it stands in the script.
    """

    line: int
    name: str
    value: str
    written: str

    @property
    def option(self) -> str:
        """The long name as on a command line."""
        return f"--{self.name}"


@dataclass(slots=True)
class Header:
    """What stands before the first command of a script.

    Attributes:
        interpreter: what stands after `#!`, None without such a line.
        components: the directives of each part of a heterogeneous job; one list for any other.
        body: number of the first line that is no comment, counted from 1; after the end if there is none.
        het_line: the line that makes it a heterogeneous job, 0 for any other.
    """

    interpreter: str | None
    components: list[list[Directive]] = field(default_factory=lambda: [[]])
    body: int = 1
    het_line: int = 0

    def last(self, *names: str) -> Directive | None:
        """Return the directive of the first component that counts: of one given twice, the last."""
        return last(self.components[0], *names)


def last(directives: Sequence[Directive], *names: str) -> Directive | None:
    """Return the last directive of one of these names."""
    return next((each for each in reversed(directives) if each.name in names), None)


def read_header(lines: Sequence[str], report: Report) -> Header:
    """Read the directives of a script.

    Args:
        lines: the script.
        report: gets what sbatch refuses or does not see.
    """
    first = lines[0] if lines else ""
    header = Header(first[2:].strip() if first.startswith("#!") else None)
    if header.interpreter is None:
        report.warn(
            "invalid", 1, "sbatch refuses a script whose first line does not begin with #!. Add #!/bin/bash."
        )
    foreign: list[tuple[int, str]] = []
    header.body = len(lines) + 1
    for number, line in enumerate(lines, 1):
        if line.startswith(_MARK):
            _read_line(number, line[len(_MARK) :], header, report)
        elif _OTHER.match(line):
            foreign.append((number, line))
        elif line.strip() and not line.lstrip().startswith("#"):
            header.body = number
            break
    # sbatch reads the lines of other schedulers after its own, so what they say wins.
    _read_foreign(foreign, header, report)
    _find_missed(lines, header, report)
    return header


def _read_foreign(lines: Sequence[tuple[int, str]], header: Header, report: Report) -> None:
    ignored = header.last("ignore-pbs") is not None
    for number, line in lines:
        if ignored:
            report.note("pbs-directive", number, "The line is ignored, as --ignore-pbs says.")
            continue
        report.warn(
            "pbs-directive",
            number,
            f"sbatch reads this line of another scheduler too, and it wins over #SBATCH: {line.strip()}."
            " It is carried over as sbatch takes it; better write it as #SBATCH.",
        )
        header.components[0] += [
            Directive(number, name, value, line.strip()) for name, value in pbs.options_of(line)
        ]


def _find_missed(lines: Sequence[str], header: Header, report: Report) -> None:
    """Warn about lines that look like directives and are none."""
    for number, line in enumerate(lines, 1):
        late = number >= header.body and line.startswith(_MARK)
        if late or (_MISSED.match(line) and not line.startswith(_MARK)):
            why = "it stands after the first command" if late else f"it does not begin with {_MARK}"
            report.warn(
                "ignored-directive",
                number,
                f"sbatch does not see this line, because {why}; so it has no effect here either."
                " If it is wanted, set its key in train.yaml or sweep.yaml.",
            )


def _read_line(number: int, rest: str, header: Header, report: Report) -> None:
    words, problem = split_line(rest)
    if problem:
        report.warn("invalid", number, f"sbatch refuses this line: {problem}.")
    if words and words[0] in _HET:
        header.components.append([])
        header.het_line = header.het_line or number
        words = words[1:]
    for item in _options(words):
        if isinstance(item, str):
            report.warn("invalid", number, f"sbatch refuses this line: {item}. Correct or remove it.")
            return
        name, value, written = item
        header.components[-1].append(Directive(number, name, value, written))
        if "$" in value or "`" in value:
            report.warn(
                "directive-variable",
                number,
                f"sbatch expands no variables, so {written} means just these characters."
                " Write the value itself.",
                f"--{name}",
            )


def split_line(text: str) -> tuple[list[str], str]:
    """Return (words, problem) of what follows #SBATCH.

    Quotes group, `#` outside of them ends the line, and a backslash takes the next character as it is, but no
    blank: tried with Slurm 22.05.
    """
    words: list[str] = []
    word, quote, escaped = "", "", False
    for char in text:
        if escaped and not (char.isspace() and not quote):
            word += char
        elif char == "\\" and not escaped:
            escaped = True
            continue
        elif quote:
            quote, word = ("", word) if char == quote else (quote, word + char)
        elif char in "\"'":
            quote = char
        elif char == "#":
            break
        elif char.isspace():
            words, word = [*words, word], ""
        else:
            word += char
        escaped = False
    return [each for each in (*words, word) if each], "a quote is not closed" if quote else ""


def _options(words: Sequence[str]) -> Iterator[tuple[str, str, str] | str]:
    """Yield (name, value, as written) of each option; a text says what is wrong, and ends it."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--" and at == len(words):
            return
        if word == "--" or not word.startswith("-") or word == "-":
            yield f"{word!r} is no option"
            return
        for name, value, needs in _one_word(word):
            if name is None:
                yield f"{value} is no option of sbatch, or the beginning of several"
                return
            if not needs:
                yield name, value, word
            elif at < len(words):
                yield name, words[at], f"{word} {words[at]}"
                at += 1
            else:
                yield f"{word} needs a value"
                return


def _one_word(word: str) -> Iterator[tuple[str | None, str, bool]]:
    """Yield (name, value, whether the next word is the value) of the options in a word; no name if wrong."""
    if word.startswith("--"):
        text, equals, value = word[2:].partition("=")
        name = options.by_beginning(text)
        if name is None or (equals and options.takes(name) == "nothing"):
            yield None, word, False
        else:
            yield name, value, not equals and options.takes(name) == "value"
        return
    for at, letter in enumerate(word[1:], 2):
        name = options.by_letter(letter)
        if name is None:
            yield None, f"-{letter}", False
            return
        if options.takes(name) == "value":
            yield name, word[at:], at == len(word)
            return
        if options.takes(name) == "maybe" and word[at:]:
            yield name, word[at:], False
            return
        yield name, "", False

"""What harmless commands print: those that pick a line or a field, to find parameters. Pure.

Each takes its arguments and its input and returns its output; what is not understood is an UnknownValueError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from airflows.migrate.shell.arithmetic import UnknownValueError

Lines = str | None
Read = Callable[[str], str]
Run = Callable[[Sequence[str], Lines, "Files"], str]

_MANY = 100_000
_SED_LINE = re.compile(r"(?:(\d+)|\$)\s*p;?", re.ASCII)
_SED_QUIT = re.compile(r"(\d+)\s*(?:q\s*;\s*d|!d(?:;\s*\d*q)?)", re.ASCII)
_AWK = re.compile(
    r"\s*(?:NR\s*==\s*(?P<line>[\w$+() -]+?)\s*)?"
    r"(?:\{\s*print\s*(?P<what>[^{};]*?)\s*;?\s*(?:exit)?\s*;?\s*\})?\s*"
)
_AWK_FIELD = re.compile(r"\$(\d+|0|NF)", re.ASCII)
_AWK_LINE = re.compile(r"(\w+)\s*(?:([+-])\s*(\d+))?", re.ASCII)
_TR = re.compile(r"(?:\\[nrt]|[ -~])", re.ASCII)
_PRINTF = re.compile(r"%(0?\d*)([sdi%])", re.ASCII)
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\"}
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class Files:
    """Where commands read files, and which lines of which files were picked.

    Attributes:
        picked: (path, line counted from 1) of each line that was looked up.
    """

    def __init__(self, read: Callable[[str], str | None]) -> None:
        self._read = read
        self.picked: list[tuple[str, int]] = []
        self.separators: list[str] = []

    def text(self, path: str) -> str:
        """Return what a file holds.

        Raises:
            UnknownValueError: it cannot be read now.
        """
        found = self._read(path)
        if found is None:
            raise UnknownValueError
        return found

    def line(self, path: str | None, number: int, given: Lines) -> str:
        """Return one line of a file, or of the input; nothing when there are not so many."""
        if path is not None:
            self.picked.append((path, number))
        lines = _input([] if path is None else [path], given, self).split("\n")
        has_it = 0 < number <= len(lines) and (number < len(lines) or lines[-1])
        return lines[number - 1] + "\n" if has_it else ""


def _input(paths: Sequence[str], given: Lines, files: Files) -> str:
    if paths and paths != ["-"]:
        return "".join(files.text(path) for path in paths)
    if given is None:
        raise UnknownValueError
    return given


def _lines(text: str) -> list[str]:
    return [line.removesuffix("\n") for line in _LINE.findall(text)]


def _echo(words: Sequence[str], _: Lines, __: Files) -> str:
    ends = "\n"
    rest = list(words)
    while rest and re.fullmatch(r"-[neE]+", rest[0]):
        option = rest.pop(0)
        if "e" in option:
            return _refuse()
        ends = "" if "n" in option else ends
    # What a backslash means depends on the shell.
    return _refuse() if any("\\" in word for word in rest) else " ".join(rest) + ends


def _printf(words: Sequence[str], _: Lines, __: Files) -> str:
    if not words or words[0].startswith("-"):
        raise UnknownValueError
    given = list(words[1:])
    left = re.sub(r"\\[nt\\]", "", _PRINTF.sub("", words[0]))
    takes = [kind for _, kind in _PRINTF.findall(words[0]) if kind != "%"]
    if "%" in left or "\\" in left or len(given) > max(len(takes), 0):
        raise UnknownValueError

    def value(found: re.Match[str]) -> str:
        width, kind = found.groups()
        if kind == "%":
            return "%"
        text = given.pop(0) if given else ""
        if kind == "s":
            return text.rjust(int(width or 0)) if not width.startswith("0") else _refuse()
        if not re.fullmatch(r"-?(?:0|[1-9]\d*)", text):
            return _refuse()
        return f"{int(text):{width}d}"

    return _PRINTF.sub(value, re.sub(r"\\[nt\\]", lambda found: _ESCAPES[found[0]], words[0]))


def _refuse() -> str:
    raise UnknownValueError


def _sed(words: Sequence[str], given: Lines, files: Files) -> str:
    quiet, rest = False, []
    for word in words:
        quiet = quiet or word in ("-n", "--quiet")
        rest += [] if word in ("-n", "--quiet", "-e") else [word]
    script, paths = rest[0] if rest else "", rest[1:]
    found = (_SED_LINE if quiet else _SED_QUIT).fullmatch(script.strip())
    if found is None or len(paths) > 1 or (paths and paths[0].startswith("-")):
        raise UnknownValueError
    path = paths[0] if paths else None
    if found[1] is None:
        return _tail(["-n", "1", *paths], given, files)
    return files.line(path, int(found[1]), given)


def _awk(words: Sequence[str], given: Lines, files: Files) -> str:
    separator, variables, rest = None, {}, list(words)
    while rest and rest[0].startswith("-") and len(rest) > 1:
        option = rest.pop(0)
        value = option[2:] or rest.pop(0)
        if option.startswith("-v"):
            name, _, text = value.partition("=")
            variables[name] = text
        elif option.startswith("-F"):
            separator = value
        else:
            raise UnknownValueError
    found = _AWK.fullmatch(rest[0]) if rest else None
    if found is None or not (found["line"] or found["what"] is not None) or len(rest) > 2:  # noqa: PLR2004
        raise UnknownValueError
    path = rest[1] if len(rest) > 1 else None
    if found["line"]:
        line = files.line(path, _awk_number(found["line"].strip("() "), variables), given)
        lines = _lines(line)
    else:
        lines = _lines(_input([] if path is None else [path], given, files))
    return "".join(f"{_awk_print(line, found['what'], separator, files)}\n" for line in lines)


def _awk_number(text: str, variables: Mapping[str, str]) -> int:
    found = _AWK_LINE.fullmatch(text)
    if found is None:
        raise UnknownValueError
    base = variables.get(found[1], found[1])
    if not base.isdigit():
        raise UnknownValueError
    shift = int(found[3] or 0)
    return int(base) - shift if found[2] == "-" else int(base) + shift


def _awk_print(line: str, what: str | None, separator: str | None, files: Files) -> str:
    if what in (None, "", "$0"):
        return line
    if separator is not None and (len(separator) != 1 or separator in "\\ "):
        raise UnknownValueError
    field = _AWK_FIELD.fullmatch((what or "").strip())
    if field is None:
        raise UnknownValueError
    files.separators.append(separator or "whitespace")
    fields = line.split(separator) if separator else line.split()
    if field[1] == "NF":
        return fields[-1] if fields else ""
    number = int(field[1])
    return line if not number else fields[number - 1] if number <= len(fields) else ""


def _count(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return (count as given, paths) of `-n 5 file`, `-n5`, `-5`."""
    count, paths, rest = "10", [], list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-n", "--lines") and rest:
            count = rest.pop(0)
        elif word.startswith("-n"):
            count = word[2:]
        elif word.startswith("--lines="):
            count = word.partition("=")[2]
        elif re.fullmatch(r"-\d+", word):
            count = word[1:]
        elif word.startswith(("-", "+")):
            raise UnknownValueError
        else:
            paths.append(word)
    if not re.fullmatch(r"[+-]?\d+", count) or len(paths) > 1:
        raise UnknownValueError
    return count, paths


def _head(words: Sequence[str], given: Lines, files: Files) -> str:
    count, paths = _count(words)
    if not count.isdigit():
        raise UnknownValueError
    lines = _LINE.findall(_input(paths, given, files))
    if paths:
        files.picked.append((paths[0], int(count)))
    return "".join(lines[: int(count)])


def _tail(words: Sequence[str], given: Lines, files: Files) -> str:
    count, paths = _count(words)
    lines = _LINE.findall(_input(paths, given, files))
    if count.startswith("+"):
        if paths:
            files.picked.append((paths[0], int(count[1:])))
        return "".join(lines[max(int(count[1:]) - 1, 0) :])
    return "".join(lines[len(lines) - min(abs(int(count)), len(lines)) :])


def _cat(words: Sequence[str], given: Lines, files: Files) -> str:
    if any(word.startswith("-") for word in words):
        raise UnknownValueError
    return _input(words, given, files)


def _cut(words: Sequence[str], given: Lines, files: Files) -> str:
    separator, field, rest = "\t", "", list(words)
    paths = []
    while rest:
        word = rest.pop(0)
        if word[:2] in ("-d", "-f"):
            value = word[2:] or (rest.pop(0) if rest else "")
            separator, field = (value, field) if word[1] == "d" else (separator, value)
        elif word.startswith("--delimiter="):
            separator = word.partition("=")[2]
        elif word.startswith("--fields="):
            field = word.partition("=")[2]
        else:
            paths.append(word)
    if not field.isdigit() or len(separator) != 1 or any(path.startswith("-") for path in paths):
        raise UnknownValueError
    files.separators.append(separator)
    lines = _lines(_input(paths, given, files))
    return "".join(f"{_cut_line(line, separator, int(field))}\n" for line in lines)


def _cut_line(line: str, separator: str, field: int) -> str:
    fields = line.split(separator)
    if len(fields) == 1:
        return line
    return fields[field - 1] if field <= len(fields) else ""


def _tr(words: Sequence[str], given: Lines, files: Files) -> str:
    text = _input([], given, files)
    if len(words) != 2:  # noqa: PLR2004
        raise UnknownValueError
    if words[0] == "-d" and _TR.fullmatch(words[1]):
        return text.replace(_ESCAPES.get(words[1], words[1]), "")
    if not (_TR.fullmatch(words[0]) and _TR.fullmatch(words[1])):
        raise UnknownValueError
    return text.replace(_ESCAPES.get(words[0], words[0]), _ESCAPES.get(words[1], words[1]))


def _wc(words: Sequence[str], given: Lines, files: Files) -> str:
    if list(words) != ["-l"]:
        raise UnknownValueError
    return f"{_input([], given, files).count(chr(10))}\n"


def _seq(words: Sequence[str], _: Lines, __: Files) -> str:
    if not 1 <= len(words) <= 3 or not all(re.fullmatch(r"-?\d{1,9}", word) for word in words):  # noqa: PLR2004
        raise UnknownValueError
    numbers = [int(word) for word in words]
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) > 2 else 1  # noqa: PLR2004
    if not step or abs(numbers[-1] - first) // abs(step) > _MANY:
        raise UnknownValueError
    last = numbers[-1] + (1 if step > 0 else -1)
    return "".join(f"{number}\n" for number in range(first, last, step))


def _expr(words: Sequence[str], _: Lines, __: Files) -> str:
    if len(words) != 3 or not all(re.fullmatch(r"-?\d{1,18}", word) for word in (words[0], words[2])):  # noqa: PLR2004
        raise UnknownValueError
    one, other = int(words[0]), int(words[2])
    if words[1] in ("/", "%") and (not other or one < 0 or other < 0):
        raise UnknownValueError
    made = {"+": one + other, "-": one - other, "*": one * other}.get(words[1])
    if made is None:
        made = one // other if words[1] == "/" else one % other if words[1] == "%" else None
    if made is None:
        raise UnknownValueError
    return f"{made}\n"


def _basename(words: Sequence[str], _: Lines, __: Files) -> str:
    if not 1 <= len(words) <= 2 or words[0].startswith("-"):  # noqa: PLR2004
        raise UnknownValueError
    name = words[0].rstrip("/").rpartition("/")[2]
    suffix = words[1] if len(words) > 1 else ""
    return (name.removesuffix(suffix) if name != suffix else name) + "\n"


def _xargs(words: Sequence[str], given: Lines, files: Files) -> str:
    text = _input([], given, files)
    if words or any(char in text for char in "'\"\\"):
        raise UnknownValueError
    return " ".join(text.split()) + "\n"


COMMANDS: Mapping[str, Run] = {
    "echo": _echo, "printf": _printf, "sed": _sed, "awk": _awk, "gawk": _awk, "mawk": _awk, "head": _head,
    "tail": _tail, "cat": _cat, "cut": _cut, "tr": _tr, "wc": _wc, "seq": _seq, "expr": _expr,
    "basename": _basename, "xargs": _xargs,
}  # fmt: skip

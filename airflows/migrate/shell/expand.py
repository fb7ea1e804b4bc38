"""The values of words: variables, arithmetic, splitting into fields. Pure.

Whatever is not known, or would depend on the file system, is an UnknownValueError; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from airflows.migrate.shell import arithmetic, patterns
from airflows.migrate.shell.arithmetic import UnknownNumberError, UnknownValueError
from airflows.migrate.shell.memory import Listed, Memory
from airflows.migrate.shell.tree import ParseError
from airflows.migrate.shell.words import Inner, Literal, Part, Variable, parts_of, parts_of_heredoc

_DEFAULT = re.compile(r"(:?)([-=?+])(.*)", re.DOTALL)
_SLICE = re.compile(r":\s*([^:]*)(?::(.*))?", re.DOTALL)
_BRACES = re.compile(r"\{([^{}]*)\}")
_SEQUENCE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?", re.ASCII)
_BLANKS = " \t\n"
_MANY = 100_000


class Expander:
    """Expands words with the variables of a memory.

    Args:
        memory: where values are looked up, and where `${NAME:=word}` puts them.
        output_of: returns what a command prints, for `$(…)`.
    """

    def __init__(self, memory: Memory, output_of: Callable[[str], str]) -> None:
        self.memory = memory
        self._output_of = output_of

    # Whole words

    def text(self, word: str) -> str:
        """Return the value of a word that is not split, as on the right of an assignment."""
        parts = parts_of(word)
        _refuse_tilde(parts)
        return "".join(self._joined(part) for part in parts)

    def heredoc(self, text: str) -> str:
        """Return the value of the lines of a here-document."""
        return "".join(self._joined(part) for part in parts_of_heredoc(text))

    def fields(self, word: str) -> list[str]:
        """Return the words that a word becomes."""
        return [field for piece in _braced(word) for field in self._fields(piece)]

    def pattern(self, word: str, *, lazy: bool = False) -> re.Pattern[str]:
        """Return the expression for a word that is a pattern."""
        pieces = [(self._joined(part), part.quoted) for part in parts_of(word)]
        made = patterns.regex(pieces, lazy=lazy)
        if made is None:
            raise UnknownValueError
        return made

    def number(self, text: str) -> int:
        """Return the value of an arithmetic expression."""
        try:
            plain = "".join(self._joined(part) for part in parts_of_heredoc(text.replace('"', "")))
            return arithmetic.evaluate(plain, self)
        except UnknownValueError as exc:
            raise UnknownNumberError from exc

    # Where arithmetic finds its variables

    def number_text(self, name: str, subscript: str | None) -> str:
        """See `arithmetic.Variables`."""
        value = self.memory.element(name, subscript)
        if value is None and self.memory.ends_on_unset:
            raise UnknownValueError
        return "0" if value is None else value

    def set_number(self, name: str, subscript: str | None, value: int) -> None:
        """See `arithmetic.Variables`."""
        self.memory.assign(name, str(value), subscript)

    # Fields

    def _fields(self, word: str) -> Iterator[str]:
        parts = parts_of(word)
        _refuse_tilde(parts)
        current: str | None = None
        for part in parts:
            pieces, splits = self._pieces(part)
            if splits:
                pieces = self._split(pieces[0])
            for number, piece in enumerate(pieces):
                # Between two pieces one field ends and the next begins.
                if number:
                    if current is not None:
                        yield current
                    current = None
                if piece or not splits:
                    current = (current or "") + piece
        if current is not None:
            yield current

    def _pieces(self, part: Part) -> tuple[list[str], bool]:
        """Return (texts, whether the one text is to be split) of a part."""
        if isinstance(part, Variable) and part.quoted and self._is_all(part, "@"):
            # "$@" without arguments is no field at all, which the caller cannot tell from an empty one.
            texts = self._all(part)
            if not texts:
                raise UnknownValueError
            return texts, False
        if isinstance(part, Variable) and not part.quoted and self._is_all(part, "@*"):
            return [" ".join(self._all(part))], True
        text = self._joined(part)
        if isinstance(part, Literal):
            _refuse_glob("" if part.quoted else text)
            return [text], False
        _refuse_glob("" if part.quoted else text)
        return [text], not part.quoted

    def _split(self, text: str) -> list[str]:
        """Return the fields of an expansion, with an empty one where a field ends at its edge."""
        separators = self._separators()
        if separators.strip(_BLANKS):
            raise UnknownValueError
        if not separators or not text:
            return [text]
        return re.split(f"[{re.escape(separators)}]+", text)

    def _separators(self) -> str:
        if "IFS" not in self.memory.values:
            return _BLANKS
        value = self.memory.find("IFS")
        return value if isinstance(value, str) else ""

    # Parts

    def _joined(self, part: Part) -> str:
        if isinstance(part, Literal):
            return part.text
        if isinstance(part, Variable):
            return self._variable(part)
        return self._inner(part)

    def _inner(self, part: Inner) -> str:
        if part.kind == "arithmetic":
            return str(self.number(part.text))
        if part.kind == "command":
            return self._output_of(part.text).rstrip("\n")
        raise UnknownValueError

    def _is_all(self, part: Variable, marks: str) -> bool:
        if part.prefix == "!" and part.subscript in tuple(marks) and not part.op:
            return True
        if part.prefix or part.op:
            return False
        return part.name in tuple(marks) or (part.subscript or "-") in tuple(marks)

    def _all(self, part: Variable) -> list[str]:
        if part.name in ("@", "*"):
            if self.memory.arguments is None:
                raise UnknownValueError
            return self.memory.arguments
        value = self.memory.find(part.name)
        if part.prefix == "!":
            return value.keys() if isinstance(value, Listed) else ["0"]
        if isinstance(value, Listed):
            return value.ordered()
        return [] if value is None else [value]

    def _variable(self, part: Variable) -> str:
        if self._is_all(part, "@*"):
            return " ".join(self._all(part))
        if part.prefix == "#":
            return self._length(part)
        if part.name == "#" and part.is_plain:
            return str(len(self._all(Variable(0, 0, "@", None, "", "", quoted=False))))
        if part.prefix or not (part.name.isalnum() or "_" in part.name):
            raise UnknownValueError
        key = self._key(part)
        default = _DEFAULT.fullmatch(part.op)
        if default is not None:
            return self._defaulted(part, key, default)
        value = self.memory.element(part.name, key)
        if value is None and self.memory.ends_on_unset:
            raise UnknownValueError
        return self._changed(value or "", part.op) if part.op else value or ""

    def _key(self, part: Variable) -> str | None:
        if part.subscript is None:
            return None
        if self.memory.is_associative(part.name):
            return self.text(part.subscript)
        return str(self.number(part.subscript))

    def _length(self, part: Variable) -> str:
        if part.op:
            raise UnknownValueError
        plain = Variable(0, 0, part.name, part.subscript, "", "", quoted=False)
        if part.subscript in ("@", "*"):
            return str(len(self._all(plain)))
        return str(len(self._variable(plain)))

    def _defaulted(self, part: Variable, key: str | None, default: re.Match[str]) -> str:
        colon, sign, word = default.groups()
        value = self.memory.element(part.name, key)
        is_there = bool(value) if colon else value is not None
        if sign == "+":
            return self.text(word) if is_there else ""
        if is_there:
            return value or ""
        if sign == "?":
            raise UnknownValueError
        made = self.text(word)
        if sign == "=":
            self.memory.assign(part.name, made, key)
        return made

    def _changed(self, value: str, op: str) -> str:
        sign = op[:2] if op[:2] in ("##", "%%", "//", "/#", "/%", "^^", ",,") else op[:1]
        rest = op[len(sign) :]
        if sign[0] in "#%":
            return self._trimmed(value, sign, rest)
        if sign[0] == "/":
            return self._replaced(value, sign, rest)
        if sign in ("^^", ",,") and not rest:
            return value.upper() if sign == "^^" else value.lower()
        if sign in ("^", ",") and not rest:
            return (value[:1].upper() if sign == "^" else value[:1].lower()) + value[1:]
        found = _SLICE.fullmatch(op)
        if found is None:
            raise UnknownValueError
        return self._slice(value, found)

    def _slice(self, value: str, found: re.Match[str]) -> str:
        start = self.number(found[1])
        start = max(len(value) + start, 0) if start < 0 else start
        if found[2] is None:
            return value[start:]
        length = self.number(found[2])
        return value[start : start + length] if length >= 0 else value[start : len(value) + length]

    def _trimmed(self, value: str, sign: str, word: str) -> str:
        # The longest match is looked for by trying all of them: values are short.
        pattern = self.pattern(word)
        ends = range(len(value) + 1)
        if sign[0] == "#":
            fits = [end for end in ends if pattern.fullmatch(value[:end])]
            return value[(max(fits) if len(sign) > 1 else min(fits)) :] if fits else value
        fits = [end for end in ends if pattern.fullmatch(value[end:])]
        return value[: (min(fits) if len(sign) > 1 else max(fits))] if fits else value

    def _replaced(self, value: str, sign: str, rest: str) -> str:
        word, _, other = rest.partition("/")
        if not word or "\\" in rest or any(char in rest for char in "'\"$`"):
            raise UnknownValueError
        pattern, new = self.pattern(word), other
        if "&" in new:
            raise UnknownValueError
        if sign == "/#":
            found = pattern.match(value)
            return new + value[found.end() :] if found else value
        if sign == "/%":
            found = re.search(f"(?:{pattern.pattern})\\Z", value, re.DOTALL)
            return value[: found.start()] + new if found else value
        return pattern.sub(lambda _: new, value, count=0 if sign == "//" else 1)


def _refuse_tilde(parts: list[Part]) -> None:
    for number, part in enumerate(parts):
        if not isinstance(part, Literal) or part.quoted:
            continue
        if ":~" in part.text or "=~" in part.text or (not number and part.text.startswith("~")):
            raise UnknownValueError


def _refuse_glob(text: str) -> None:
    if "*" in text or "?" in text or ("[" in text and "]" in text):
        raise UnknownValueError


def _braced(word: str) -> list[str]:
    """Return the words that braces make of one, still as they are written."""
    if "{" not in word:
        return [word]
    try:
        parts = parts_of(word)
    except (ParseError, ValueError) as exc:
        raise UnknownValueError from exc
    for part in parts:
        if not isinstance(part, Literal) or part.quoted or "{" not in part.text:
            continue
        found = _BRACES.search(part.text)
        choices = _choices(found[1]) if found else []
        if found is None or (not choices and ("," in part.text or ".." in part.text)):
            raise UnknownValueError
        if choices:
            before, after = word[: part.start + found.start()], word[part.start + found.end() :]
            made = [each for choice in choices for each in _braced(f"{before}{choice}{after}")]
            if len(made) > _MANY:
                raise UnknownValueError
            return made
    return [word]


def _choices(inside: str) -> list[str]:
    sequence = _SEQUENCE.fullmatch(inside)
    if sequence is None:
        return inside.split(",") if "," in inside else []
    first, last, step = int(sequence[1]), int(sequence[2]), abs(int(sequence[3] or 1)) or 1
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    if len(numbers) > _MANY:
        raise UnknownValueError
    padded = any(re.match(r"-?0\d", text) for text in (sequence[1], sequence[2]))
    width = max(len(sequence[1]), len(sequence[2])) if padded else 0
    return [f"{number:0{width}d}" for number in numbers]

"""Reading YAML: from a text (pure) or a file, with one clear paragraph for whatever is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from airflows.errors import SpecError
from airflows.scalars import shortened
from airflows.yamlio.build import Builder, Dialect
from airflows.yamlio.document import Document

MAX_BYTES: Mapping[Dialect, int] = MappingProxyType({"train": 1 << 20, "sweep": 4 << 20})
"""AI Runtime takes no larger train.yaml; a sweep.yaml may list its points."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse(text: str, *, file: str, dialect: Dialect) -> Document:
    """Read the first YAML document of a text.

    Args:
        text: what the file holds.
        file: its name, for messages.
        dialect: `sweep` refuses unquoted scalars that YAML readers disagree about, `train` takes them as
            AI Runtime's CLI does and adds a notice.

    Raises:
        SpecError: the text is not YAML, repeats a key, or is made to exhaust its reader.
    """
    found = _UNPRINTABLE.search(text)
    if found is not None:
        line = text.count("\n", 0, found.start()) + 1
        message = f"The character {found[0]!a} is not allowed in YAML."
        raise SpecError(message, file=file, line=line, hint="Is this a text file?")
    events: Any = yaml.parse(text, Loader=_LOADER)
    try:
        return Builder(events, file, dialect).document()
    except yaml.YAMLError as exc:
        raise _syntax_error(exc, text, file) from exc
    finally:
        events.close()


def _syntax_error(exc: yaml.YAMLError, text: str, file: str) -> SpecError:
    problem = getattr(exc, "problem", None) or str(exc)
    begin, mark = getattr(exc, "context_mark", None), getattr(exc, "problem_mark", None)
    if getattr(exc, "context", None) == "while scanning a quoted scalar":
        problem, mark = "the text in quotes that begins here does not end", begin
    if mark is None:
        return SpecError(f"This is not valid YAML: {problem}.", file=file)
    lines = text.rstrip("\n").split("\n")
    at = min(mark.line, len(lines) - 1)
    before, after = lines[at][: mark.column], lines[at][mark.column :]
    hint = None
    if after.startswith("\t") and not before.strip():
        problem, hint = "a tab stands in the indentation", "Use spaces."
    elif problem.startswith("mapping values"):
        hint = "A value that holds `: ` needs quotes."
    elif "cannot start any token" in problem or "alphabetic or numeric" in problem:
        hint = "Text that begins with a character of YAML's own needs quotes."
    return SpecError(f"This is not valid YAML: {problem}.", file=file, line=at + 1, hint=hint)


def read(path: Path, *, dialect: Dialect) -> Document:
    """Read a YAML file of at most `MAX_BYTES` bytes; see `parse`.

    Raises:
        SpecError: the file cannot be read, is too large, is not text, or is not YAML.
    """
    file, limit = str(path), MAX_BYTES[dialect]
    data = _bytes(path, file, limit + 1)
    if len(data) > limit:
        message = f"This file is larger than {limit:,} bytes, the most a {dialect}.yaml may have."
        raise SpecError(message, file=file)
    return parse(_decoded(data, file), file=file, dialect=dialect)


def _bytes(path: Path, file: str, count: int) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(count)
    except (OSError, ValueError) as exc:
        raise SpecError(_unreadable(exc), file=file) from exc


def _unreadable(exc: OSError | ValueError) -> str:
    match exc:
        case FileNotFoundError():
            return "There is no such file."
        case IsADirectoryError():
            return "This is a directory, not a file."
        case PermissionError():
            return "There is no permission to read this file."
        case OSError(strerror=str(reason)):
            return f"This file cannot be read: {reason}."
        case _:
            return f"This file cannot be read: {exc}."


def _decoded(data: bytes, file: str) -> str:
    hint = "Save it as UTF-8."
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        message = "This file is UTF-16; YAML is read as UTF-8."
        raise SpecError(message, file=file, hint=hint)
    if b"\0" in data:
        message = "This is a binary file, not YAML."
        raise SpecError(message, file=file)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        message = f"This is not UTF-8 text: it holds the byte 0x{data[exc.start]:02x}."
        line = data.count(b"\n", 0, exc.start) + 1
        raise SpecError(message, file=file, line=line, hint=hint) from exc


def parse_scalar(text: str, *, field: str) -> Any:
    """Return the value of `VALUE` in `--override KEY=VALUE`: any YAML, most often a scalar.

    Raises:
        SpecError: the text is not YAML; the error names `field`.
    """
    return parse_value(text, field=field).value


def parse_value(text: str, *, field: str) -> Document:
    """Return the document of an override's value, with its notices; see `parse_scalar`."""
    try:
        return parse(text, file="--override", dialect="train")
    except SpecError as exc:
        message = f"The value {shortened(text)!r} cannot be read. {exc.message}"
        hint = exc.hint or "Quotes make any value text."
        raise SpecError(message, file="--override", field=field, hint=hint) from exc

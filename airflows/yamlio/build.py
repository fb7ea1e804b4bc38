"""From YAML parser events to a plain tree with marks. Pure.

Events are taken one by one, so that depth, number of values and unfolded aliases are bounded whatever the
text holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NoReturn, TypeVar

import yaml

from airflows.errors import SpecError
from airflows.keys import join_key
from airflows.scalars import Doubt, described, doubt, resolve, shortened
from airflows.yamlio.document import Document, Mark, Notice

Dialect = Literal["train", "sweep"]

MAX_DEPTH = 100
MAX_VALUES = 500_000
MAX_ALIASED = 100_000

MAX_NOTICES = 50
MAX_FIELD_PARTS = 20

_T = TypeVar("_T")

_TAG = "tag:yaml.org,2002:"
_TAG_OF = {int: "int", float: "float", bool: "bool", type(None): "null"}
_MERGE = "<<"


class Builder:
    """Builds the first document of a stream of events.

    Args:
        events: from `yaml.parse`.
        file: name of the file, for messages.
        dialect: see `airflows.yamlio.parse`.
    """

    def __init__(self, events: Iterator[Any], file: str, dialect: Dialect) -> None:
        self._events = events
        self._file = file
        self._dialect = dialect
        self._path: list[str | int] = []
        self._notices: list[Notice] = []
        self._anchors: dict[str, tuple[Any, Mark, int]] = {}
        self._values = 0
        self._aliased = 0

    def document(self) -> Document:
        """Return the first document; raise SpecError or yaml.YAMLError."""
        next(self._events)
        if not isinstance(next(self._events), yaml.DocumentStartEvent):
            return Document(None, self._file, empty=True)
        value, mark = self._node(next(self._events))
        next(self._events)
        self._look_behind()
        return Document(value, self._file, tuple(self._notices), mark=mark)

    def _look_behind(self) -> None:
        """Say so when something follows; it is not read, so it need not be right."""
        try:
            event: Any = next(self._events)
            line = None if isinstance(event, yaml.StreamEndEvent) else event.start_mark.line + 1
        except yaml.MarkedYAMLError as exc:
            line = exc.problem_mark.line + 1 if exc.problem_mark else None
        if line is not None:
            message = "Only the first document is read; another begins here."
            self._notices.append(Notice(message, self._file, line))

    def _field(self) -> str | None:
        shown = join_key(self._path[:MAX_FIELD_PARTS])
        return (f"{shown}..." if len(self._path) > MAX_FIELD_PARTS else shown) or None

    def _fail(self, message: str, line: int, hint: str | None = None) -> NoReturn:
        raise SpecError(message, file=self._file, line=line, field=self._field(), hint=hint)

    def _node(self, event: Any) -> tuple[Any, Mark]:
        line: int = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor, line)
        self._values += 1
        if self._values > MAX_VALUES:
            self._fail(f"The file holds more than {MAX_VALUES:,} values.", line)
        before = self._values + self._aliased
        value, mark = self._content(event, line)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, mark, self._values + self._aliased - before + 1)
        return value, mark

    def _content(self, event: Any, line: int) -> tuple[Any, Mark]:
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, line), Mark(line, event.value)
        if len(self._path) > MAX_DEPTH:
            self._fail(f"Values are nested more than {MAX_DEPTH} deep.", line)
        is_map = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", _TAG + ("map" if is_map else "seq")):
            self._fail(f"The tag {_short(event.tag)} is not supported.", line, "Leave it out.")
        return self._mapping(line) if is_map else self._list(line)

    def _alias(self, anchor: Any, line: int) -> tuple[Any, Mark]:
        known = self._anchors.get(anchor)
        if known is None:
            self._fail(f"*{anchor} refers to no anchor that ends before it.", line)
        value, mark, size = known
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            self._fail(f"Aliases such as *{anchor} unfold to more than {MAX_ALIASED:,} values.", line)
        return _copy(value), Mark(line, mark.text, mark.inside)

    def _list(self, line: int) -> tuple[list[Any], Mark]:
        values: list[Any] = []
        marks: list[Mark] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            self._path.append(len(values))
            value, mark = self._node(event)
            self._path.pop()
            values.append(value)
            marks.append(mark)
        return values, Mark(line, None, marks)

    def _mapping(self, line: int) -> tuple[dict[str, Any], Mark]:
        values: dict[str, Any] = {}
        marks: dict[str, Mark] = {}
        merges: list[tuple[dict[str, Any], dict[str, Mark]]] = []
        seen: dict[str, int] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key, key_line = self._key(event), event.start_mark.line + 1
            self._path.append(key)
            if key in seen:
                where = "in one line" if seen[key] == key_line else f"in lines {seen[key]} and {key_line}"
                self._fail(f"The key {key!r} is given twice, {where}.", key_line, "Remove one of the two.")
            seen[key] = key_line
            value, mark = self._node(next(self._events))
            if key == _MERGE and isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
                merges += self._merged(value, mark, key_line)
            else:
                values[key] = value
                marks[key] = Mark(key_line, mark.text, mark.inside)
            self._path.pop()
        if merges:
            values = {**_first_wins(part for part, _ in merges), **values}
            marks = {**_first_wins(part for _, part in merges), **marks}
        return values, Mark(line, None, marks)

    def _key(self, event: Any) -> str:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            self._values += 1
            if event.anchor is not None:
                self._anchors[event.anchor] = (event.value, Mark(line, event.value), 1)
            return str(event.value)
        mark = self._alias(event.anchor, line)[1] if isinstance(event, yaml.AliasEvent) else None
        if mark is None or mark.text is None:
            self._fail("A key is a list or a mapping; keys are plain text.", line)
        return mark.text

    def _merged(self, value: Any, mark: Mark, line: int) -> Iterator[tuple[dict[str, Any], dict[str, Mark]]]:
        values, marks = (value, mark.inside) if isinstance(value, list) else ([value], [mark])
        for item, inside in zip(values, marks or (), strict=True):
            if not (isinstance(item, dict) and isinstance(inside, Mark) and isinstance(inside.inside, dict)):
                self._fail("`<<` merges mappings, and this is none.", line)
            yield item, inside.inside

    def _scalar(self, event: Any, line: int) -> Any:
        text: str = event.value
        if event.tag not in (None, "!"):
            return self._tagged(event.tag, text, line)
        if not event.implicit[0]:
            return text
        doubtful = doubt(text)
        if doubtful is not None:
            self._report(text, doubtful, line)
        return resolve(text)

    def _tagged(self, tag: str, text: str, line: int) -> Any:
        name, value = tag.removeprefix(_TAG), resolve(text)
        if name == "str":
            return text
        if name == "float" and type(value) is int:
            return float(value)
        if name != _TAG_OF.get(type(value)):
            self._fail(f"{shortened(text)!r} cannot be read as {_short(tag)}.", line, "Leave the tag out.")
        return value

    def _report(self, text: str, doubtful: Doubt, line: int) -> None:
        if self._dialect == "sweep":
            message = (
                f"{shortened(text)} without quotes means different things to YAML readers: {doubtful.others}."
            )
            self._fail(message, line, f"Write {doubtful.fix}.")
        if len(self._notices) == MAX_NOTICES:
            return
        here = f"{shortened(text)} is {described(resolve(text))} here, as to AI Runtime's CLI"
        message = f"{here}, but {doubtful.others}. To be clear, write {doubtful.fix}."
        self._notices.append(Notice(message, self._file, line, self._field()))


def _first_wins(parts: Iterator[dict[str, _T]]) -> dict[str, _T]:
    result: dict[str, _T] = {}
    for part in parts:
        for key, item in part.items():
            result.setdefault(key, item)
    return result


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _short(tag: str) -> str:
    return "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag

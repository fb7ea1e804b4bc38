"""Writing YAML that 1.1 readers (PyYAML), 1.2 readers (ruamel.yaml) and Go's read alike. Pure.

Text is left without quotes only where every reader takes it for text; floats have a dot, because PyYAML
takes `1e-05` for text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import yaml

from airflows.errors import SpecError
from airflows.scalars import go_text

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_WIDE = 1 << 30
_NUMBER_LIKE = re.compile(r"[-+.]?\d|[-+]\.|\.(?!\.?/)", re.ASCII)
_WORDS = frozenset(
    {"", "~", "=", "<<", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf"}
)

_IMPLICIT = (True, False)
_QUOTED = (False, True)
_START = (yaml.StreamStartEvent(), yaml.DocumentStartEvent(explicit=False))
_END = (yaml.DocumentEndEvent(explicit=False), yaml.StreamEndEvent())
_MAP, _MAP_END = yaml.MappingStartEvent(None, None, True, flow_style=False), yaml.MappingEndEvent()
_LIST, _LIST_END = yaml.SequenceStartEvent(None, None, True, flow_style=False), yaml.SequenceEndEvent()


def dump(value: Any) -> str:
    """Return block YAML of a tree of mappings, lists and scalars; keys keep their order.

    Raises:
        SpecError: something in the tree has no place in YAML, or it is nested without end.
    """
    events: list[Any] = [*_START]
    try:
        _add(value, events)
        events += _END
        return str(yaml.emit(events, Dumper=_DUMPER, allow_unicode=True, width=_WIDE))
    except RecursionError as exc:
        message = "A value is nested too deeply to be written as YAML."
        raise SpecError(message) from exc
    except UnicodeEncodeError as exc:
        message = f"The text {exc.object!r} holds half a character and cannot be written as YAML."
        raise SpecError(message) from exc


def _add(value: Any, events: list[Any]) -> None:
    if isinstance(value, str):
        events.append(_text(str.__str__(value)))
    elif isinstance(value, Mapping):
        events.append(_MAP)
        for key, item in value.items():
            events.append(_text(key if isinstance(key, str) else go_text(key), key=True))
            _add(item, events)
        events.append(_MAP_END)
    elif isinstance(value, (list, tuple)):
        events.append(_LIST)
        for item in value:
            _add(item, events)
        events.append(_LIST_END)
    else:
        events.append(yaml.ScalarEvent(None, None, _IMPLICIT, _plain(value)))


def _text(text: str, *, key: bool = False) -> Any:
    if text.isprintable():
        if text.lower() in _WORDS or _NUMBER_LIKE.match(text):
            return yaml.ScalarEvent(None, None, _QUOTED, text, style="'")
        return yaml.ScalarEvent(None, None, (True, True), text)
    style = "|" if not key and _is_block(text) else '"'
    return yaml.ScalarEvent(None, None, _QUOTED, text, style=style)


def _is_block(text: str) -> bool:
    """Whether all readers agree on the text as a literal block."""
    lines = text.split("\n")
    plain = all(line.isprintable() and not line.endswith(" ") for line in lines)
    return plain and not lines[0].startswith(" ") and lines[0] != "" and not text.endswith("\n\n")


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return _float(value)
    message = f"A {type(value).__name__} cannot be written as YAML."
    raise SpecError(message)


def _float(value: float) -> str:
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    text = float.__repr__(value)
    return text if "." in text else text.replace("e", ".0e")

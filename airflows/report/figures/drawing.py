"""What every figure is made of: colours, axes, text, and numbers short enough for a file. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflows.hiding import public_text
from airflows.ids import canonical_json
from airflows.report.facts import Parameter
from airflows.scores import is_sound

# Readable on white and on dark, and told apart by those who see fewer colours.
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#3b7dd8", "#d97706", "#14966b", "#d6455d", "#8b6fd6", "#8a94a6"
STATE_COLOURS = {
    "succeeded": GREEN,
    "failed": RED,
    "stopped": ORANGE,
    "cancelled": GREY,
    "running": BLUE,
}
# From the best to the worst.
SCALE = ("#0f5f8f", "#2a86b4", "#5aa9b8", "#93c3a9", "#c9cf8e", "#e5b567", "#d98a4e")
COLOUR_SCALE = [[place / (len(SCALE) - 1), colour] for place, colour in enumerate(SCALE)]
_DIGITS = 6
_TEXT_CHARS = 60
_HOVER_CHARS = 240
_LARGEST = 10**300
_FEW_DECADES = 1.5

Trace = dict[str, Any]
Layout = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot, or why there is none.

    Attributes:
        name: a word, unique in a report.
        title: for people.
        data: plotly's traces.
        layout: plotly's layout.
        summary: what it shows, in one or two sentences for those who do not see it.
        note: what was left out, and how to read it.
        why_not: why nothing is drawn, empty where something is.
    """

    name: str
    title: str
    data: Sequence[Trace] = ()
    layout: Layout = field(default_factory=dict)
    summary: str = ""
    note: str = ""
    why_not: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return what plotly takes."""
        return {"data": list(self.data), "layout": dict(self.layout)}


def rounded(value: float | None) -> float | None:
    """Return a number with the digits that a screen shows; None for what cannot be drawn."""
    return float(f"{value:.{_DIGITS}g}") if value is not None and is_sound(value) else None


def number_words(value: float | None) -> str:
    """Return a number for people."""
    return "none" if value is None else f"{value:.{_DIGITS}g}"


def shown(value: Any, most: int = _TEXT_CHARS) -> str:
    """Return any value as text, cut to a length, without the secrets in it."""
    text = value if isinstance(value, str) else canonical_json(value)
    text = public_text(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def as_markup(text: str) -> str:
    """Return a text that plotly shows as it is: it takes some HTML for formatting."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def label(value: Any, most: int = _TEXT_CHARS) -> str:
    """Return any value as a text that plotly shows as it is."""
    return as_markup(shown(value, most))


def point_text(number: int, overrides: Mapping[str, Any], value: float | None = None) -> str:
    """Return what is said of a point under the mouse."""
    worth = "" if value is None else f"<br>{number_words(value)}"
    told = ", ".join(f"{key.removeprefix('parameters.')}={shown(each)}" for key, each in overrides.items())
    return f"trial {number}{worth}" + (f"<br>{label(told, _HOVER_CHARS)}" if told else "")


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis."""
    return {"title": {"text": label(title)}, "automargin": True, "zeroline": False, **more}


def layout(height: int, **more: Any) -> Layout:
    """Return a layout; the colours of text and lines are those of the page."""
    return {
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 16, "b": 48},
        "hovermode": "closest",
        "hoverlabel": {"align": "left"},
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        **more,
    }


def ordinal(name: str, place: int) -> str:
    """Return the name of an axis: `x`, `x2`, `x3`."""
    return name if place == 0 else f"{name}{place + 1}"


def axis_key(name: str, place: int) -> str:
    """Return its key in a layout: `xaxis`, `xaxis2`."""
    return f"{name}axis" if place == 0 else f"{name}axis{place + 1}"


def is_number(value: Any) -> bool:
    """Whether a value has a place on an axis of numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= _LARGEST and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Positions:
    """Where the values of a parameter lie on its axis.

    Attributes:
        parameter: whose.
        is_numeric: all values are numbers.
        is_log: and looked at by their logarithms.
        categories: of other values the texts, in order.
        decades: how far the logarithms reach.
    """

    parameter: Parameter
    is_numeric: bool
    is_log: bool
    categories: Sequence[str] = ()
    decades: float = 0.0

    @classmethod
    def of(cls, parameter: Parameter, points: Iterable[Mapping[str, Any]]) -> Positions:
        """Return the axis of a parameter on which these points lie."""
        values = [parameter.value(point) for point in points]
        there = [value for value in values if value is not None]
        if there and all(map(is_number, there)):
            is_log = parameter.is_log and min(there) > 0
            decades = math.log10(max(there)) - math.log10(min(there)) if is_log else 0.0
            return cls(parameter, True, is_log, decades=decades)
        # Numbers among words keep their order, words theirs.
        order = sorted(there, key=lambda value: (not is_number(value), value if is_number(value) else 0))
        words = {shown(value): is_number(value) for value in order}
        numbers = [word for word, is_one in words.items() if is_one]
        return cls(parameter, False, False, numbers + sorted(w for w, is_one in words.items() if not is_one))

    def value(self, overrides: Mapping[str, Any]) -> Any:
        """Return what is drawn for a point: a number, the text of a category, or None where it is absent."""
        value = self.parameter.value(overrides)
        if value is None:
            return None
        return value if self.is_numeric else label(value)

    def place(self, overrides: Mapping[str, Any]) -> float | None:
        """Return the same as a distance along the axis, categories one apart."""
        value = self.parameter.value(overrides)
        if value is None:
            return None
        if not self.is_numeric:
            return float(self.categories.index(shown(value)))
        return math.log10(value) if self.is_log else float(value)

    def axis(self, **more: Any) -> dict[str, Any]:
        """Return plotly's axis."""
        if self.is_log:
            # A tick for each power of ten, where there are some.
            ticks = {"dtick": 1, "exponentformat": "power"} if self.decades > _FEW_DECADES else {}
            return axis(self.parameter.name, type="log", **ticks, **more)
        if self.is_numeric:
            return axis(self.parameter.name, **more)
        ordered = [as_markup(word) for word in self.categories]
        order = {"categoryorder": "array", "categoryarray": ordered}
        return axis(self.parameter.name, type="category", **order, **more)

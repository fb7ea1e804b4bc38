"""From pydantic's errors about a sweep.yaml to ours: file, line, key, the nearest known key. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from airflows.errors import SpecError
from airflows.keys import nearest
from airflows.place import Place
from airflows.scalars import described
from airflows.spec import SweepSpec

_KINDS: Mapping[str, str] = {
    "int": "a whole number",
    "float": "a number",
    "string": "text",
    "bool": "true or false",
    "dict": "a mapping",
    "model": "a mapping",
    "list": "a list",
}
_NAME_FORM = "A name is a letter or digit, then up to 63 letters, digits, `_` and `-`."
_BOUNDS: Mapping[str, str] = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "above {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "below {lt}",
}


def checked_spec(tree: Mapping[str, Any], place: Place) -> SweepSpec:
    """Return the spec of a sweep file's tree.

    Raises:
        SpecError: the first thing that is wrong, in the order of the file; the others with it.
    """
    try:
        return SweepSpec.model_validate(tree)
    except ValidationError as exc:
        errors = [_error(detail, place) for detail in exc.errors(include_url=False)]
        first, *others = sorted(errors, key=lambda error: error.line or 0)
        first.others = tuple(others)
        raise first from exc


def _error(detail: ErrorDetails, place: Place) -> SpecError:
    message, hint = _words(detail, place)
    return place.at(*detail["loc"]).error(message, hint or None)


def _words(detail: ErrorDetails, place: Place) -> tuple[str, str]:
    kind, given, loc = detail["type"], detail["input"], detail["loc"]
    context = detail.get("ctx", {})
    name = str(loc[-1]) if loc else "The file"
    if kind == "missing" and loc[-1] == "goal":
        return "goal is missing.", "Write goal: minimize or goal: maximize; there is no default."
    simple = {
        "missing": f"{name} is missing.",
        "string_too_short": f"{name} is empty.",
        "too_short": f"{name} is empty.",
        "value_error": str(context.get("error")),
    }
    if kind in simple:
        return simple[kind], ""
    if kind == "extra_forbidden":
        where = place.at(*loc[:-1]).field or "sweep.yaml"
        return f"{name!r} is not a key of {where}.", _suggestion(loc)
    if kind == "string_pattern_mismatch":
        return f"{given!r} is no name for a sweep.", _NAME_FORM
    if kind == "literal_error":
        return _not_among(given, str(context["expected"]))
    return _wrong_value(detail, given, context)


def _wrong_value(detail: ErrorDetails, given: object, context: Mapping[str, Any]) -> tuple[str, str]:
    kind = detail["type"]
    if kind in _BOUNDS:
        return f"{given} is not {_BOUNDS[kind].format(**context)}.", ""
    wanted = _KINDS.get(kind.partition("_")[0])
    if wanted is None:
        return f"{detail['msg']}.", ""
    return f"This takes {wanted}, not {described(given)}.", _unquote(given, wanted)


def _unquote(given: object, wanted: str) -> str:
    is_number = isinstance(given, str) and given.strip().lstrip("+-").replace(".", "", 1).isdigit()
    return "Leave out the quotes." if is_number and "number" in wanted else ""


def _not_among(given: object, expected: str) -> tuple[str, str]:
    words = expected.replace(" or ", ", ").replace("'", "").split(", ")
    close = nearest(given, words) if isinstance(given, str) else None
    return f"{given!r} is none of {', '.join(words)}.", f"Did you mean {close}?" if close else ""


def _suggestion(loc: tuple[int | str, ...]) -> str:
    """Return what to write instead of an unknown key: its nearest sibling, or the same key elsewhere."""
    model = _model_at(loc[:-1])
    above = ".".join(str(part) for part in loc[:-1] if isinstance(part, str))
    siblings = {name: f"{above}.{name}" if above else name for name in model.model_fields}
    elsewhere = {name: f"{part}.{name}" for part, inner in _parts().items() for name in inner.model_fields}
    for names in (siblings, elsewhere | {name: name for name in SweepSpec.model_fields}):
        close = nearest(str(loc[-1]), names)
        if close is not None:
            return f"Did you mean {names[close]}?"
    return f"Keys there: {', '.join(siblings)}."


def _model_at(loc: tuple[int | str, ...]) -> type[BaseModel]:
    return _parts().get(str(loc[0]), SweepSpec) if loc else SweepSpec


def _parts() -> dict[str, type[BaseModel]]:
    """Return the model of each key of sweep.yaml that has one."""
    found: dict[str, type[BaseModel]] = {}
    for name, field in SweepSpec.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found[name] = kind
    return found

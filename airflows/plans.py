"""A plan: all that decides what a sweep will run, with a hash over it, and in what two plans differ. Pure.

Secrets are in it as references only; passwords in addresses, and what an environment variable calls a secret,
as `***` and a digest: another password is another plan.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflows.addresses import is_secret_name, seal, sealed
from airflows.errors import SpecError
from airflows.ids import canonical_json, digest
from airflows.sweepfile import LoadedSweep

FORMAT = 1
LISTED = 10_000
"""Points that are listed. What comes behind them follows from the space, which the hash covers too."""

# These are in the definition of the sweep, in a form that does not depend on how they are written.
_DEFINED = frozenset({"base", "overrides", "space", "include", "exclude", "search", "replicates"})
_CAUSES_OF_POINTS = frozenset({"base", "space", "include", "exclude", "search"})
_VARIABLES = "env_variables"
_FEW = 5
_TEXT_CHARS = 60


@dataclass(frozen=True, slots=True)
class Plan:
    """What a sweep will run.

    Attributes:
        parts: what decides it, by the keys of the sweep file; with `code`, and `directory` where the command
            runs in one that is not a copy.
        points: the overrides of the first 10,000 points, in order.
    """

    parts: Mapping[str, Any]
    points: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, sweep: LoadedSweep, *, code: str, directory: str = "", mlflow: str = "") -> Plan:
        """Return the plan of a sweep.

        Args:
            sweep: as it was loaded.
            code: digest of its code, empty where the base names none.
            directory: where the command runs, empty where that is a copy of the code.
            mlflow: address of the MLflow that the environment names, empty where the file decides it.
        """
        definition = {
            name: part for name, part in sweep.definition.items() if name not in {"objectives", "stop"}
        }
        definition["space"] = [
            [keys, _sealed(domain) if any(map(_is_secret_variable, keys)) else domain, clauses]
            for keys, domain, clauses in definition["space"]
        ]
        points = [_kept(p.overrides) for p in itertools.islice(sweep.expansion.points(), LISTED)]
        parts = {
            **_kept(sweep.spec.model_dump(exclude=set(_DEFINED))),
            **_kept(definition),
            "code": code,
            "directory": directory,
            "mlflow": _kept(mlflow),
        }
        return cls({**parts, "points": {"count": sweep.expansion.count(), "digest": digest(points)}}, points)

    @classmethod
    def from_document(cls, document: Mapping[str, Any], *, file: str) -> Plan:
        """Return the plan in a plan.json.

        Raises:
            SpecError: it is none, is of another version, or was changed after it was made.
        """
        made = document.get("plan")
        if made != FORMAT:
            what = "no plan" if made is None else f"a plan of format {made}, and this airflows knows {FORMAT}"
            message = f"this is {what}."
            raise SpecError(message, file=file, hint="Make one with: airflows plan sweep.yaml")
        try:
            plan = cls(document["decides"], document["points"])
            is_whole = plan.hash == document["hash"] and digest(plan.points) == plan.parts["points"]["digest"]
        except (KeyError, TypeError):
            is_whole = False
        if not is_whole:
            message = "it was changed after it was made: its hash is not that of what it holds."
            raise SpecError(message, file=file, hint="Make it anew with: airflows plan sweep.yaml")
        return plan

    @property
    def hash(self) -> str:
        """64 hex digits over all that decides what runs."""
        return digest({"plan": FORMAT, **self.parts})

    def to_document(self) -> dict[str, Any]:
        """Return it as plan.json has it; `from_document` takes it."""
        return {
            "plan": FORMAT,
            "hash": self.hash,
            "decides": dict(self.parts),
            "points": [dict(overrides) for overrides in self.points],
        }


def plan_differences(before: Plan, now: Plan) -> list[str]:
    """Return in what two plans differ, a phrase for each part; the points only where nothing else tells why.

    Of the code only that it differs is known here.
    """
    names = [*before.parts, *(name for name in now.parts if name not in before.parts)]
    changed = [name for name in names if not _is_same(before.parts.get(name), now.parts.get(name))]
    if _CAUSES_OF_POINTS & set(changed):
        changed = [name for name in changed if name != "points"]
    return [_words(name, before, now) for name in changed]


def _words(name: str, before: Plan, now: Plan) -> str:
    if name == "code":
        return "code"
    if name == "points":
        return f"points: {_points_words(before, now)}"
    one, other = (_shown_part(name, plan.parts.get(name)) for plan in (before, now))
    changes = [_change_words(*change) for change in changed_leaves({name: one}, {name: other})]
    if not changes:
        return f"{name}: the same in another order"
    hidden_count = len(changes) - _FEW
    return "; ".join(changes[:_FEW]) + (f"; and {hidden_count} more of {name}" if hidden_count > 0 else "")


def _shown_part(name: str, part: Any) -> Any:
    """Return a part so that its changes can be told key by key."""
    if name == "space" and part is not None:
        return {", ".join(keys): {"": domain, "when": clauses} for keys, domain, clauses in part}
    return part


def _change_words(key: str, old: Any, new: Any) -> str:
    return f"{key} was {_text(old)}, and is {_text(new)}"


def _text(value: Any) -> str:
    text = "not there" if value is None else canonical_json(value)
    return text if len(text) <= _TEXT_CHARS else f"{text[: _TEXT_CHARS - 1]}…"


def _points_words(before: Plan, now: Plan) -> str:
    one, other = (plan.parts["points"]["count"] for plan in (before, now))
    if one != other:
        return f"there were {one}, and are {other}"
    pairs = enumerate(zip(before.points, now.points, strict=False))
    first = next((at for at, (old, new) in pairs if not _is_same(old, new)), None)
    if first is None:
        return "others"
    return f"point {first} was {_text(before.points[first])}, and is {_text(now.points[first])}"


def changed_leaves(before: Any, now: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (dotted key, old, new) of what differs between two trees; None for what is not there.

    Example:
        >>> list(changed_leaves({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}))
        [('a.c', 2, 3)]
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in (*before, *(name for name in now if name not in before)):
            below = ".".join(filter(None, [key, name]))
            yield from changed_leaves(before.get(name), now.get(name), below)
    elif not _is_same(before, now):
        yield key, before, now


def _is_same(one: Any, other: Any) -> bool:
    return canonical_json(one) == canonical_json(other)


def _kept(value: Any) -> Any:
    """Return a tree as JSON keeps it and gives it back, with a seal in place of each secret."""
    match value:
        case str():
            return sealed(value)
        case float() if not math.isfinite(value):
            return repr(value)
        case None | bool() | int() | float():
            return value
        case Mapping():
            return {str(key): _kept_at(str(key), item) for key, item in value.items()}
        case list() | tuple():
            return [_kept(item) for item in value]
        case _:
            return str(value)


def _kept_at(key: str, value: Any) -> Any:
    if key == _VARIABLES and isinstance(value, Mapping):
        return {
            str(name): _sealed(item) if is_secret_name(str(name)) else _kept(item)
            for name, item in value.items()
        }
    return _sealed(value) if _is_secret_variable(key) else _kept(value)


def _is_secret_variable(key: str) -> bool:
    """Whether a dotted key is that of an environment variable that is a secret by its name."""
    place, _, name = key.partition(".")
    return place == _VARIABLES and is_secret_name(name)


def _sealed(value: Any) -> Any:
    """Return a tree with a seal in place of each of its values."""
    match value:
        case Mapping():
            return {str(key): _sealed(item) for key, item in value.items()}
        case list() | tuple():
            return [_sealed(item) for item in value]
        case None:
            return None
        case _:
            return seal(str(value))

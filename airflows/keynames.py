"""Override keys as people write them in a sweep.yaml, checked against the schema and the base. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflows.errors import SpecError
from airflows.keys import MISSING, effective, get_key, join_key, nearest, split_key
from airflows.place import Place
from airflows.train import check_key
from airflows.yamlio import Notice

FREE_FORM = ("parameters", "env_variables", "secrets")
OURS: Mapping[str, str] = {
    "experiment_name": "each value would make an MLflow experiment of its own; see tracking.experiment",
    "mlflow_experiment_directory": "the runs of a sweep are in one MLflow experiment",
    "mlflow_run_name": "each attempt's run is named after it",
    "idempotency_token": "each attempt has its own",
    "permissions": "they are the same for a whole sweep",
}


@dataclass(slots=True)
class KeyNames:
    """Checks the keys of one sweep.

    Attributes:
        base: the base's tree, overrides applied.
        strict: a key of a free-form map that the base lacks is an error.
        replicate_key: the key that tells replicates apart, empty for none.
        notices: what people should know, as it is found.
    """

    base: Mapping[str, Any]
    strict: bool = False
    replicate_key: str = ""
    notices: list[Notice] = field(default_factory=list)
    _warned: set[str] = field(default_factory=set)

    def coupled(self, text: str, place: Place) -> tuple[str, ...]:
        """Return the keys of `a, b`, most often one."""
        parts = [part.strip() for part in _split(text)]
        if not all(parts):
            hint = "Coupled keys are separated by commas: parameters.a, parameters.b."
            place.fail(f"{text!r} is not a key: a part of it is empty.", hint)
        return tuple(self._checked(part, place) for part in parts)

    def single(self, text: str, place: Place) -> str:
        """Return the canonical form of one key."""
        keys = self.coupled(text, place)
        if len(keys) > 1:
            place.fail(f"{text!r} names several keys.", "Here each key has a line of its own.")
        return keys[0]

    def _checked(self, text: str, place: Place) -> str:
        try:
            return join_key(check_key(text))
        except SpecError as exc:
            raise place.error(exc.message, self._inside(text) or exc.hint) from exc

    def _inside(self, text: str) -> str:
        """Return the advice to write a key with what it stands in; empty where the base has none like it."""
        parts = split_key(text)
        for above in FREE_FORM:
            if get_key(self.base, (above, *parts)) is not MISSING:
                return f"Did you mean {join_key((above, *parts))}?"
        return ""

    def check_swept(self, key: str, place: Place) -> None:
        """Check that trials may differ in the key.

        Raises:
            SpecError: they may not, or the base has something in the way.
        """
        top = split_key(key)[0]
        if top in OURS:
            place.fail(f"{top} cannot be swept: {OURS[top]}.")
        self.refuse_replicate_key(key, place)
        self.check_set(key, place)

    def refuse_replicate_key(self, key: str, place: Place) -> None:
        """Check that the key is not what tells replicates apart, nor a part of it."""
        parts, theirs = split_key(key), split_key(self.replicate_key or "-")
        shorter = min(len(parts), len(theirs))
        if parts[:shorter] == theirs[:shorter]:
            place.fail(f"{key} is taken: replicates differ in {self.replicate_key}.")

    def check_set(self, key: str, place: Place) -> None:
        """Check that the base can be overridden there, and warn where that adds a key.

        Raises:
            SpecError: it cannot; or it would add a key, and `strict` is set.
        """
        try:
            effective(self.base, {key: None}, strict=True)
        except SpecError as exc:
            raise place.error(exc.message, exc.hint) from exc
        parts = split_key(key)
        if parts[0] not in FREE_FORM or len(parts) == 1 or get_key(self.base, parts) is not MISSING:
            return
        near = nearest_key(key, self.base_keys(parts[0]))
        hint = f"Did you mean {near}?" if near else ""
        message = f"The base has no {key}."
        if self.strict:
            place.fail(message, f"{hint} With `strict: true` keys must be in the base.".strip())
        if key not in self._warned:
            self._warned.add(key)
            self.notices.append(place.notice(f"{message} {hint or 'It is added.'}"))

    def base_keys(self, *tops: str) -> Iterator[str]:
        """Yield the dotted keys that the base has, all of them or those below `tops`."""
        tree = {top: self.base[top] for top in tops if top in self.base} if tops else self.base
        yield from _dotted(tree, ())


def nearest_key(key: str, known: Iterable[str]) -> str | None:
    """Return the known dotted key that was most likely meant: with another last part, else another middle."""
    *above, last = split_key(key)
    by_last: dict[str, str] = {}
    by_rest: dict[str, str] = {}
    for other in known:
        *theirs, end = split_key(other)
        if theirs == above:
            by_last[end] = other
        if theirs[:1] == above[:1]:
            by_rest[join_key([*theirs[1:], end])] = other
    close = nearest(last, by_last)
    if close is not None:
        return by_last[close]
    close = nearest(join_key([*above[1:], last]), by_rest)
    return None if close is None else by_rest[close]


class Claimed:
    """Keys that are set together, none of which may be a part of another."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, ...], str] = {}
        self._above: dict[tuple[str, ...], str] = {}

    def __contains__(self, key: str) -> bool:
        return split_key(key) in self._keys

    def add(self, key: str, place: Place) -> None:
        """Claim a key.

        Raises:
            SpecError: it is a part of one that is there, or the other way round.
        """
        parts = split_key(key)
        outer = next(
            (self._keys[parts[:end]] for end in range(1, len(parts)) if parts[:end] in self._keys), ""
        )
        inner = self._above.get(parts, "")
        if outer or inner:
            one, other = (key, outer) if outer else (inner, key)
            place.fail(f"{one} is a part of {other}: one point cannot set both.")
        self._keys[parts] = key
        for end in range(1, len(parts)):
            self._above[parts[:end]] = key


def _split(text: str) -> Iterator[str]:
    """Yield what stands between commas, apart from commas in quotes."""
    quote, before, start = "", ".", 0
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"" and before in ".,":
            quote = char
        elif char == ",":
            yield text[start:at]
            start = at + 1
        before = before if char == " " else char
    yield text[start:]


def _dotted(tree: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[str]:
    for name, value in tree.items():
        if above:
            yield join_key((*above, name))
        if isinstance(value, Mapping):
            yield from _dotted(value, (*above, name))
        elif not above:
            yield join_key((name,))

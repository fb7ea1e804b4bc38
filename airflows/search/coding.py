"""The axes of a space as numbers, which is how samplers see them, and back. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from airflows.axes import Axis, Overrides, Space
from airflows.domains import Interval, Listed, Number, likeness
from airflows.errors import SpecError
from airflows.keys import MISSING, get_key, split_key


@dataclass(frozen=True, slots=True)
class Parameter:
    """An axis with more than one value.

    Attributes:
        name: its keys.
        axis: position of the axis.
        kind: `float` and `int` lie between the bounds; a `choice` has no order.
        low: lower bound, included.
        high: upper bound, included.
        is_log: even in logarithm.
        order: of a list of numbers in order, the positions of its values.
    """

    name: str
    axis: int
    kind: Literal["float", "int", "choice"]
    low: Number
    high: Number
    is_log: bool = False
    order: tuple[int, ...] = ()


class Coding:
    """Translates between a point's overrides and the numbers of its parameters.

    Args:
        space: what points are chosen from.
        base: the train.yaml, whose values a point has where it overrides nothing.
        ordered: lists of numbers are taken in their order, for a method that knows numbers only.
    """

    def __init__(self, space: Space, base: Mapping[str, Any], *, ordered: bool = False) -> None:
        self._space = space
        self._base = base
        made = [_parameter(at, axis, ordered=ordered) for at, axis in enumerate(space.axes)]
        self._parameters = {each.axis: each for each in made if each is not None}
        self._keys = {key for axis in space.axes for key in axis.keys}

    @property
    def parameters(self) -> Sequence[Parameter]:
        """All of them, each after those that decide whether it counts."""
        return [self._parameters[at] for at in self._space.order if at in self._parameters]

    @property
    def is_conditional(self) -> bool:
        """Whether some of them count in some points only."""
        return any(clause.axis is not None for axis in self._space.axes for clause in axis.clauses)

    def walk(self) -> Walk:
        """Return a point in the making."""
        return Walk(self._space, self._parameters)

    def encode(self, overrides: Mapping[str, Any]) -> dict[str, Number] | None:
        """Return the number of each parameter that counts in a point; None where it is no point of the space.

        A key that it does not override has the base's value.
        """
        return self._encoded(overrides, self._base)

    def translated(self, overrides: Mapping[str, Any], base: Mapping[str, Any]) -> Overrides | None:
        """Return a point of another sweep as one of this space; None where it is none.

        Args:
            overrides: of the point. A key that is not in the space has to have this sweep's value.
            base: the train.yaml of the other sweep.
        """
        numbers = self._encoded(overrides, base)
        if numbers is None:
            return None
        walk = self.walk()
        while (parameter := walk.following()) is not None:
            walk.choose(numbers[parameter.name])
        return walk.overrides

    def _encoded(self, overrides: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Number] | None:
        others = [key for key in overrides if key not in self._keys]
        if any(likeness(overrides[key]) != _likeness_in(self._base, key) for key in others):
            return None
        found: dict[str, Number] = {}
        whole = dict(overrides)
        for at in self._space.order:
            axis = self._space.axes[at]
            if not self._space.is_active(axis, whole):
                if any(key in overrides for key in axis.keys):
                    return None
                continue
            for key in axis.keys:
                if key not in whole and (value := get_key(base, split_key(key))) is not MISSING:
                    whole[key] = value
            if not axis.holds(whole):
                return None
            if at in self._parameters:
                found[self._parameters[at].name] = _number(self._parameters[at], axis, whole)
        return found


class Walk:
    """A point in the making: `following` parameters are asked for until there is none."""

    def __init__(self, space: Space, parameters: Mapping[int, Parameter]) -> None:
        self._space = space
        self._parameters = parameters
        self._left = list(reversed(space.order))
        self._chosen: dict[int, Overrides] = {}
        self._made: Overrides = {}

    def following(self) -> Parameter | None:
        """Return the next parameter that counts, None when the point is whole."""
        while self._left:
            at = self._left[-1]
            axis = self._space.axes[at]
            if not self._space.is_active(axis, self._made):
                self._left.pop()
            elif at in self._parameters:
                return self._parameters[at]
            else:
                self._choose(at, _only(axis))
        return None

    def choose(self, number: Number) -> None:
        """Give the following parameter its number."""
        at = self._left[-1]
        self._choose(at, _value(self._parameters[at], self._space.axes[at], number))

    @property
    def overrides(self) -> Overrides:
        """What was chosen, in the order of the file."""
        return {key: value for at in sorted(self._chosen) for key, value in self._chosen[at].items()}

    def _choose(self, at: int, value: Any) -> None:
        self._left.pop()
        self._chosen[at] = self._space.axes[at].overrides(value)
        self._made |= self._chosen[at]


def require_numbers(space: Space, method: str) -> None:
    """Check that a method which knows numbers only can choose from a space.

    Raises:
        SpecError: it cannot; the field is the axis's.
    """
    for axis in space.axes:
        field = f"space.{', '.join(axis.keys)}"
        if any(clause.axis is not None for clause in axis.clauses):
            message = f"search.method {method} cannot choose from a space with conditions."
            raise SpecError(message, field=field, hint="Use tpe, or leave the condition out.")
        if isinstance(axis.domain, Listed) and len(axis.domain) > 1 and not _are_numbers(axis.domain):
            message = f"search.method {method} knows numbers only, and these values are none."
            raise SpecError(message, field=field, hint="Use tpe, or fix the key under overrides.")


def _parameter(at: int, axis: Axis, *, ordered: bool) -> Parameter | None:
    name, domain = ", ".join(axis.keys), axis.domain
    if isinstance(domain, Interval):
        kind: Literal["float", "int"] = "int" if domain.is_whole else "float"
        return Parameter(name, at, kind, domain.low, domain.high, domain.is_log)
    if len(domain) == 1:
        return None
    if not isinstance(domain, Listed):
        return Parameter(name, at, "int", 0, len(domain) - 1)
    if ordered and _are_numbers(domain):
        order = tuple(sorted(range(len(domain)), key=lambda place: float(domain[place])))
        return Parameter(name, at, "int", 0, len(domain) - 1, order=order)
    return Parameter(name, at, "choice", 0, len(domain) - 1)


def _are_numbers(domain: Listed) -> bool:
    return not domain.is_coupled and all(type(value) in {int, float} for value in domain.values)


def _value(parameter: Parameter, axis: Axis, number: Number) -> Any:
    if isinstance(axis.domain, Interval):
        return axis.domain.at(number)
    place = min(max(round(number), 0), len(axis.domain) - 1)
    return axis.domain[parameter.order[place] if parameter.order else place]


def _number(parameter: Parameter, axis: Axis, overrides: Mapping[str, Any]) -> Number:
    if isinstance(axis.domain, Interval):
        return axis.domain.number(overrides[axis.keys[0]])
    place = min(axis.places(overrides))
    return parameter.order.index(place) if parameter.order else place


def _only(axis: Axis) -> Any:
    domain = axis.domain
    return domain.low if isinstance(domain, Interval) else domain[0]


def _likeness_in(base: Mapping[str, Any], key: str) -> str | None:
    value = get_key(base, split_key(key))
    return None if value is MISSING else likeness(value)

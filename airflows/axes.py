"""What a space consists of: axes with their conditions, rows to include, rules to exclude. Pure.

How points are chosen from it is the business of `airflows.search`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflows import ids
from airflows.domains import Domain, Interval, Listed, likeness
from airflows.keys import MISSING

Overrides = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a sweep: what its trials override in the base.

    Attributes:
        index: position in the order of the expansion, from 0.
        overrides: override key to value; a key that is not active is absent.
    """

    index: int
    overrides: Overrides

    @property
    def digest(self) -> str:
        """Digest of the canonical overrides: the same wherever and whenever it is computed."""
        return ids.digest(self.overrides)


@dataclass(frozen=True, slots=True)
class Clause:
    """One key of a condition.

    Attributes:
        key: what the condition looks at.
        axis: position of the axis that sets the key; None where only the base has it.
        values: those with which it holds.
        wanted: their likenesses.
        base_holds: it holds with the base's value, which the key has while its axis is not active.
    """

    key: str
    axis: int | None
    values: tuple[Any, ...]
    wanted: frozenset[str]
    base_holds: bool


@dataclass(frozen=True, slots=True)
class Axis:
    """A key, or several that are coupled, with what it takes.

    Attributes:
        keys: canonical override keys.
        domain: the values.
        clauses: all must hold for the axis to be active.
    """

    keys: tuple[str, ...]
    domain: Domain
    clauses: tuple[Clause, ...] = ()

    def overrides(self, value: Any) -> Overrides:
        """Return what one value of the domain sets."""
        if isinstance(self.domain, Listed) and self.domain.is_coupled:
            return dict(zip(self.keys, value, strict=True))
        return {self.keys[0]: value}

    def holds(self, overrides: Mapping[str, Any]) -> bool:
        """Whether a point's values of the axis's keys are one choice of its domain."""
        if not all(key in overrides for key in self.keys):
            return False
        if isinstance(self.domain, Interval):
            return self.domain.holds(overrides[self.keys[0]])
        return bool(self.places(overrides))

    def places(self, overrides: Mapping[str, Any]) -> set[int]:
        """Return the positions in a finite domain that agree with the overrides of one key at least."""
        if isinstance(self.domain, Interval):
            return set()
        found = [
            set(self.domain.find(overrides[key], at)) for at, key in enumerate(self.keys) if key in overrides
        ]
        return set.intersection(*found)


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of `exclude`: it removes the points that have all its values.

    Attributes:
        row: keys and values as the file has them.
        wanted: likeness of each value.
        base: likeness of the base's value of each key, None where the base has none.
    """

    row: Mapping[str, Any]
    wanted: Mapping[str, str]
    base: Mapping[str, str | None]

    def removes(self, overrides: Mapping[str, Any]) -> bool:
        """Whether a point with these overrides has all the values."""
        for key, wanted in self.wanted.items():
            value = overrides.get(key, MISSING)
            if (self.base[key] if value is MISSING else likeness(value)) != wanted:
                return False
        return True

    def __str__(self) -> str:
        """Return the rule as one would write it."""
        return "{" + ", ".join(f"{key}: {value}" for key, value in self.row.items()) + "}"


@dataclass(frozen=True, slots=True)
class Space:
    """Everything a sweep may try.

    Attributes:
        axes: in the order of the file.
        order: positions of the axes, each after those its condition looks at.
        include: rows of overrides, each once.
        exclude: rules, in the order of the file.
        repeated_rows: rows of `include` that stood there again.
    """

    axes: tuple[Axis, ...] = ()
    order: tuple[int, ...] = ()
    include: tuple[Overrides, ...] = ()
    exclude: tuple[Rule, ...] = ()
    repeated_rows: int = 0

    @property
    def is_finite(self) -> bool:
        """Whether every domain can be counted off."""
        return not any(isinstance(axis.domain, Interval) for axis in self.axes)

    def contains(self, overrides: Mapping[str, Any]) -> bool:
        """Whether the axes alone, without `include`, make a point of just these overrides."""
        count = 0
        for axis in self.axes:
            if self.is_active(axis, overrides):
                if not axis.holds(overrides):
                    return False
                count += len(axis.keys)
        return count == len(overrides) and not self.is_excluded(overrides)

    def is_excluded(self, overrides: Mapping[str, Any]) -> bool:
        """Whether a rule removes the point."""
        return any(rule.removes(overrides) for rule in self.exclude)

    def is_active(self, axis: Axis, overrides: Mapping[str, Any]) -> bool:
        """Whether an axis counts in a point, given the overrides of the axes its condition looks at."""
        for clause in axis.clauses:
            value = overrides.get(clause.key, MISSING)
            if not (clause.base_holds if value is MISSING else likeness(value) in clause.wanted):
                return False
        return True


def topological(clauses: Sequence[Sequence[Clause]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return (positions of axes, each after those its clauses look at, and the first cycle, if any)."""
    order: list[int] = []
    done: set[int] = set()
    for root in range(len(clauses)):
        path: list[int] = []
        stack = [(root, False)]
        while stack:
            position, is_left = stack.pop()
            if is_left:
                path.pop()
                if position not in done:
                    done.add(position)
                    order.append(position)
            elif position in path:
                return (), (*path[path.index(position) :], position)
            elif position not in done:
                path.append(position)
                stack.append((position, True))
                stack += [(clause.axis, False) for clause in clauses[position] if clause.axis is not None]
    return tuple(order), ()


__all__ = ["Axis", "Clause", "Overrides", "Point", "Rule", "Space", "topological"]

"""The axes of a finite space, prepared for counting. Pure.

Values that differ in nothing but what they set make one class, so that counting looks at classes only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflows.axes import Axis, Clause, Overrides, Space
from airflows.domains import Finite, Interval, Listed
from airflows.errors import SpecError


@dataclass(frozen=True, slots=True)
class Class:
    """Values of an axis that differ in nothing but what they set.

    Attributes:
        mask: a bit for each rule of `exclude` that they do not contradict.
        sat: a bit for each clause that they fulfil.
        is_first: it is the first value alone, which stands for the axis when it is not active.
        count: how many they are.
        raw: the same, counting values that the file repeats.
    """

    mask: int
    sat: int
    is_first: bool
    count: int
    raw: int


@dataclass(frozen=True, slots=True)
class Level:
    """An axis as the walk needs it.

    Attributes:
        classes: of its values.
        runs: (first value, how many, class) in order.
        off: mask and sat while it is not active.
        need: the clauses it needs; -1 when it never is active.
        settles: axes whose activity is known once this one is chosen, in dependency order.
        live: the clauses that are still needed after that.
        asked: the clauses that look at the axis.
    """

    axis: Axis
    domain: Finite
    classes: Sequence[Class]
    runs: Sequence[tuple[int, int, int]]
    off: tuple[int, int]
    need: int
    settles: tuple[int, ...]
    live: int
    asked: int

    def place(self, overrides: Mapping[str, Any]) -> int:
        """Return the position of a point's value; the first where the axis is not active in it."""
        if not all(key in overrides for key in self.axis.keys):
            return 0
        return min(self.axis.places(overrides))

    def may_fulfil(self, clauses: int) -> bool:
        """Whether some value fulfils all those of the clauses that look at the axis."""
        wanted = clauses & self.asked
        return not wanted & ~self.off[1] or any(not wanted & ~each.sat for each in self.classes)

    def overrides(self, place: int) -> Overrides:
        """Return what the value at a position sets."""
        return self.axis.overrides(self.domain[place])


@dataclass(frozen=True, slots=True)
class Compiled:
    """A space, prepared.

    Attributes:
        levels: the axes that vary, in the order of the file.
        constant: what the others set.
        mask: a bit for each rule of `exclude` that no constant contradicts.
        sat: a bit for each clause that a constant fulfils.
    """

    levels: Sequence[Level]
    constant: Overrides
    mask: int
    sat: int


def compiled(space: Space) -> Compiled:
    """Return the space prepared for counting.

    Raises:
        SpecError: a domain is not finite.
    """
    return _Compiler(space).compile()


class _Compiler:
    """Numbers rules and clauses, and sorts the values of each axis into classes."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._bits: dict[tuple[int, int], int] = {}
        for position, axis in enumerate(space.axes):
            for at, clause in enumerate(axis.clauses):
                if clause.axis is not None:
                    self._bits[position, at] = len(self._bits)
        keys = {key for axis in space.axes for key in axis.keys}
        self._mask = 0
        for number, rule in enumerate(space.exclude):
            elsewhere = [key for key in rule.wanted if key not in keys]
            if all(rule.base[key] == rule.wanted[key] for key in elsewhere):
                self._mask |= 1 << number

    def compile(self) -> Compiled:
        """Return the space, prepared."""
        mask, sat, constant = self._mask, 0, Overrides()
        varying: list[int] = []
        for position, axis in enumerate(self._space.axes):
            domain = finite(axis)
            if len(domain) == 1 and not axis.clauses:
                only = self._classes(position, domain)[0][0]
                mask, sat = mask & only.mask, sat | only.sat
                constant |= axis.overrides(domain[0])
            else:
                varying.append(position)
        return Compiled(self._build(varying), constant, mask, sat)

    def _build(self, varying: Sequence[int]) -> list[Level]:
        depth_of = {position: depth for depth, position in enumerate(varying)}
        settled = self._settled(depth_of)
        needs = [self._need(position) for position in varying]
        levels: list[Level] = []
        for depth, position in enumerate(varying):
            axis = self._space.axes[position]
            domain = finite(axis)
            classes, runs = self._classes(position, domain)
            settles = tuple(depth_of[at] for at in self._space.order if settled.get(at) == depth)
            live = 0
            for other in varying:
                if settled[other] > depth:
                    live |= max(0, needs[depth_of[other]])
            asked = sum(1 << bit for bit, _ in self._looking_at(position))
            off = self._off(position)
            levels.append(Level(axis, domain, classes, runs, off, needs[depth], settles, live, asked))
        return levels

    def _settled(self, depth_of: Mapping[int, int]) -> dict[int, int]:
        """Return at which depth it is known whether each axis is active."""
        settled: dict[int, int] = {}
        for position in self._space.order:
            if position in depth_of:
                looks_at = [clause.axis for clause in self._space.axes[position].clauses]
                above = [settled[axis] for axis in looks_at if axis is not None and axis in settled]
                settled[position] = max([depth_of[position], *above])
        return settled

    def _need(self, position: int) -> int:
        clauses = self._space.axes[position].clauses
        if any(clause.axis is None and not clause.base_holds for clause in clauses):
            return -1
        return sum(1 << self._bits[position, at] for at, c in enumerate(clauses) if c.axis is not None)

    def _off(self, position: int) -> tuple[int, int]:
        keys = self._space.axes[position].keys
        mask, sat = (1 << len(self._space.exclude)) - 1, 0
        for number, rule in enumerate(self._space.exclude):
            if any(key in rule.wanted and rule.base[key] != rule.wanted[key] for key in keys):
                mask &= ~(1 << number)
        for bit, clause in self._looking_at(position):
            sat |= clause.base_holds << bit
        return mask, sat

    def _looking_at(self, position: int) -> Iterator[tuple[int, Clause]]:
        for (looker, at), bit in self._bits.items():
            clause = self._space.axes[looker].clauses[at]
            if clause.axis == position:
                yield bit, clause

    def _classes(self, position: int, domain: Finite) -> tuple[list[Class], list[tuple[int, int, int]]]:
        axis = self._space.axes[position]
        marks: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        untouched = (1 << len(self._space.exclude)) - 1
        for number, rule in enumerate(self._space.exclude):
            columns = [at for at, key in enumerate(axis.keys) if key in rule.wanted]
            if columns:
                untouched &= ~(1 << number)
                found = [set(domain.find(rule.row[axis.keys[at]], at)) for at in columns]
                for place in set.intersection(*found):
                    marks[place][0] |= 1 << number
        for bit, clause in self._looking_at(position):
            for value in clause.values:
                for place in domain.find(value, axis.keys.index(clause.key)):
                    marks[place][1] |= 1 << bit
        if axis.clauses:
            marks[0]  # stands for the axis when it is not active, so it is a class of its own
        return _sorted_classes(domain, marks, untouched, is_conditional=bool(axis.clauses))


def _sorted_classes(
    domain: Finite, marks: Mapping[int, Sequence[int]], untouched: int, *, is_conditional: bool
) -> tuple[list[Class], list[tuple[int, int, int]]]:
    repeats = domain.repeats if isinstance(domain, Listed) else {}
    kinds: dict[tuple[int, int, bool], int] = {}
    counts: list[list[int]] = []
    runs: list[tuple[int, int, int]] = []

    def add(first: int, length: int, kind: tuple[int, int, bool], more: int) -> None:
        at = kinds.setdefault(kind, len(kinds))
        if at == len(counts):
            counts.append([0, 0])
        counts[at][0] += length
        counts[at][1] += length + more
        runs.append((first, length, at))

    following = 0
    special = sorted(marks)
    for place in [*special, len(domain)]:
        if place > following:
            more = sum(times for at, times in repeats.items() if following <= at < place)
            add(following, place - following, (untouched, 0, False), more)
        if place < len(domain):
            mask, sat = marks[place]
            add(place, 1, (untouched | mask, sat, is_conditional and place == 0), repeats.get(place, 0))
        following = place + 1
    classes = [
        Class(mask, sat, is_first, counts[at][0], counts[at][1])
        for (mask, sat, is_first), at in kinds.items()
    ]
    return classes, runs


def finite(axis: Axis) -> Finite:
    """Return the domain of an axis of a grid.

    Raises:
        SpecError: it is continuous.
    """
    if isinstance(axis.domain, Interval):
        message = f"{' and '.join(axis.keys)} can take any value between two bounds, and a grid cannot."
        raise SpecError(message, field=f"space.{', '.join(axis.keys)}", hint="Give it a step or a count.")
    return axis.domain

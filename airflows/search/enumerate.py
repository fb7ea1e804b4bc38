"""Every point of a finite space, in the order of the file; counted, and begun anywhere, without a walk there.

The rules: the first axis varies slowest. An axis whose condition does not hold sets nothing, and counts as
standing at its first value, so that no point comes twice. A condition may look at an axis further down;
until that one is chosen, the choice is held back.

What a partly chosen point still may become depends on little: which rules of `exclude` it has matched so
far, which clauses of conditions hold, and which choices are held back. This is a `_State`, and the number of
points below each state is worked out once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from airflows.axes import Overrides, Space
from airflows.domains import Listed
from airflows.errors import SpecError
from airflows.search.levels import Class, compiled

_BLOCK = 1024
_KEPT = 32 * _BLOCK
_MOST_STATES = 200_000
_MOST_AXES = 400

_Held = tuple[tuple[int, int], ...]
_State = tuple[int, int, _Held]


_Step = tuple[_State, tuple[int, ...]]


class Grid:
    """The points of a finite space."""

    def __init__(self, space: Space) -> None:
        """Work out how many points there are.

        Raises:
            SpecError: the space is too entangled to be counted.
        """
        self._space = space
        prepared = compiled(space)
        self._levels, self._constant = prepared.levels, prepared.constant
        self._first: _State = (prepared.mask, prepared.sat, ())
        self._steps: list[dict[_State, list[_Step | None]]] = []
        self._sizes: list[dict[_State, int]] = []
        self._blocks: dict[tuple[int, _State], list[Overrides]] = {}
        self._kept = 0
        self._explore()

    @property
    def count(self) -> int:
        """How many points there are, without those that a rule removes."""
        return self._sizes[0][self._first]

    @property
    def repeats(self) -> int:
        """How many points more there would be if values that the file repeats were not dropped."""
        if not any(isinstance(axis.domain, Listed) and axis.domain.repeats for axis in self._space.axes):
            return 0
        constant = 1
        for axis in self._space.axes:
            if isinstance(axis.domain, Listed) and len(axis.domain) == 1 and not axis.clauses:
                constant *= 1 + axis.domain.repeats.get(0, 0)
        return constant * self._ends(lambda each: each.raw).get(0, 0) - self.count

    def removed(self) -> list[int]:
        """Return how many points each rule of `exclude` matches."""
        ends = self._ends(lambda each: each.count)
        return [
            sum(total for mask, total in ends.items() if mask >> rule & 1)
            for rule in range(len(self._space.exclude))
        ]

    def points(self, start: int = 0) -> Iterator[Overrides]:
        """Yield the overrides of the points from number `start` on."""
        if len(self._levels) > _MOST_AXES:
            message = (
                f"A grid over more than {_MOST_AXES} keys that vary has more points than can ever be run."
            )
            raise SpecError(message, field="space", hint="Use search.method random.")
        if start < self.count:
            yield from self._walk(0, self._first, (), self._constant, start)

    def point(self, number: int) -> Overrides:
        """Return the overrides of one point.

        Raises:
            IndexError: there is no such point.
        """
        if not 0 <= number < self.count:
            raise IndexError(number)
        state, held, made = self._first, dict[int, int](), dict(self._constant)
        for depth, level in enumerate(self._levels):
            for first, length, each in level.runs:
                step = self._steps[depth][state][each]
                below = 0 if step is None else self._sizes[depth + 1][step[0]]
                if step is not None and number < length * below:
                    held[depth] = first + number // below
                    number %= below
                    state = step[0]
                    for at in step[1]:
                        made |= self._levels[at].overrides(held[at])
                    break
                number -= length * below
        return made

    def number(self, overrides: Mapping[str, Any]) -> int:
        """Return the number of a point, the inverse of `point`; its overrides must be those of one."""
        number, state = 0, self._first
        for depth, level in enumerate(self._levels):
            place = level.place(overrides)
            for first, length, each in level.runs:
                step = self._steps[depth][state][each]
                below = 0 if step is None else self._sizes[depth + 1][step[0]]
                if place < first + length and step is not None:
                    number += (place - first) * below
                    state = step[0]
                    break
                number += length * below
        return number

    def _walk(
        self, depth: int, state: _State, held: _Held, above: Overrides, skip: int
    ) -> Iterator[Overrides]:
        if depth == len(self._levels):
            yield dict(above)
        elif not held and self._sizes[depth][state] <= _BLOCK:
            block = self._block(depth, state)
            for below in block[skip:] if skip else block:
                yield {**above, **below}
        else:
            yield from self._walk_level(depth, state, held, above, skip)

    def _walk_level(
        self, depth: int, state: _State, held: _Held, above: Overrides, skip: int
    ) -> Iterator[Overrides]:
        level, steps, sizes = self._levels[depth], self._steps[depth][state], self._sizes[depth + 1]
        for first, length, each in level.runs:
            step = steps[each]
            below = 0 if step is None else sizes[step[0]]
            if step is None or skip >= length * below:
                skip -= length * below
                continue
            at, skip = first + skip // below, skip % below
            for place in range(at, first + length):
                made, still = self._made(depth, place, held, step[1], above)
                yield from self._walk(depth + 1, step[0], still, made, skip)
                skip = 0

    def _made(
        self, depth: int, place: int, held: _Held, active: tuple[int, ...], above: Overrides
    ) -> tuple[Overrides, _Held]:
        """Return (what is set so far, what is held back) after a value was chosen."""
        settles = self._levels[depth].settles
        if not held and settles == (depth,):
            return ({**above, **self._levels[depth].overrides(place)} if active else above), ()
        choices = dict(held) | {depth: place}
        made = dict(above)
        for at in active:
            made |= self._levels[at].overrides(choices[at])
        return made, tuple((at, choice) for at, choice in choices.items() if at not in settles)

    def _block(self, depth: int, state: _State) -> list[Overrides]:
        block = self._blocks.get((depth, state))
        if block is None:
            block = list(self._walk_level(depth, state, (), {}, 0))
            if self._kept + len(block) > _KEPT:
                self._blocks.clear()
                self._kept = 0
            self._blocks[depth, state] = block
            self._kept += len(block)
        return block

    def _explore(self) -> None:
        """Find the states that occur at each level and count the points below each."""
        states: Mapping[_State, Any] = {self._first: None}
        total = 0
        for depth, level in enumerate(self._levels):
            steps = {
                state: [self._step(depth, state, at) for at in range(len(level.classes))] for state in states
            }
            self._steps.append(steps)
            states = dict.fromkeys(step[0] for row in steps.values() for step in row if step is not None)
            total += len(states)
            if total > _MOST_STATES:
                message = "Conditions and rules depend on each other in too many ways to be counted."
                field = "exclude" if self._space.exclude else "space"
                raise SpecError(message, field=field, hint="List the points under include instead.")
        below = {state: int(state[0] == 0) for state in states}
        self._sizes = [below]
        for depth in range(len(self._levels) - 1, -1, -1):
            counts = [each.count for each in self._levels[depth].classes]
            below = {state: _size(row, counts, below) for state, row in self._steps[depth].items()}
            self._sizes.insert(0, below)

    def _step(self, depth: int, state: _State, choice: int) -> _Step | None:
        """Return the state after a choice and the axes now known to be active; None if it cannot be."""
        mask, sat, held = state
        waiting = dict(held) | {depth: choice}
        active: list[int] = []
        for at in self._levels[depth].settles:
            level, chosen = self._levels[at], self._levels[at].classes[waiting.pop(at)]
            if level.need & ~sat == 0:
                mask, sat = mask & chosen.mask, sat | chosen.sat
                active.append(at)
            elif chosen.is_first:
                mask, sat = mask & level.off[0], sat | level.off[1]
            else:
                return None
        if waiting and not self._may_settle(depth, sat, waiting):
            return None
        return (mask, sat & self._levels[depth].live, tuple(waiting.items())), tuple(active)

    def _may_settle(self, depth: int, sat: int, waiting: Mapping[int, int]) -> bool:
        """Whether the axes further down can still make active all that is held back and must be."""
        needed = 0
        for at, choice in waiting.items():
            if not self._levels[at].classes[choice].is_first:
                needed |= self._levels[at].need & ~sat
        return needed >= 0 and all(level.may_fulfil(needed) for level in self._levels[depth + 1 :])

    def _ends(self, weigh: Callable[[Class], int]) -> Mapping[int, int]:
        """Return how many whole points end with each mask."""
        weights: Mapping[_State, int] = {self._first: 1}
        for depth in range(len(self._levels)):
            following: dict[_State, int] = defaultdict(int)
            for state, weight in weights.items():
                waiting = dict(state[2])
                for choice, step in enumerate(self._steps[depth][state]):
                    if step is not None:
                        chosen = {**waiting, depth: choice}
                        factor = weight
                        for at in step[1]:
                            factor *= weigh(self._levels[at].classes[chosen[at]])
                        following[step[0]] += factor
            weights = following
        ends: dict[int, int] = defaultdict(int)
        for state, weight in weights.items():
            ends[state[0]] += weight
        return ends


def _size(row: Sequence[_Step | None], counts: Sequence[int], below: Mapping[_State, int]) -> int:
    return sum(count * below[step[0]] for step, count in zip(row, counts, strict=True) if step is not None)

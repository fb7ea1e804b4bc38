"""The points of a sweep, from a space and a way of choosing: lazily, in a fixed order, from any one on.

Of a method that learns only the first points are here: those that do not depend on what came before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

from airflows.axes import Axis, Overrides, Point, Space
from airflows.domains import Interval, Listed, likeness
from airflows.errors import SpecError
from airflows.search.adaptive import STARTUP, check_space
from airflows.search.draws import PATIENCE, Draws, random_shares
from airflows.search.enumerate import Grid

_LOOKED_AT = 100_000

Method = Literal["grid", "list", "random", "sobol", "tpe", "gp", "cmaes", "nsga2"]


@dataclass(frozen=True, slots=True)
class Choice:
    """How points are chosen from a space.

    Attributes:
        method: what chooses them.
        trials: most points, None for no limit.
        seed: makes draws what they are.
        is_warm: an adaptive method knows earlier sweeps, and draws no points to begin with.
    """

    method: Method
    trials: int | None = None
    seed: int = 0
    is_warm: bool = False


class Expansion:
    """The points of a sweep, in order. Walking it twice, or from the middle, gives the same points.

    `include` rows come after the points of a grid, and before those that are drawn.
    """

    def __init__(self, space: Space, choice: Choice) -> None:
        """Prepare the points; nothing is listed yet.

        Raises:
            SpecError: the method cannot choose from this space, or no point is left.
            MissingExtraError: the method needs a package that is not installed.
        """
        self._space = space
        self._choice = choice
        self._grid: Grid | None = None
        self._draws: Draws | None = None
        if choice.method == "grid":
            self._grid = Grid(space)
        elif choice.method != "list":
            check_space(space, choice.method)
            # A method that learns begins with random draws.
            drawn: Literal["random", "sobol"] = "sobol" if choice.method == "sobol" else "random"
            self._draws = Draws.of(space, drawn, choice.seed)
        kept = [row for row in space.include if not space.is_excluded(row)]
        self._rows = [row for row in kept if self._grid is None or not space.contains(row)]
        self.duplicates_dropped = self._count_duplicates(len(kept) - len(self._rows))
        self._count = self._counted()
        if self._is_empty():
            grid = self._draws.grid if self._draws is not None else self._grid
            raise _nothing_left(space, grid)

    def points(self, start: int = 0) -> Iterator[Point]:
        """Yield the points from number `start` on; of an adaptive method those that are known in advance."""
        stop = self._choice.trials
        if self.known is not None:
            stop = self.known if stop is None else min(stop, self.known)
        chosen = self._all(start)
        if stop is not None:
            chosen = itertools.islice(chosen, max(0, stop - start))
        return map(Point, itertools.count(start), chosen)

    @property
    def known(self) -> int | None:
        """How many points an adaptive method has before it learns; None where all points are known."""
        if self._choice.method not in STARTUP:
            return None
        rows = len(self._rows)
        return rows if self._choice.is_warm else max(rows, STARTUP[self._choice.method])

    def count(self) -> int | None:
        """Return how many points there are, without listing them; None when nobody can know.

        For draws from an endless space it is `search.trials`.
        """
        return self._count

    def _counted(self) -> int | None:
        trials = self._choice.trials
        own: int | None = 0
        if self._grid is not None:
            own = self._grid.count
        elif self._draws is not None:
            own = self._draws.count
        if own is None:
            return trials
        drawn_too = self._rows if self._draws is not None else []
        total = own + len(self._rows) - sum(self._space.contains(row) for row in drawn_too)
        return total if trials is None else min(total, trials)

    def number(self, overrides: Mapping[str, Any]) -> int | None:
        """Return the number of the point with just these overrides, None when it is none of its own.

        Numbers are compared as numbers, so that 1 is 1.0. A grid is not walked for it.
        """
        trials = self._choice.trials
        if self._grid is not None and self._space.contains(overrides):
            number = self._grid.number(overrides)
            return number if trials is None or number < trials else None
        return self._listed.get(likeness(overrides))

    @cached_property
    def _listed(self) -> Mapping[str, int]:
        """The numbers of the points by their likeness; of a grid, those of the rows that follow it."""
        start = 0 if self._grid is None else self._grid.count
        return {likeness(point.overrides): point.index for point in self.points(start)}

    def find(self, overrides: Mapping[str, Any]) -> Point | None:
        """Return the first point with these overrides among its own; None when there seems to be none."""
        wanted = {key: likeness(value) for key, value in overrides.items()}

        def fits(made: Mapping[str, Any]) -> bool:
            return all(key in made and likeness(made[key]) == like for key, like in wanted.items())

        start = 0
        if self._grid is not None:
            start = self._grid.count
            narrowed = Grid(_narrowed(self._space, overrides)).points()
            made = next(filter(fits, itertools.islice(narrowed, _LOOKED_AT)), None)
            if made is not None:
                number, trials = self._grid.number(made), self._choice.trials
                return Point(number, made) if trials is None or number < trials else None
        return next((point for point in self.points(start) if fits(point.overrides)), None)

    def _is_empty(self) -> bool:
        if self._rows or self._draws is None or self._draws.grid is not None:
            return self.count() == 0
        # Asked of random draws whatever the method, which spares the import of scipy.
        return next(Draws(self._space, "random", 0, None).points(), None) is None

    def _all(self, start: int) -> Iterator[Overrides]:
        rows = (dict(row) for row in self._rows)
        if self._grid is not None:
            if start < self._grid.count:
                return itertools.chain(self._grid.points(start), rows)
            return itertools.islice(rows, start - self._grid.count, None)
        if self._draws is not None:
            return itertools.islice(itertools.chain(rows, self._draws.points(self._rows)), start, None)
        return itertools.islice(rows, start, None)

    def _count_duplicates(self, rows: int) -> int:
        """Return how many points, or values where points cannot be counted, the file names again."""
        rows += self._space.repeated_rows
        if self._grid is not None:
            return rows + self._grid.repeats
        domains = (axis.domain for axis in self._space.axes) if self._draws is not None else ()
        return rows + sum(sum(d.repeats.values()) for d in domains if isinstance(d, Listed))


def _narrowed(space: Space, overrides: Mapping[str, Any]) -> Space:
    """Return the space with only those values of each axis that agree with the overrides."""

    def narrowed(axis: Axis) -> Axis:
        if not any(key in overrides for key in axis.keys) or isinstance(axis.domain, Interval):
            return axis
        is_coupled = len(axis.keys) > 1
        values = tuple(axis.domain[place] for place in sorted(axis.places(overrides)))
        return replace(axis, domain=Listed(values, is_coupled=is_coupled)) if values else axis

    return replace(space, axes=tuple(map(narrowed, space.axes)))


def _nothing_left(space: Space, grid: Grid | None) -> SpecError:
    """Return the error that names the rule which removed most."""
    removed = [sum(rule.removes(row) for row in space.include) for rule in space.exclude]
    is_counted = grid is not None or not space.axes
    if grid is not None:
        tried = grid.removed()
    else:
        made = _samples(space) if space.axes else []
        tried = [sum(map(rule.removes, made)) for rule in space.exclude]
    removed = [rows + points for rows, points in zip(removed, tried, strict=True)]
    if not any(removed):
        return SpecError("0 trials left: the space has no point.", field="space")
    most = removed.index(max(removed))
    counted = f" ({removed[most]})" if is_counted else ""
    message = (
        f"0 trials left: the exclude rules remove every point, {space.exclude[most]} most of them{counted}."
    )
    return SpecError(message, field=f"exclude[{most}]", hint="Loosen that rule, or add values.")


def _samples(space: Space) -> list[Overrides]:
    draws, shares = Draws(space, "random", 0, None), random_shares(space, 0)
    return [draws.drawn(shares(number)) for number in range(PATIENCE)]


class Expandable(Protocol):
    """A sweep that was loaded; see `airflows.sweepfile`."""

    @property
    def expansion(self) -> Expansion:
        """Its points."""


def expand(sweep: Expandable) -> Expansion:
    """Return the points of a loaded sweep."""
    return sweep.expansion


__all__ = ["Choice", "Expandable", "Expansion", "Method", "Point", "Space", "expand"]

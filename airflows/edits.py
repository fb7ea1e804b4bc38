"""A sweep whose file was changed after it had begun (`resume --add`): its points, and what changes. Pure.

Points are numbered in the order in which they came, and a number is never used again. So the points of an
edited sweep are those that its earlier files had made, in the same order as ever, and then those of its
present file that are new.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from airflows.axes import Overrides, Point
from airflows.domains import likeness
from airflows.errors import ConflictError
from airflows.space import Expansion
from airflows.sweepfile import LoadedSweep, sweep_from_mapping
from airflows.yamlio import parse

SHOWN = 100
_WALKED = 10_000


class Stage(NamedTuple):
    """A file that the sweep had before, as it took effect, and how many new points were made by it."""

    source: str
    points: int


@dataclass(frozen=True, slots=True)
class Edits:
    """What was changed of a sweep so far; falsy when nothing was.

    Attributes:
        stages: the earlier files, the first one first.
        orphaned: numbers of the points that the present file no longer has.
    """

    stages: tuple[Stage, ...] = ()
    orphaned: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.stages or self.orphaned)

    @property
    def made(self) -> int:
        """How many points the earlier files have made."""
        return sum(stage.points for stage in self.stages)

    def to_text(self) -> str:
        """Return it as the ledger keeps it; empty for nothing."""
        if not self:
            return ""
        return json.dumps(
            {"stages": [stage._asdict() for stage in self.stages], "orphaned": sorted(self.orphaned)}
        )

    @classmethod
    def from_text(cls, text: str) -> Edits:
        """Return what `to_text` gave."""
        if not text:
            return cls()
        known = json.loads(text)
        return cls(tuple(Stage(**stage) for stage in known["stages"]), frozenset(known["orphaned"]))


class EditedExpansion(Expansion):
    """The points of an edited sweep: those of its earlier files, then the new ones of the present one.

    Args:
        earlier: yields the points that the earlier files have made, in order; asked only when needed.
        made: how many these are.
        present: the points of the present file.
    """

    def __init__(self, earlier: Callable[[], Iterator[Overrides]], made: int, present: Expansion) -> None:
        self._earlier = earlier
        self._made = made
        self._present = present
        self.duplicates_dropped = present.duplicates_dropped

    def points(self, start: int = 0) -> Iterator[Point]:
        """Yield the points from number `start` on."""
        new = (
            point.overrides
            for point in self._present.points()
            if likeness(point.overrides) not in self._numbers
        )
        chosen = itertools.chain(map(dict, self._frozen), new)
        return map(Point, itertools.count(start), itertools.islice(chosen, start, None))

    @property
    def known(self) -> None:
        """Methods that learn are not edited: all points are known."""
        return

    def count(self) -> int | None:
        """Return how many points there are; see `Expansion`."""
        present = self._present.count()
        return None if present is None else self._made + present - self._still_there

    def number(self, overrides: Mapping[str, Any]) -> int | None:
        """Return the number of the point with just these overrides; see `Expansion`."""
        known = self._numbers.get(likeness(overrides))
        if known is not None or self._present.number(overrides) is None:
            return known
        return next(
            (p.index for p in self.points(self._made) if likeness(p.overrides) == likeness(overrides)), None
        )

    def find(self, overrides: Mapping[str, Any]) -> Point | None:
        """Return the first point with these overrides among its own; see `Expansion`."""
        wanted = {key: likeness(value) for key, value in overrides.items()}
        return next((p for p in self.points() if _has(p.overrides, wanted)), None)

    @cached_property
    def _frozen(self) -> Sequence[Overrides]:
        frozen = list(self._earlier())
        if len(frozen) != self._made:
            # Every number behind would be that of another point.
            message = f"the sweep's earlier files made {self._made} points, and now they make {len(frozen)}."
            raise ConflictError(message, hint="Start another sweep with the points that are left: --new")
        return frozen

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {likeness(overrides): number for number, overrides in enumerate(self._frozen)}

    @cached_property
    def _still_there(self) -> int:
        return sum(self._present.number(overrides) is not None for overrides in self._frozen)


def _has(overrides: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    return all(key in overrides and likeness(overrides[key]) == like for key, like in wanted.items())


def edited(loaded: LoadedSweep, edits: Edits) -> LoadedSweep:
    """Return a sweep with the points that it has after its edits.

    Args:
        loaded: by its present file.
        edits: those before.
    """
    if not edits.stages:
        return loaded

    def earlier() -> Iterator[Overrides]:
        seen: set[str] = set()
        for stage in edits.stages:
            points = (p.overrides for p in _reloaded(stage, loaded.directory).points() if _is_new(p, seen))
            yield from itertools.islice(points, stage.points)

    return replace(loaded, expansion=EditedExpansion(earlier, edits.made, loaded.expansion))


def _reloaded(stage: Stage, directory: Path) -> Expansion:
    tree = parse(stage.source, file="sweep.yaml", dialect="sweep").value
    return sweep_from_mapping(tree, directory=directory).expansion


def _is_new(point: Point, seen: set[str]) -> bool:
    like = likeness(point.overrides)
    if like in seen:
        return False
    seen.add(like)
    return True


class Made(NamedTuple):
    """A point that the sweep has already."""

    number: int
    overrides: Overrides
    has_ended: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """What another file makes of a sweep: the file it has, the new one, and what the ledger has of it.

    Attributes:
        added: how many points of the new file there are no trials of yet.
        waiting: so many of these were planned by the present file already; None when they were not counted.
        first_added: the first of them.
        kept: numbers of the points that both have.
        back: those of them that an earlier file had no longer had.
        orphaned: numbers of the points that the new file does not have; they stay in the history.
        cancelled: those of them that have not ended.
        dropped: points that the present file had planned, but of which nothing was made; None when they were
            not counted.
        edits: all edits, once this one is made.
    """

    added: int
    waiting: int | None
    first_added: tuple[Overrides, ...]
    kept: tuple[int, ...]
    back: tuple[int, ...]
    orphaned: tuple[int, ...]
    cancelled: tuple[int, ...]
    dropped: int | None
    edits: Edits

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON documents show it."""
        return {
            "added": self.added,
            "waiting": self.waiting,
            "first_added": [dict(overrides) for overrides in self.first_added],
            "kept": list(self.kept),
            "back": list(self.back),
            "orphaned": list(self.orphaned),
            "cancelled": list(self.cancelled),
            "dropped": self.dropped,
        }


def difference(
    made: Iterable[Made], present: LoadedSweep, new: LoadedSweep, edits: Edits, expanded: int
) -> Difference:
    """Return what a new file makes of a sweep.

    Args:
        made: the points that the ledger has.
        present: the sweep as it is, with its edits.
        new: the new file.
        edits: those so far.
        expanded: how many points the ledger has.
    """
    kept: list[int] = []
    gone: list[Made] = []
    likes: set[str] = set()
    for point in made:
        likes.add(likeness(point.overrides))
        if new.expansion.number(point.overrides) is None:
            gone.append(point)
        else:
            kept.append(point.number)
    count = new.expansion.count() or 0
    fresh = (p.overrides for p in new.expansion.points() if likeness(p.overrides) not in likes)
    added = count - len(kept)
    waiting, dropped = _planned(present, new, expanded)
    orphaned = frozenset(point.number for point in gone)
    return Difference(
        added=added,
        waiting=waiting,
        first_added=tuple(itertools.islice(fresh, min(added, SHOWN))),
        kept=tuple(kept),
        back=tuple(number for number in kept if number in edits.orphaned),
        orphaned=tuple(sorted(orphaned)),
        cancelled=tuple(point.number for point in gone if not point.has_ended),
        dropped=dropped,
        edits=Edits(_stages(present, new, edits, expanded), orphaned),
    )


def _planned(present: LoadedSweep, new: LoadedSweep, expanded: int) -> tuple[int | None, int | None]:
    """Return how many points that were planned and not made the new file has, and has not."""
    left = (present.expansion.count() or 0) - expanded
    if left > _WALKED:
        return None, None
    waiting = sum(
        new.expansion.number(point.overrides) is not None for point in present.expansion.points(expanded)
    )
    return waiting, max(0, left) - waiting


def _stages(present: LoadedSweep, new: LoadedSweep, edits: Edits, expanded: int) -> tuple[Stage, ...]:
    """Return the earlier files, with the present one unless the new one makes its points too."""
    by_present = expanded - edits.made
    is_longer = (new.expansion.count() or 0) >= by_present
    if not by_present or (present.definition_digest == new.definition_digest and is_longer):
        return edits.stages
    return (*edits.stages, Stage(present.source, by_present))

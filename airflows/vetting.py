"""Whether each point of a sweep makes a train.yaml that may run; asked before anything is submitted. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum, auto
from functools import lru_cache
from typing import Any

from airflows.axes import Axis, Overrides, Point, Space
from airflows.domains import Interval, Listed
from airflows.errors import SpecError
from airflows.ids import canonical_json
from airflows.keys import split_key
from airflows.scalars import resolve
from airflows.search.draws import counted_off
from airflows.search.enumerate import Grid
from airflows.search.levels import finite
from airflows.sweepfile import LoadedSweep
from airflows.train import decode, effective

FULLY_CHECKED = 10_000


class _Kind(Enum):
    """How train.yaml's rules look at a key's values: not at all, one by one, or together with others."""

    FREE = auto()
    SINGLE = auto()
    LINKED = auto()


_KINDS = {"parameters": _Kind.FREE, "env_variables": _Kind.SINGLE, "secrets": _Kind.SINGLE}


@lru_cache(maxsize=4096)
def _kind(key: str) -> _Kind:
    parts = split_key(key)
    # A whole free-form map must still be a map.
    return _KINDS.get(parts[0], _Kind.LINKED) if len(parts) > 1 else _Kind.LINKED


def validate_points(sweep: LoadedSweep, *, most: int = FULLY_CHECKED) -> None:
    """Check the points of a sweep, each as the train.yaml it makes.

    Of a grid, up to `most` points are looked at one by one; beyond that, and of a space that an adaptive
    method chooses from, each value of each key, and each combination of values that train.yaml's rules look
    at together.

    Raises:
        SpecError: a point is invalid; the error names its overrides, and its first trial where it is known.
    """
    vetted = _Vetted(sweep)
    vetted.replicates()
    space = sweep.space
    keys = {key for axis in space.axes for key in axis.keys} | {key for row in space.include for key in row}
    if all(_kind(key) is _Kind.FREE for key in keys):
        return
    count = sweep.expansion.count()
    is_large_grid = sweep.spec.method == "grid" and count is not None and count > most
    for point in itertools.islice(sweep.expansion.points(), most if is_large_grid else None):
        vetted.check(point.overrides, point.index)
    if is_large_grid:
        for overrides in itertools.chain(space.include, _alone(space), _together(space, most)):
            vetted.check(overrides, None)
    elif sweep.expansion.known is not None:
        # What will be chosen is not known, so it may be anything.
        counted = replace(space, axes=tuple(map(_counted, space.axes)))
        for overrides in itertools.chain(_alone(counted), _together(counted, most)):
            vetted.check_any(overrides)


class _Vetted:
    """Remembers what was found in order, since most points differ only in what no rule looks at."""

    def __init__(self, sweep: LoadedSweep) -> None:
        self._sweep = sweep
        self._known: set[str] = set()

    def check(self, overrides: Mapping[str, Any], index: int | None) -> None:
        """Check one point; without an index the first point that has these overrides is looked up."""
        linked: Overrides = {}
        for key, value in overrides.items():
            match _kind(key):
                case _Kind.SINGLE:
                    self._check({key: value}, overrides, index)
                case _Kind.LINKED:
                    linked[key] = value
        if linked:
            self._check(linked, overrides, index)

    def check_any(self, overrides: Mapping[str, Any]) -> None:
        """Check what a point may have, whether or not one will."""
        known = canonical_json(overrides)
        if known in self._known:
            return
        self._known.add(known)
        try:
            self._decode(overrides)
        except SpecError as exc:
            message = f"A point of the space cannot run. {exc.message} Its overrides: {_shown(overrides)}."
            hint = exc.hint or "Take it out of the space, or exclude it."
            raise SpecError(message, file=self._file, field=exc.field, hint=hint) from exc

    def replicates(self) -> None:
        """Check the values that tell replicates apart."""
        replicates = self._sweep.spec.replicates
        if replicates is not None and _kind(replicates.key) is not _Kind.FREE:
            for at, value in enumerate(replicates.values):
                try:
                    self._decode({replicates.key: value})
                except SpecError as exc:
                    message = f"Replicate {at} cannot run: {replicates.key} is {value!r}. {exc.message}"
                    raise SpecError(message, file=self._file, field=exc.field, hint=exc.hint) from exc

    def _check(self, looked_at: Overrides, overrides: Mapping[str, Any], index: int | None) -> None:
        # A number may stand for any other, so that a seed in a variable is not looked at ten thousand times.
        alike = {
            key: "0" if _kind(key) is _Kind.SINGLE and _is_number(value) else value
            for key, value in looked_at.items()
        }
        known = canonical_json(alike)
        if known in self._known:
            return
        self._known.add(known)
        try:
            self._decode(looked_at)
        except SpecError as exc:
            point = (
                Point(index, dict(overrides)) if index is not None else self._sweep.expansion.find(overrides)
            )
            # What no trial has, because of a rule or search.trials, does no harm.
            if point is not None:
                raise self._refused(exc, point) from exc

    def _decode(self, overrides: Mapping[str, Any]) -> None:
        config = decode(effective(self._sweep.base.tree, overrides), file=self._file)
        if self._sweep.spec.pack > 1 and config.nodes > 1:
            message = f"It takes {config.nodes} nodes, and pack puts several trials into one."
            raise SpecError(message, field="pack", hint="Leave pack out, or give it a sweep of its own.")

    @property
    def _file(self) -> str:
        return self._sweep.base.document.file

    def _refused(self, exc: SpecError, point: Point) -> SpecError:
        replicates = self._sweep.spec.replicates
        each = len(replicates.values) if replicates is not None else 1
        shown = _shown(point.overrides)
        message = f"Trial {point.index * each} cannot run. {exc.message} Its overrides: {shown}."
        return SpecError(message, file=self._file, field=exc.field, hint=exc.hint)


def _shown(overrides: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in overrides.items()) or "none"


def _counted(axis: Axis) -> Axis:
    """Return an axis with whole numbers counted off, and of others the bounds."""
    domain = axis.domain
    if not isinstance(domain, Interval):
        return axis
    ends = (domain.at(domain.low), domain.at(domain.high))
    counted = counted_off(domain)
    return replace(axis, domain=Listed(ends) if isinstance(counted, Interval) else counted)


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and value != "" and type(resolve(value)) in {int, float}


def _alone(space: Space) -> Iterator[Overrides]:
    """Yield each value of the axes whose values are looked at one by one."""
    for axis in space.axes:
        if {_kind(key) for key in axis.keys} & {_Kind.SINGLE} and not _is_linked(axis):
            domain = finite(axis)
            # Numbers that are counted off are all of one kind.
            places = range(len(domain)) if isinstance(domain, Listed) else (0, len(domain) - 1)
            yield from (axis.overrides(domain[place]) for place in places)


def _together(space: Space, most: int) -> Iterator[Overrides]:
    """Yield the combinations of the axes that are looked at together, with what their conditions need."""
    kept = [at for at, axis in enumerate(space.axes) if _is_linked(axis)]
    for at in kept:
        kept += [c.axis for c in space.axes[at].clauses if c.axis is not None and c.axis not in kept]
    kept.sort()
    places = {at: place for place, at in enumerate(kept)}
    axes = tuple(_moved(space.axes[at], places) for at in kept)
    gone = {key for axis in space.axes for key in axis.keys} - {key for axis in axes for key in axis.keys}
    rules = tuple(rule for rule in space.exclude if not gone & rule.wanted.keys())
    order = tuple(places[at] for at in space.order if at in places)
    yield from itertools.islice(Grid(Space(axes, order, (), rules)).points(), most)


def _is_linked(axis: Axis) -> bool:
    return any(_kind(key) is _Kind.LINKED for key in axis.keys)


def _moved(axis: Axis, places: Mapping[int, int]) -> Axis:
    clauses = tuple(
        replace(clause, axis=None if clause.axis is None else places[clause.axis]) for clause in axis.clauses
    )
    return replace(axis, clauses=clauses)

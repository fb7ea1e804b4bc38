"""Whether each point of a sweep makes a train.yaml that may run; asked before anything is submitted. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from airflows.axes import Axis, Overrides, Rule, Space
from airflows.domains import Interval
from airflows.errors import SpecError
from airflows.ids import canonical_json
from airflows.keys import split_key
from airflows.search.enumerate import Grid
from airflows.sweepfile import LoadedSweep
from airflows.train import decode, effective

FULLY_CHECKED = 10_000
# Nothing in train.yaml's rules depends on the values in it.
_FREE = "parameters"
# Their values are looked at one by one, never together with others.
_SINGLE = frozenset({"env_variables", "secrets"})


def validate_points(sweep: LoadedSweep, *, most: int = FULLY_CHECKED) -> None:
    """Check the points of a sweep, each as the train.yaml it makes.

    Up to `most` points are looked at one by one; beyond that, each value of each key, and each combination
    of values that train.yaml's rules look at together.

    Raises:
        SpecError: a point is invalid; the error names its first trial and its overrides.
    """
    vetted = _Vetted(sweep)
    vetted.replicates()
    count = sweep.expansion.count()
    for point in itertools.islice(sweep.expansion.points(), most):
        vetted.check(point.overrides, point.index)
    if count is None or count > most:
        for row in sweep.space.include:
            vetted.check(row, None)
        for overrides in _alone(sweep.space):
            vetted.check(overrides, None)
        for overrides in itertools.islice(_together(sweep.space), most):
            vetted.check(overrides, None)


class _Vetted:
    """Remembers what was found in order, since most points differ only in what no rule looks at."""

    def __init__(self, sweep: LoadedSweep) -> None:
        self._sweep = sweep
        self._known: set[str] = set()
        self._kinds: dict[str, str] = {}

    def check(self, overrides: Mapping[str, Any], index: int | None) -> None:
        """Check one point; without an index the first point that has these overrides is looked up."""
        linked: Overrides = {}
        for key, value in overrides.items():
            kind = self._kind(key)
            if kind in _SINGLE:
                self._check({key: value}, overrides, index)
            elif kind != _FREE:
                linked[key] = value
        if linked:
            self._check(linked, overrides, index)

    def replicates(self) -> None:
        """Check the values that tell replicates apart."""
        replicates = self._sweep.spec.replicates
        if replicates is not None and self._kind(replicates.key) != _FREE:
            for at, value in enumerate(replicates.values):
                try:
                    self._decode({replicates.key: value})
                except SpecError as exc:
                    message = f"Replicate {at} cannot run: {replicates.key} is {value!r}. {exc.message}"
                    raise SpecError(message, file=self._file, field=exc.field, hint=exc.hint) from exc

    def _kind(self, key: str) -> str:
        if key not in self._kinds:
            parts = split_key(key)
            # A whole free-form map must still be a map.
            self._kinds[key] = parts[0] if len(parts) > 1 else f"={parts[0]}"
        return self._kinds[key]

    def _check(self, looked_at: Overrides, overrides: Mapping[str, Any], index: int | None) -> None:
        known = canonical_json(looked_at)
        if known in self._known:
            return
        try:
            self._decode(looked_at)
        except SpecError as exc:
            raise self._refused(exc, looked_at, overrides, index) from exc
        self._known.add(known)

    def _decode(self, overrides: Mapping[str, Any]) -> None:
        decode(effective(self._sweep.base.tree, overrides), file=self._file)

    @property
    def _file(self) -> str:
        return self._sweep.base.document.file

    def _refused(
        self, exc: SpecError, looked_at: Overrides, overrides: Mapping[str, Any], index: int | None
    ) -> SpecError:
        replicates = self._sweep.spec.replicates
        each = len(replicates.values) if replicates is not None else 1
        if index is None:
            wanted = looked_at.items()
            found = (p for p in self._sweep.expansion.points() if wanted <= p.overrides.items())
            point = next(found, None)
            index, overrides = (point.index, point.overrides) if point is not None else (None, overrides)
        who = "A trial" if index is None else f"Trial {index * each}"
        shown = ", ".join(f"{key}: {value}" for key, value in overrides.items()) or "none"
        message = f"{who} cannot run. {exc.message} Its overrides: {shown}."
        return SpecError(message, file=self._file, field=exc.field, hint=exc.hint)


def _is_looked_at(axis: Axis) -> bool:
    return any(split_key(key)[0] not in {_FREE, *_SINGLE} for key in axis.keys)


def _alone(space: Space) -> Iterator[Overrides]:
    """Yield each value of the axes, as far as values matter; of an interval its ends."""
    for axis in space.axes:
        if all(split_key(key)[0] == _FREE for key in axis.keys):
            continue
        domain = axis.domain
        values: Iterable[Any] = (domain.low, domain.high) if isinstance(domain, Interval) else iter_of(domain)
        yield from (axis.overrides(value) for value in values)


def iter_of(domain: Any) -> Iterator[Any]:
    """Yield the values of a domain that can be counted off, at most as many as are checked one by one."""
    return (domain[place] for place in range(min(len(domain), FULLY_CHECKED)))


def _together(space: Space) -> Iterator[Overrides]:
    """Yield each combination of the axes that rules look at together, with what their conditions need."""
    kept = [at for at, axis in enumerate(space.axes) if _is_looked_at(axis)]
    for at in kept:
        kept += [c.axis for c in space.axes[at].clauses if c.axis is not None and c.axis not in kept]
    kept.sort()
    if any(isinstance(space.axes[at].domain, Interval) for at in kept):
        return
    places = {at: place for place, at in enumerate(kept)}
    axes = tuple(_moved(space.axes[at], places) for at in kept)
    keys = {key for axis in axes for key in axis.keys}
    gone = {key for axis in space.axes for key in axis.keys} - keys
    rules: tuple[Rule, ...] = tuple(rule for rule in space.exclude if not gone & rule.wanted.keys())
    order = tuple(places[at] for at in space.order if at in places)
    yield from Grid(Space(axes, order, (), rules)).points()


def _moved(axis: Axis, places: Mapping[int, int]) -> Axis:
    clauses = tuple(
        replace(clause, axis=None if clause.axis is None else places[clause.axis]) for clause in axis.clauses
    )
    return replace(axis, clauses=clauses)

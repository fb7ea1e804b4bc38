"""Which trials a rehearsal has: one for each branch of the space, one again, one for each swept key. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflows.axes import Axis, Clause, Overrides, Space
from airflows.domains import Interval, Listed, likeness
from airflows.errors import SpecError
from airflows.ids import canonical_json
from airflows.keys import get_key, nearest, split_key
from airflows.sweepfile import LoadedSweep
from airflows.train import decode, effective

MARK = "env_variables.AIRFLOWS_REHEARSAL"
"""What tells a trial that is run again from the first: two points must not be the same."""
MOST_KEYS = 16
MOST_BRANCHES = 8
_SEEN_BY_THE_PROGRAM = frozenset({"parameters", "env_variables", "secrets", "command"})
# A rehearsal has its own.
_NOT_REHEARSED = "timeout_minutes"


@dataclass(frozen=True, slots=True)
class Probe:
    """A trial that differs from another one in one swept key.

    Attributes:
        key: the key, or several that are coupled.
        trial: its number.
        beside: the number of the trial that it is compared with.
        before: that one's value.
        after: its own.
    """

    key: str
    trial: int
    beside: int
    before: Any
    after: Any


@dataclass(slots=True)
class Cast:
    """The trials of a rehearsal.

    Attributes:
        rows: overrides of each trial, by number; those of branches come first.
        branches: what is special about each, in words; empty where there is only one.
        controls: of each branch that a key is changed in, the number of the same trial run again.
        probes: the trials that show whether swept keys reach the program.
        branches_left: branches that are too many.
        keys_left: swept keys that nothing is shown about, each with why.
        out_of_sight: those of them that the program never sees.
    """

    rows: list[Overrides] = field(default_factory=list)
    branches: list[str] = field(default_factory=list)
    controls: dict[int, int] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)
    branches_left: int = 0
    keys_left: dict[str, str] = field(default_factory=dict)
    out_of_sight: set[str] = field(default_factory=set)

    def key_named(self, text: str) -> str:
        """Return the swept key of that name, or with that last part; one of coupled keys stands for all.

        Raises:
            SpecError: none is, or several are.
        """
        names = [*dict.fromkeys([*(probe.key for probe in self.probes), *self.keys_left])]
        by_key = {key: name for name in names for key in name.split(", ")}
        if text in names or text in by_key:
            return by_key.get(text, text)
        found = {name for key, name in by_key.items() if split_key(key)[-1] == text}
        if len(found) == 1:
            return found.pop()
        message = f"{text} is {'not one key' if found else 'no key'} that is swept."
        close = nearest(text, by_key)
        hint = (
            f"Did you mean {close}?"
            if close
            else f"There are: {'; '.join(sorted(found or names)) or 'none'}."
        )
        raise SpecError(message, field=text, hint=hint)


def cast_of(sweep: LoadedSweep, *, most_branches: int = MOST_BRANCHES, most_keys: int = MOST_KEYS) -> Cast:
    """Return the trials of a sweep's rehearsal.

    A branch is a value of a key that a condition looks at, or a row of `include` with other keys.

    Args:
        sweep: the sweep.
        most_branches: the first so many are rehearsed.
        most_keys: so many swept keys are changed.
    """
    cast = Cast()
    branches = list(_branches(sweep))
    cast.branches_left = max(0, len(branches) - most_branches)
    for words, point in branches[:most_branches]:
        cast.rows.append(point)
        cast.branches.append(words if len(branches) > 1 else "")
    changes = [change for change in _changes(sweep, cast) if change is not None]
    for key, *_ in changes[most_keys:]:
        cast.keys_left[key] = f"it is one too many: a rehearsal changes {most_keys} keys at most"
    for at in sorted({beside for _, beside, *_ in changes[:most_keys]}):
        cast.controls[at] = _number(cast, {**cast.rows[at], MARK: "again"})
    for key, beside, before, after, point in changes[:most_keys]:
        cast.probes.append(Probe(key, _number(cast, point), beside, before, after))
    return cast


def _number(cast: Cast, row: Overrides) -> int:
    """Return the trial with these overrides, after adding it when there is none."""
    known = [canonical_json(each) for each in cast.rows]
    if canonical_json(row) in known:
        return known.index(canonical_json(row))
    cast.rows.append(row)
    return len(cast.rows) - 1


# Branches


def _branches(sweep: LoadedSweep) -> Iterator[tuple[str, Overrides]]:
    """Yield (what is special about it, its first point) of each branch."""
    space = sweep.space
    # An adaptive method that knows earlier sweeps has no point in advance.
    known = next(iter(sweep.expansion.points()), None)
    first = _consistent(space, {}, {}) if known is None else dict(known.overrides)
    replicates = sweep.spec.replicates
    always = {} if replicates is None else {replicates.key: replicates.values[0]}
    made, watched = [first], dict[str, None]()
    for axis, value in _alternatives(space):
        wanted = axis.overrides(value)
        watched |= dict.fromkeys(wanted)
        if not any(_has(point, wanted) for point in made):
            point = _point_with(sweep, wanted, first)
            made += [] if point is None else [point]
    for row in space.include:
        if not space.is_excluded(row) and not any(point.keys() == row.keys() for point in made):
            made.append(dict(row))
    for point in made:
        values = ", ".join(f"{key}: {point[key]}" for key in watched if key in point)
        yield values or f"with {', '.join(point)}", _rehearsed({**point, **always})


def _alternatives(space: Space) -> Iterator[tuple[Axis, Any]]:
    """Yield each value of the axes that conditions look at."""
    watched: dict[int, list[Clause]] = {}
    for axis in space.axes:
        for clause in axis.clauses:
            if clause.axis is not None:
                watched.setdefault(clause.axis, []).append(clause)
    for at in sorted(watched):
        axis = space.axes[at]
        if isinstance(axis.domain, Listed):
            yield from ((axis, value) for value in axis.domain.values)
        else:
            # Of many numbers those count that a condition names, and one besides.
            named = [value for clause in watched[at] for value in clause.values]
            held = [value for value in named if axis.holds({axis.keys[0]: value})]
            yield from ((axis, value) for value in [*held, _middle(axis)])


def _point_with(sweep: LoadedSweep, wanted: Overrides, like: Overrides) -> Overrides | None:
    """Return a point with these values, as like another one as conditions allow; None when there is none."""
    made = _consistent(sweep.space, {**_required(sweep.space, wanted), **wanted}, like)
    if _has(made, wanted) and _may_be(sweep, made):
        return made
    found = sweep.expansion.find(wanted)
    return None if found is None else dict(found.overrides)


def _required(space: Space, wanted: Mapping[str, Any]) -> Overrides:
    """Return what else must hold for the axes of these keys to be active."""
    needed: Overrides = {}
    for axis in space.axes:
        if not set(axis.keys) & wanted.keys():
            continue
        for clause in axis.clauses:
            if clause.axis is None or clause.key in needed or clause.key in wanted:
                continue
            other = space.axes[clause.axis]
            value = next((each for each in _values(other) if _fits(other, each, clause)), None)
            if value is not None:
                held = other.overrides(value)
                needed |= {**_required(space, held), **held}
    return needed


def _fits(axis: Axis, value: Any, clause: Clause) -> bool:
    return likeness(axis.overrides(value)[clause.key]) in clause.wanted


def _consistent(space: Space, wanted: Mapping[str, Any], like: Mapping[str, Any]) -> Overrides:
    """Return the point with the wanted values, else those it is to be like, else any, of all active keys."""
    made: Overrides = {}
    for at in space.order:
        axis = space.axes[at]
        if not space.is_active(axis, made):
            continue
        source = next((each for each in (wanted, like) if all(key in each for key in axis.keys)), None)
        made |= axis.overrides(_middle(axis)) if source is None else {key: source[key] for key in axis.keys}
    return {key: made[key] for axis in space.axes for key in axis.keys if key in made}


def _may_be(sweep: LoadedSweep, point: Overrides) -> bool:
    """Whether the sweep allows such a point, and it makes a train.yaml that can run."""
    if sweep.space.is_excluded(point):
        return False
    try:
        decode(effective(sweep.base.tree, point))
    except SpecError:
        return False
    return True


def _has(point: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(key in point and likeness(point[key]) == likeness(value) for key, value in wanted.items())


def _rehearsed(point: Overrides) -> Overrides:
    return {key: value for key, value in point.items() if split_key(key)[0] != _NOT_REHEARSED}


# Keys

_Change = tuple[str, int, Any, Any, Overrides]


def _changes(sweep: LoadedSweep, cast: Cast) -> Iterator[_Change | None]:
    """Yield (key, the branch it is changed in, value before, after, the changed point) of each swept key."""
    for axis in sweep.space.axes:
        yield _changed_axis(sweep, cast, axis)
    replicates = sweep.spec.replicates
    if replicates is not None and len(replicates.values) > 1:
        key, values = replicates.key, replicates.values
        yield _changed(sweep, cast, (key,), 0, ({**cast.rows[0], key: value} for value in values[1:]))
    yield from _included(sweep, cast)


def _included(sweep: LoadedSweep, cast: Cast) -> Iterator[_Change | None]:
    """Yield the changes of keys that only rows of `include` change, in values or by having them at all."""
    axes = sweep.space.axes
    swept = {key for axis in axes if len(_values(axis)) > 1 for key in axis.keys}
    own = (
        [{key: value for axis in axes for key, value in axis.overrides(_middle(axis)).items()}]
        if axes
        else []
    )
    rows = [*(row for row in sweep.space.include if not sweep.space.is_excluded(row)), *own]
    for key in dict.fromkeys(key for row in rows for key in row if key not in swept):
        values = {canonical_json(row[key]): row[key] for row in rows if key in row}
        base = get_key(sweep.base.tree, split_key(key), None)
        is_dropped = any(key not in row for row in rows) and canonical_json(base) not in values
        if len(values) + is_dropped < 2:  # noqa: PLR2004 - a key with one value is not swept
            continue
        beside = next((at for at, row in enumerate(cast.rows) if key in row), None)
        if beside is None:
            _leave(cast, (key,), "no branch that is rehearsed has it")
            continue
        row = cast.rows[beside]
        made = [{**row, key: value} for value in _furthest([*values.values()], row[key])]
        without = {other: value for other, value in row.items() if other != key}
        yield _changed(sweep, cast, (key,), beside, iter([*made, *([without] if is_dropped else [])]))


def _leave(cast: Cast, keys: Sequence[str], why: str) -> None:
    name = ", ".join(keys)
    cast.keys_left[name] = why
    if not any(split_key(key)[0] in _SEEN_BY_THE_PROGRAM for key in keys):
        cast.out_of_sight.add(name)


def _changed_axis(sweep: LoadedSweep, cast: Cast, axis: Axis) -> _Change | None:
    values = list(_values(axis))
    if len(values) < 2:  # noqa: PLR2004 - a key with one value is not swept
        return None
    beside = next((at for at, row in enumerate(cast.rows) if all(key in row for key in axis.keys)), None)
    if beside is None:
        _leave(cast, axis.keys, "no branch that is rehearsed has it")
        return None
    row = cast.rows[beside]
    own = {key for each in sweep.space.axes for key in each.keys}
    extra = {key: value for key, value in row.items() if key not in own}
    now = [row[key] for key in axis.keys]
    ordered = _furthest(values, tuple(now) if len(axis.keys) > 1 else now[0])
    made = ({**_consistent(sweep.space, axis.overrides(value), row), **extra} for value in ordered)
    # One that adds and drops no dependent keys shows most.
    return _changed(
        sweep, cast, axis.keys, beside, iter(sorted(made, key=lambda point: point.keys() != row.keys()))
    )


def _changed(
    sweep: LoadedSweep, cast: Cast, keys: Sequence[str], beside: int, made: Iterator[Overrides]
) -> _Change | None:
    name = ", ".join(keys)
    if not any(split_key(key)[0] in _SEEN_BY_THE_PROGRAM for key in keys):
        _leave(cast, keys, "the backend goes by it, not the program")
        return None
    row = cast.rows[beside]
    for point in map(_rehearsed, made):
        if not all(_has(point, {key: row[key]}) for key in keys) and _may_be(sweep, point):
            base = {key: get_key(sweep.base.tree, split_key(key), None) for key in keys}
            before, after = ([each.get(key, base[key]) for key in keys] for each in (row, point))
            return (name, beside, *((before[0], after[0]) if len(keys) == 1 else (before, after)), point)
    _leave(cast, keys, "no other value may stand beside those of the first point")
    return None


def _values(axis: Axis) -> Sequence[Any]:
    """Return the values of an axis: all where they are listed, else its ends."""
    domain = axis.domain
    if isinstance(domain, Listed):
        return domain.values
    if isinstance(domain, Interval):
        return [domain.at(domain.low), domain.at(domain.high)]
    return [domain[0], domain[len(domain) - 1]][: len(domain)]


def _middle(axis: Axis) -> Any:
    domain = axis.domain
    return domain.draw(0.5) if isinstance(domain, Interval) else domain[0]


def _furthest(values: Sequence[Any], now: Any) -> list[Any]:
    """Return the values, those that differ most from the present one first."""
    numbers = (int, float)
    if isinstance(now, numbers) and all(isinstance(value, numbers) for value in values):
        return sorted(values, key=lambda value: -abs(value - now))
    return list(reversed(values))

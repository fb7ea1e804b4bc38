"""From `space`, `include` and `exclude` of a sweep.yaml to a `Space`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflows.axes import Axis, Clause, Overrides, Rule, Space, topological
from airflows.domainfile import ReadDomain, read_domain
from airflows.domains import Interval, Listed, canonical_column, canonical_number, likeness
from airflows.keynames import Claimed, KeyNames, nearest_key
from airflows.keys import MISSING, get_key, split_key
from airflows.place import Place
from airflows.train import normalised


@dataclass(slots=True)
class _Reader:
    """Reads the three parts in turn; what was read before is needed to read on."""

    base: Mapping[str, Any]
    names: KeyNames
    place: Place
    keys: list[tuple[str, ...]] = field(default_factory=list)
    domains: list[ReadDomain] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    column_of: dict[str, tuple[int, int]] = field(default_factory=dict)
    claimed: Claimed = field(default_factory=Claimed)
    clauses: list[tuple[Clause, ...]] = field(default_factory=list)
    rows: list[Overrides] = field(default_factory=list)


def read_space(
    space: Mapping[str, Any],
    include: Sequence[Mapping[str, Any]],
    exclude: Sequence[Mapping[str, Any]],
    *,
    base: Mapping[str, Any],
    names: KeyNames,
    place: Place,
) -> Space:
    """Return the space; what people should know about it is added to `names.notices`.

    Args:
        space: override key to domain, as in the file.
        include: rows of overrides.
        exclude: rules.
        base: the base's tree, overrides applied.
        names: checks the keys.
        place: the sweep file as a whole.

    Raises:
        SpecError: something in it makes no sense; the error says what and where.
    """
    reader = _Reader(base, names, place)
    for raw_key, raw in space.items():
        _read_axis(reader, raw_key, raw)
    for at, read in enumerate(reader.domains):
        reader.clauses.append(_read_condition(reader, at, read))
    order, cycle = topological(reader.clauses)
    if cycle:
        chain = " → ".join(", ".join(reader.keys[at]) for at in cycle)
        reader.places[cycle[0]].at("when").fail(f"The conditions go round in a circle: {chain}.")
    repeated = _read_include(reader, include)
    axes = tuple(
        Axis(keys, read.domain, clauses)
        for keys, read, clauses in zip(reader.keys, reader.domains, reader.clauses, strict=True)
    )
    for at, clauses in enumerate(reader.clauses):
        _warn_of_idle_clauses(reader, at, clauses)
    rules = tuple(_read_rule(reader, row, place.at("exclude", at)) for at, row in enumerate(exclude))
    return Space(axes, order, tuple(reader.rows), rules, repeated)


def _read_axis(reader: _Reader, raw_key: str, raw: Any) -> None:
    place = reader.place.at("space", raw_key)
    keys = reader.names.coupled(raw_key, place)
    for key in keys:
        reader.names.check_swept(key, place)
        if key in reader.claimed:
            place.fail(f"{key} is listed twice in the space.", "Name each key once, coupled or alone.")
        reader.claimed.add(key, place)
    reader.column_of |= {key: (len(reader.keys), column) for column, key in enumerate(keys)}
    reader.keys.append(keys)
    reader.places.append(place)
    reader.domains.append(read_domain(raw, keys, place))


def _read_condition(reader: _Reader, at: int, read: ReadDomain) -> tuple[Clause, ...]:
    place = reader.places[at].at("when")
    clauses: list[Clause] = []
    for raw_key, raw in read.when.items():
        here = place.at(raw_key)
        key = reader.names.single(raw_key, here)
        reader.names.refuse_replicate_key(key, here)
        base = get_key(reader.base, split_key(key))
        if key not in reader.column_of and base is MISSING:
            known = [*reader.column_of, *reader.names.base_keys()]
            close = nearest_key(key, known)
            hint = (
                f"Did you mean {close}?"
                if close
                else "A condition looks at a key of the space or of the base."
            )
            here.fail(f"{key} is neither in the space nor in the base.", hint)
        if isinstance(raw, list) and not raw:
            here.fail("The list is empty, so the condition never holds.")
        values = tuple(normalised(key, value) for value in (raw if isinstance(raw, list) else [raw]))
        wanted = frozenset(likeness(value) for value in values)
        axis = reader.column_of[key][0] if key in reader.column_of else None
        holds = base is not MISSING and likeness(base) in wanted
        clauses.append(Clause(key, axis, values, wanted, holds))
    return tuple(clauses)


def _warn_of_idle_clauses(reader: _Reader, at: int, clauses: Sequence[Clause]) -> None:
    for clause in clauses:
        idle = [value for value in clause.values if not _may_be(reader, clause.key, value, rows=False)]
        if idle:
            shown = " or ".join(repr(value) for value in idle)
            effect = (
                "the key is never varied" if len(idle) == len(clause.values) else "that part has no effect"
            )
            reader.names.notices.append(
                reader.places[at].at("when").notice(f"{clause.key} is never {shown}, so {effect}.")
            )


def _may_be(reader: _Reader, key: str, value: Any, *, rows: bool) -> bool:
    """Whether any point may have the value, the points of `include` counted if `rows`."""
    if rows and any(key in row and likeness(row[key]) == likeness(value) for row in reader.rows):
        return True
    if key in reader.column_of:
        at, column = reader.column_of[key]
        domain = reader.domains[at].domain
        found = domain.holds(value) if isinstance(domain, Interval) else domain.find(value, column)
        if found or not (reader.clauses[at] or rows):
            return bool(found)
    base = get_key(reader.base, split_key(key))
    return base is not MISSING and likeness(base) == likeness(value)


def _read_include(reader: _Reader, include: Sequence[Mapping[str, Any]]) -> int:
    """Read the rows, equal ones once, and return how many were dropped."""
    named = [_read_row(reader, row, reader.place.at("include", at)) for at, row in enumerate(include)]
    columns: dict[str, list[int]] = {}
    for at, row in enumerate(named):
        for key in row:
            columns.setdefault(key, []).append(at)
    for key, where in columns.items():
        for at, value in zip(where, _column(reader, key, [named[at][key] for at in where]), strict=True):
            named[at][key] = value
    distinct: dict[str, Overrides] = {}
    for row in named:
        distinct.setdefault(likeness(row), row)
    reader.rows += distinct.values()
    return len(named) - len(distinct)


def _read_row(reader: _Reader, row: Mapping[str, Any], place: Place) -> Overrides:
    read: Overrides = {}
    claimed = Claimed()
    for raw_key, value in row.items():
        here = place.at(raw_key)
        key = reader.names.single(raw_key, here)
        reader.names.check_swept(key, here)
        if key in read:
            here.fail(f"{key} is listed twice in this row.")
        claimed.add(key, here)
        read[key] = normalised(key, value)
    return read


def _column(reader: _Reader, key: str, values: Sequence[Any]) -> list[Any]:
    """Return the values of one key over all rows, in the type of its domain."""
    if key not in reader.column_of:
        return canonical_column(values)
    at, column = reader.column_of[key]
    domain = reader.domains[at].domain
    if isinstance(domain, Interval):
        return [canonical_number(value, is_float=not domain.is_whole) for value in values]
    if not isinstance(domain, Listed):
        return [canonical_number(value, is_float=not domain.is_whole) for value in values]
    held = [row[column] if domain.is_coupled else row for row in domain.values]
    is_float = any(type(value) is float for value in held)
    found = [domain.find(value, column) for value in values]
    return [
        held[places[0]] if places else canonical_number(value, is_float=is_float)
        for value, places in zip(values, found, strict=True)
    ]


def _read_rule(reader: _Reader, raw: Mapping[str, Any], place: Place) -> Rule:
    if not raw:
        place.fail("A rule without keys would remove every point.")
    row: dict[str, Any] = {}
    base: dict[str, str | None] = {}
    for raw_key, given in raw.items():
        here = place.at(raw_key)
        key = reader.names.single(raw_key, here)
        value = normalised(key, given)
        reader.names.refuse_replicate_key(key, here)
        if key in row:
            here.fail(f"{key} is listed twice in this row.")
        standing = get_key(reader.base, split_key(key))
        known = {*reader.column_of, *(name for made in reader.rows for name in made)}
        if key not in known and standing is MISSING:
            close = nearest_key(key, [*known, *reader.names.base_keys()])
            hint = f"Did you mean {close}?" if close else None
            here.fail(f"{key} is neither in the space nor in the base.", hint)
        if not _may_be(reader, key, value, rows=True):
            reader.names.notices.append(
                here.notice(f"{key} is never {value!r}, so this rule removes nothing.")
            )
        row[key] = value
        base[key] = None if standing is MISSING else likeness(standing)
    return Rule(row, {key: likeness(value) for key, value in row.items()}, base)

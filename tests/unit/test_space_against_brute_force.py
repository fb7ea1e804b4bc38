"""The expansion against the plainest one there is: nested loops, then strip, drop and append."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflows.domains import likeness
from airflows.errors import SpecError
from airflows.ids import canonical_json
from airflows.search.enumerate import Grid
from airflows.sweepfile import sweep_from_mapping

NAMES = "abcd"
BASE = {
    "experiment_name": "demo",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"a": 1, "b": 0, "c": 2.0, "d": "x"},
}
VALUES = st.sampled_from([0, 1, 2, 1.0, 0.5, "x", "1", True, None])


def key(name):
    return f"parameters.{name}"


def sweep(**fields):
    tree = {"name": "demo", "base": BASE, **fields}
    return sweep_from_mapping(tree, directory=Path())


@st.composite
def conditions(draw, name):
    others = draw(st.lists(st.sampled_from([n for n in NAMES if n != name]), max_size=2, unique=True))
    return {key(other): draw(st.lists(VALUES, min_size=1, max_size=2)) for other in others}


@st.composite
def spaces(draw):
    names = draw(st.permutations(NAMES))[: draw(st.integers(1, 4))]
    space = {}
    while names:
        group, names = (
            (names[:2], names[2:]) if draw(st.booleans()) and len(names) > 1 else (names[:1], names[1:])
        )
        rows = st.lists(VALUES, min_size=len(group), max_size=len(group))
        values = draw(st.lists(rows if len(group) > 1 else VALUES, min_size=1, max_size=3))
        when = draw(conditions(group[0])) if draw(st.booleans()) else {}
        when = {k: v for k, v in when.items() if k not in map(key, group)}
        space[", ".join(map(key, group))] = {"values": values, "when": when} if when else values
    return space


def rows(least=0):
    row = st.dictionaries(st.sampled_from(list(map(key, NAMES))), VALUES, min_size=least, max_size=3)
    return st.lists(row, max_size=2)


def as_typed(values):
    """1 is 1.0 where one of the values is a float."""
    if any(type(v) is float for v in values):
        return [float(v) if type(v) is int else v for v in values]
    return values


def brute_force(space, include, exclude):
    """Return the points by nested loops over the whole product."""
    axes, conditions_of, types = [], {}, {}
    for text, raw in space.items():
        keys = text.split(", ")
        values, when = (raw["values"], raw["when"]) if isinstance(raw, dict) else (raw, {})
        columns = [
            as_typed(c) for c in zip(*(values if len(keys) > 1 else [[v] for v in values]), strict=True)
        ]
        types |= dict(zip(keys, columns, strict=True))
        axes.append([dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)])
        conditions_of |= dict.fromkeys(keys, when)

    def stripped(point):
        """Drop keys until what is left agrees with itself: a key is there if its condition holds."""
        for kept in itertools.product([True, False], repeat=len(axes)):
            left = {
                k: v
                for axis, keep in zip(axes, kept, strict=True)
                if keep
                for k, v in point.items()
                if k in axis[0]
            }
            if all((k in left) is holds(conditions_of[k], left) for k in point):
                return left
        raise AssertionError

    def value(point, k):
        return point.get(k, BASE["parameters"][k.removeprefix("parameters.")])

    def holds(when, point):
        return all(
            likeness(value(point, k)) in map(likeness, v if isinstance(v, list) else [v])
            for k, v in when.items()
        )

    def typed(row):
        made = {}
        for k, v in row.items():
            column = types.get(k) or as_typed([r[k] for r in include if k in r])
            same = [held for held in column if likeness(held) == likeness(v)]
            made[k] = same[0] if same else as_typed([v, *column])[0]
        return made

    points = [
        stripped({k: v for part in choice for k, v in part.items()}) for choice in itertools.product(*axes)
    ]
    points += [typed(row) for row in include]
    first = {}
    for point in points:
        first.setdefault(canonical_json(point), point)
    return [
        p for p in first.values() if not any(holds({k: [v] for k, v in rule.items()}, p) for rule in exclude)
    ]


@settings(max_examples=150, deadline=None)
@given(spaces(), rows(), rows(least=1), st.data())
def test_a_grid_is_what_nested_loops_make(space, include, exclude, data):
    try:
        loaded = sweep(space=space, include=include, exclude=exclude)
    except SpecError as exc:
        refusal = exc.message
    else:
        refusal = ""
    if "circle" in refusal:
        return
    expected = brute_force(space, include, exclude)
    assert ("0 trials left" in refusal) == bool(refusal) == (not expected)
    if refusal:
        return
    points = list(loaded.expansion.points())

    assert [canonical_json(p.overrides) for p in points] == [canonical_json(p) for p in expected]
    assert [p.index for p in points] == list(range(len(expected)))
    assert loaded.expansion.count() == len(expected)
    start = data.draw(st.integers(0, len(expected) + 1))
    assert list(loaded.expansion.points(start)) == points[start:]


@settings(max_examples=60, deadline=None)
@given(spaces(), rows(least=1), st.integers(0, 5))
def test_random_draws_are_the_grid_in_another_order(space, exclude, seed):
    try:
        loaded = sweep(
            space=space, exclude=exclude, search={"method": "random", "trials": 1000, "seed": seed}
        )
    except SpecError:
        return
    grid = brute_force(space, [], exclude)
    drawn = [canonical_json(p.overrides) for p in loaded.expansion.points()]

    assert sorted(drawn) == sorted(map(canonical_json, grid))
    assert loaded.expansion.count() == len(grid)


@settings(max_examples=60, deadline=None)
@given(spaces(), rows(least=1), st.data())
def test_any_point_of_a_grid_can_be_asked_for(space, exclude, data):
    try:
        grid = Grid(sweep(space=space, exclude=exclude).space)
    except SpecError:
        return
    number = data.draw(st.integers(0, grid.count - 1))

    assert grid.point(number) == list(grid.points())[number]
    assert grid.number(grid.point(number)) == number
    with pytest.raises(IndexError):
        grid.point(grid.count)

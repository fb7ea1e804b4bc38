"""The values a domain stands for."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflows.domainfile import read_domain
from airflows.domains import Interval, Listed, Powers, Steps, canonical_column, likeness
from airflows.errors import SpecError
from airflows.place import Place


def domain(raw, keys=("a",)):
    return read_domain(raw, keys, Place("sweep.yaml")).domain


def values(raw):
    read = domain(raw)
    return [read[place] for place in range(len(read))]


def typed(items):
    return [(type(item), item) for item in items]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"min": 0.1, "max": 0.5, "step": 0.1}, [0.1, 0.2, 0.3, 0.4, 0.5]),
        ({"min": 0, "max": 1, "step": 0.3}, [0.0, 0.3, 0.6, 0.9]),
        ({"min": 1e-4, "max": 3e-4, "step": 1e-4}, [0.0001, 0.0002, 0.0003]),
        ({"min": 1, "max": 10, "step": 4}, [1, 5, 9]),
        ({"min": 1, "max": 3.5, "step": 1}, [1, 2, 3]),
        ({"min": 1.0, "max": 3, "step": 1}, [1.0, 2.0, 3.0]),
        ({"min": -1, "max": 1, "step": 0.5}, [-1.0, -0.5, 0.0, 0.5, 1.0]),
        ({"min": 0, "max": 1, "step": 5}, [0]),
        ({"min": 0, "max": 1, "count": 5}, [0.0, 0.25, 0.5, 0.75, 1.0]),
        ({"min": 1, "max": 5, "count": 5}, [1, 2, 3, 4, 5]),
        ({"min": 0.1, "max": 0.7, "count": 3}, [0.1, 0.4, 0.7]),
        ({"min": 0, "max": 1, "count": 4}, [0.0, 1 / 3, 2 / 3, 1.0]),
        ({"min": 1e-4, "max": 1e-1, "count": 4, "log": True}, [1e-4, 1e-3, 1e-2, 1e-1]),
        ({"min": 16, "max": 256, "count": 5, "log": True}, [16, 32, 64, 128, 256]),
        ({"min": 1, "max": 1000, "count": 4, "log": True}, [1, 10, 100, 1000]),
        ({"min": 1, "max": 10, "count": 2, "log": True}, [1, 10]),
        ({"min": 0.5, "max": 2, "count": 3, "log": True}, [0.5, 1.0, 2.0]),
        (5, [5]),
        ("adam", ["adam"]),
        (False, [False]),
        ([None], [None]),
        ([[64, 32], [8]], [[64, 32], [8]]),
        ([{"b": 1}, "x"], [{"b": 1}, "x"]),
        ({"values": [1, 2], "when": {"b": 1}}, [1, 2]),
        ({"values": "adam"}, ["adam"]),
    ],
)
def test_a_finite_domain_is_counted_off(raw, expected):
    assert typed(values(raw)) == typed(expected)


def test_counted_values_that_are_not_all_whole_are_floats():
    assert {type(value) for value in values({"min": 1, "max": 10, "count": 3, "log": True})} == {float}


@pytest.mark.parametrize(
    ("raw", "expected", "dropped"),
    [
        ([1e-3, 1.0e-3, 1e-4, 5e5], [1e-3, 1e-4, 5e5], 1),
        ([1, 1.0, 2], [1.0, 2.0], 1),
        ([1, 2, 1, 1], [1, 2], 2),
        ([0.0, -0.0], [0.0], 1),
        ([None, 1, 0.5], [None, 1.0, 0.5], 0),
        ([True, 1, "1", 1.0], [True, 1.0, "1"], 1),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], [{"a": 1, "b": 2}], 1),
        (["0.1", 0.1], ["0.1", 0.1], 0),
    ],
)
def test_equal_values_are_one(raw, expected, dropped):
    read = domain(raw)

    assert typed(read.values) == typed(expected)
    assert sum(read.repeats.values()) == dropped


def test_each_coupled_key_has_a_type_of_its_own():
    read = domain([["small", 1, 1], ["large", 8, 0.5], ["small", 1, 1.0]], ("a", "b", "c"))

    assert read.values == (("small", 1, 1.0), ("large", 8, 0.5))
    assert [type(value) for value in read.values[0]] == [str, int, float]
    assert read.repeats == {0: 1}
    assert (list(read.find("small", 0)), list(read.find(0.5, 2)), list(read.find(9, 1))) == ([0], [1], [])


@pytest.mark.parametrize(
    ("raw", "lengths"),
    [([[0.1, 0.2, 0.3], [32, 64]], "3 and 2"), ([[0.1, 0.2], [32]], "2 and 1"), ([[0.1], [0.2], [0.3]], "1")],
)
def test_rows_of_another_length_than_there_are_keys_are_refused(raw, lengths):
    with pytest.raises(SpecError) as caught:
        domain(raw, ("parameters.lr", "parameters.batch"))

    assert f"parameters.lr and parameters.batch are coupled" in caught.value.message  # noqa: F541
    assert f"have {lengths} values" in caught.value.message


@pytest.mark.parametrize(
    ("raw", "whole"),
    [
        ({"min": 1, "max": 9}, True),
        ({"min": 1.0, "max": 9}, False),
        ({"min": 1, "max": 9.5}, False),
        ({"min": 1, "max": 9, "log": True}, True),
    ],
)
def test_an_interval_is_of_integers_when_both_bounds_are(raw, whole):
    read = domain(raw)
    drawn = [read.draw(share / 1000) for share in range(1000)]

    assert {type(value) for value in drawn} == {int if whole else float}
    assert (min(drawn), read.low <= max(drawn) <= read.high) == (1, True)
    if whole:
        assert set(drawn) == set(range(1, 10))


def test_whole_numbers_are_equally_likely_and_log_ones_favour_the_small():
    even, log = domain({"min": 1, "max": 8}), domain({"min": 1, "max": 8, "log": True})
    counts = [[[d.draw(s / 8000) for s in range(8000)].count(value) for value in (1, 8)] for d in (even, log)]

    assert counts[0] == [1000, 1000]
    assert counts[1][0] > 4 * counts[1][1]


@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3), st.booleans(), st.floats(0, 1, exclude_max=True))
def test_what_is_drawn_lies_between_the_bounds(low, width, log, share):
    read = Interval(low, low + width, log, False)

    assert low <= read.draw(share) <= low + width


def test_draws_in_log_spread_over_the_orders_of_magnitude():
    read = domain({"min": 1e-6, "max": 1.0, "log": True})

    assert [read.draw(share) for share in (0, 0.5, 1)] == [1e-6, 1e-3, 1.0]
    assert len(repr(read.draw(0.123456789))) < 22


@given(st.integers(-1000, 1000), st.integers(1, 200), st.integers(1, 200), st.sampled_from([1, 10, 1000]))
def test_steps_are_exact_decimals(start, step, count, scale):
    low, width = start / scale, step / scale
    made = Steps.of(low, Fraction(step, scale), count, is_whole=False)

    assert [made[i] for i in range(count)] == [float(Fraction(start + i * step, scale)) for i in range(count)]
    assert all(made.find(made[i]) == [i] for i in range(count))
    assert made.find(low - width) == []


@given(st.floats(1e-9, 1e9), st.floats(1.001, 1e9), st.integers(2, 60))
def test_powers_are_found_where_they_are(low, ratio, count):
    made = Powers.of(low, low * ratio, count)
    listed = [made[i] for i in range(count)]

    assert (listed[0], listed[-1]) == (low, low * ratio)
    assert all(a < b for a, b in pairwise(listed))
    assert all(made.find(value) == [i] for i, value in enumerate(listed))
    assert made.find("x") == made.find(-1) == made.find(True) == ()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        ("1", 1, False),
        ([1, 2], [1.0, 2.0], True),
        ({"a": 1}, {"a": 1.0}, True),
        (None, False, False),
        (0.0, -0.0, True),
        (2**60, 2**60 + 1, False),
        ("a", "A", False),
    ],
)
def test_conditions_and_rules_take_equal_numbers_for_the_same(one, other, same):
    assert (likeness(one) == likeness(other)) is same


def test_a_column_of_integers_stays_one():
    assert typed(canonical_column([1, 2, "x"])) == typed([1, 2, "x"])


def test_a_million_steps_take_no_more_memory_than_ten():
    made = domain({"min": 0, "max": 1e6, "step": 1e-3})

    assert (len(made), made[10**9], made[1]) == (10**9 + 1, 1e6, 0.001)
    assert list(made.find(123.456)) == [123_456]


def test_a_listed_domain_is_looked_up_by_likeness():
    assert Listed.of([[0.5], [1]], is_coupled=False).find(1) == [1]

"""Values of replicates beyond those of the sweep file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflows.replication import further_value


@pytest.mark.parametrize(
    ("values", "next_ones"),
    [
        ([0, 1, 2], [3, 4, 5]),
        ([0], [1, 2, 3]),
        ([10, 20, 30], [40, 50, 60]),
        ([1, 3], [5, 7, 9]),
        ([42, 7, 13], [43, 44, 45]),
        ([2, 1, 0], [3, 4, 5]),
    ],
)
def test_the_rule_of_the_file_goes_on(values, next_ones):
    assert [further_value(values, len(values) + at) for at in range(3)] == next_ones


@pytest.mark.parametrize("values", [["a", "b"], [0.1, 0.2], [True, False], [1, "2"], [None], [[1], [2]]])
def test_values_from_which_nothing_follows_are_refused(values):
    with pytest.raises(ValueError, match="whole numbers"):
        further_value(values, len(values))


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=8, unique=True), st.integers(1, 30))
def test_no_value_comes_twice(values, more):
    made = [further_value(values, len(values) + at) for at in range(more)]
    assert len({*values, *made}) == len(values) + more

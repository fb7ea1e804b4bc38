"""The power of Welch's test, held to scipy; how many more replicates tell two points apart."""

import itertools
import math
import statistics
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflows.power import PROBABLY, replicates_needed, t_beyond, welch_power
from airflows.significance import Summary, summarize, t_quantile, welch

stats = pytest.importorskip("scipy.stats", reason="scipy is what these figures are compared with")


def beyond(critical, df, shift):
    """What scipy makes of it; of a tail too thin for it, it says NaN."""
    lower = stats.nct.cdf(-critical, df, shift)
    return stats.nct.sf(critical, df, shift) + (0.0 if math.isnan(lower) else lower)


@settings(deadline=None, max_examples=200)
@given(st.floats(0.5, 20), st.floats(1, 1000), st.floats(0, 12))
def test_tails_of_the_noncentral_t_agree_with_scipy(critical, df, shift):
    expected = beyond(critical, df, shift)
    assert t_beyond(critical, df, shift) == pytest.approx(expected, abs=1e-6)


@settings(deadline=None)
@given(st.floats(0.5, 20), st.floats(1, 1000))
def test_without_a_shift_it_is_student_s_t(critical, df):
    assert t_beyond(critical, df, 0) == pytest.approx(2 * stats.t.sf(critical, df), abs=1e-6)


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("difference", [2.5, 4.0])
def test_with_equal_deviations_the_power_is_that_of_the_t_test(n, difference):
    one, other = Summary(n, 0.0, 1.0), Summary(n, difference, 1.0)
    df, shift = 2 * n - 2, difference / math.sqrt(2 / n)
    critical = stats.t.ppf(0.975, df)
    expected = beyond(critical, df, shift)
    assert welch_power(one, other, 0.05) == pytest.approx(expected, abs=1e-6)


def test_the_power_is_how_often_the_test_finds_the_difference():
    one, other = Summary(8, 0.0, 1.0), Summary(5, 2.0, 1.5)
    chance = Random(7)
    found = statistics.mean(
        welch(
            summarize([chance.gauss(0.0, 1.0) for _ in range(8)]),
            summarize([chance.gauss(2.0, 1.5) for _ in range(5)]),
        ).p
        < 0.05
        for _ in range(3000)
    )
    assert welch_power(one, other, 0.05) == pytest.approx(found, abs=0.04)


@settings(deadline=None, max_examples=50)
@given(
    st.integers(2, 8), st.integers(2, 8), st.floats(0.1, 6), st.floats(0.01, 3), st.sampled_from([0.05, 0.01])
)
def test_the_number_of_replicates_is_the_first_that_has_the_power(n, m, difference, sd, level):
    one, other = Summary(n, 0.0, 1.0), Summary(m, difference, sd)
    powers = [welch_power(Summary(n + k, 0.0, 1.0), Summary(m + k, difference, sd), level) for k in range(31)]
    expected = next((k for k in range(1, 31) if powers[k] >= PROBABLY), None)
    assert replicates_needed(one, other, level, 30) == expected
    # More replicates never tell less.
    assert all(after >= before - 1e-6 for before, after in itertools.pairwise(powers) if before)


def test_equal_means_and_single_values_are_never_told_apart():
    assert replicates_needed(Summary(3, 0.5, 0.1), Summary(3, 0.5, 0.1), 0.05, 30) is None
    assert welch_power(Summary(1, 0.5, None), Summary(3, 0.9, 0.1), 0.05) == 0
    assert welch_power(Summary(3, 0.5, 0.0), Summary(3, 0.5, 0.0), 0.05) == 0
    assert welch_power(Summary(3, 0.5, 0.0), Summary(3, 0.6, 0.0), 0.05) == 1


def test_figures_of_any_size_give_a_probability():
    for scale in (1e-300, 1e-12, 1e12, 1.7e308):
        power = welch_power(Summary(4, -scale, scale / 4), Summary(4, scale, scale / 3), 0.05)
        assert power == pytest.approx(welch_power(Summary(4, -1.0, 1 / 4), Summary(4, 1.0, 1 / 3), 0.05))
    assert t_quantile(1 - 1e-6 / 2, 1.0) > 0
    assert 0 <= welch_power(Summary(2, 0.0, 1.0), Summary(2, 1e9, 1e-9), 1e-6) <= 1

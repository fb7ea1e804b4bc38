"""Student's t and Welch's test, held to scipy."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflows.significance import (
    Summary,
    confidence_interval,
    holm,
    regularized_beta,
    summarize,
    t_quantile,
    t_two_sided,
    welch,
)

stats = pytest.importorskip("scipy.stats", reason="scipy is what these figures are compared with")
special = pytest.importorskip("scipy.special")

# Whole numbers that vary: where deviations drown in the size of the values, scipy has no digits left.
samples = st.lists(st.integers(-1000, 1000).map(float), min_size=2, max_size=12).filter(
    lambda values: len(set(values)) > 1
)


@settings(deadline=None)
@given(st.floats(0, 1e4), st.floats(0.5, 1e5))
def test_probability_of_t_agrees_with_scipy(t, df):
    expected = 2 * stats.t.sf(t, df)
    assert t_two_sided(t, df) == pytest.approx(expected, rel=1e-8, abs=1e-290)
    assert t_two_sided(-t, df) == t_two_sided(t, df)


@settings(deadline=None)
@given(st.floats(0, 1), st.floats(0.1, 500), st.floats(0.1, 500))
def test_incomplete_beta_agrees_with_scipy(x, a, b):
    assert regularized_beta(x, 1 - x, a, b) == pytest.approx(special.betainc(a, b, x), rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 19, 29, 99, 999, 2.5, 7.3])
@pytest.mark.parametrize("probability", [0.5, 0.9, 0.975, 0.995])
def test_quantile_agrees_with_scipy(probability, df):
    assert t_quantile(probability, df) == pytest.approx(stats.t.ppf(probability, df), rel=1e-10, abs=1e-10)


@settings(deadline=None)
@given(samples, samples)
def test_welch_agrees_with_scipy(one, other):
    expected = stats.ttest_ind(one, other, equal_var=False)
    test = welch(summarize(one), summarize(other))
    assert test.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert test.t == pytest.approx(expected.statistic, rel=1e-9, abs=1e-12)
    assert test.df == pytest.approx(expected.df, rel=1e-9)


@settings(deadline=None)
@given(samples)
def test_interval_agrees_with_scipy(values):
    sample = summarize(values)
    expected = stats.t.interval(0.95, len(values) - 1, loc=sample.mean, scale=stats.sem(values))
    assert confidence_interval(sample) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_single_value_has_neither_deviation_nor_interval_nor_test():
    single = summarize([0.5])
    assert single == Summary(1, 0.5, None)
    assert confidence_interval(single) is None
    assert welch(single, summarize([0.1, 0.2])) is None
    assert welch(summarize([0.1, 0.2]), single) is None


def test_samples_that_do_not_vary_differ_for_certain_or_not_at_all():
    same, other = summarize([0.5, 0.5]), summarize([0.7, 0.7, 0.7])
    assert welch(same, other).p == 0
    assert welch(same, same).p == 1
    assert confidence_interval(same) == (0.5, 0.5)
    # The mean of three times 0.7 is not 0.7 in floats; that is no deviation.
    assert summarize([0.7, 0.7, 0.7]) == Summary(3, 0.7, 0.0)


def test_one_sample_that_does_not_vary_is_tested_against_one_that_does():
    # With one variance at zero the test is the one-sample test.
    expected = stats.ttest_1samp([0.1, 0.2, 0.4], 0.5)
    test = welch(summarize([0.5, 0.5]), summarize([0.1, 0.2, 0.4]))
    assert test.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert test.df == pytest.approx(2)


def test_very_large_and_very_small_values_neither_overflow_nor_vanish():
    large = summarize([1.7e308, -1.7e308])
    assert math.isfinite(large.sd)
    assert welch(large, large).p == 1
    assert 0 < welch(large, summarize([1.7e308, 1.6e308])).p < 1
    assert summarize([1e-200, 3e-200]).sd == pytest.approx(math.sqrt(2) * 1e-200)
    assert 0 <= welch(summarize([1e200, 2e200]), summarize([-1e200, 3e200])).p <= 1


def test_beta_is_exact_at_its_ends():
    assert regularized_beta(0, 1, 2, 3) == 0
    assert regularized_beta(1, 0, 2, 3) == 1
    assert t_two_sided(math.inf, 3) == 0
    assert t_two_sided(0, 3) == 1


def naive_holm(ps):
    """Holm's method as he wrote it: from the smallest p on, until one is not below its level."""
    order = sorted(range(len(ps)), key=lambda at: ps[at])

    def is_rejected(at, level):
        for place, other in enumerate(order):
            if not ps[other] * (len(ps) - place) < level:
                return False
            if other == at:
                return True
        return False

    return is_rejected


@given(st.lists(st.floats(0, 1), max_size=12), st.sampled_from([0.01, 0.05, 0.2]))
def test_holm_calls_the_same_differences_as_its_definition(ps, level):
    rejected = naive_holm(ps)
    assert [p < level for p in holm(ps)] == [rejected(at, level) for at in range(len(ps))]


@given(st.lists(st.floats(0, 1), max_size=30))
def test_adjusted_ps_are_at_least_as_large_keep_the_order_and_stay_below_one(ps):
    adjusted = holm(ps)
    assert all(p <= q <= 1 for p, q in zip(ps, adjusted, strict=True))
    in_order = sorted(range(len(ps)), key=lambda at: ps[at])
    assert all(adjusted[a] <= adjusted[b] for a, b in itertools.pairwise(in_order))


def test_one_test_needs_no_correction_and_none_is_no_error():
    assert holm([0.04]) == [0.04]
    assert holm([]) == []
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


@settings(deadline=None)
@given(samples, samples, st.integers(-290, 290))
def test_the_size_of_the_values_makes_no_difference(one, other, exponent):
    scale = 10.0**exponent
    plain = welch(summarize(one), summarize(other))
    scaled = welch(summarize([v * scale for v in one]), summarize([v * scale for v in other]))
    assert scaled.p == pytest.approx(plain.p, rel=1e-6)


def test_means_further_apart_than_floats_reach_are_compared_all_the_same():
    far = welch(summarize([1.7e308, 1.6e308]), summarize([-1.7e308, -1.6e308]))
    near = stats.ttest_ind([1.7, 1.6], [-1.7, -1.6], equal_var=False)
    assert far.p == pytest.approx(near.pvalue, rel=1e-9)
    assert far.t == pytest.approx(near.statistic, rel=1e-9)


@settings(deadline=None)
@given(samples, samples)
def test_samples_of_unequal_size_and_spread_agree_with_scipy(one, other):
    wide = [value * 1000 for value in other] + other
    expected = stats.ttest_ind(one, wide, equal_var=False)
    assert welch(summarize(one), summarize(wide)).p == pytest.approx(expected.pvalue, rel=1e-8)

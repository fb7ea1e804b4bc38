"""How many more replicates would tell two points apart? The power of Welch's test, in plain Python. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

from airflows.significance import Summary, t_quantile, welch

PROBABLY = 0.8
"""The power that "would probably" stands for."""

_STEPS = 400
_REACH = 9.0
_NORMAL = NormalDist()


def replicates_needed(one: Summary, other: Summary, level: float, most: int) -> int | None:
    """Return how many more replicates of both would probably show that their means differ.

    Both means and deviations are taken to be what they are now, so it is a guess.

    Args:
        one: of at least two values.
        other: of at least two values.
        level: of the test, at most 0.05.
        most: more are not thought of.

    Returns:
        From 1 on; None when `most` would not do either.
    """

    def would_do(more: int) -> bool:
        return welch_power(_grown(one, more), _grown(other, more), level) >= PROBABLY

    # With as many degrees of freedom as one likes it would take so much; that spares many integrals.
    least = _NORMAL.inv_cdf(1 - level / 2) + _NORMAL.inv_cdf(PROBABLY)
    test = welch(_grown(one, most), _grown(other, most))
    if test is None or abs(test.t) < least or not would_do(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if would_do(middle) else (middle, high)
    return high


def _grown(sample: Summary, more: int) -> Summary:
    return replace(sample, n=sample.n + more)


def welch_power(one: Summary, other: Summary, level: float) -> float:
    """Return how probably Welch's test tells two populations apart that are as these samples are.

    Args:
        one: number of values, mean and standard deviation.
        other: the same.
        level: a difference is one whose p is below it.
    """
    test = welch(one, other)
    if test is None:
        return 0.0
    if math.isinf(test.t) or math.isinf(test.df):
        return 1.0 - test.p
    return t_beyond(t_quantile(1 - level / 2, test.df), test.df, abs(test.t))


def t_beyond(critical: float, df: float, shift: float) -> float:
    """Return the probability that a noncentral t variable is beyond ±`critical`.

    It is a normal variable with mean `shift` over an independent estimate of its deviation, over which
    this integrates (Simpson's rule; to about six digits from one degree of freedom on).

    Args:
        critical: positive.
        df: degrees of freedom, at least 1.
        shift: the parameter of noncentrality.
    """
    low, high = (
        math.cbrt(bound) for bound in (max(0.0, 1 - _REACH / math.sqrt(2 * df)), 1 + _REACH / math.sqrt(df))
    )
    width = (high - low) / _STEPS
    scale = math.log(6) + df / 2 * math.log(df / 2) - math.lgamma(df / 2)

    def at(place: int) -> float:
        # Over the cube root of the deviation, in which the density is smooth at 0 with few degrees, too.
        root = low + place * width
        if root == 0:
            return 0.0
        deviation = root**3
        density = math.exp(scale + (3 * df - 1) * math.log(root) - df / 2 * deviation**2)
        reach = critical * deviation
        return density * (_normal(shift - reach) + _normal(-shift - reach))

    inner = sum((4 if place % 2 else 2) * at(place) for place in range(1, _STEPS))
    return min(1.0, max(0.0, (at(0) + inner + at(_STEPS)) * width / 3))


def _normal(z: float) -> float:
    return math.erfc(-z / math.sqrt(2)) / 2

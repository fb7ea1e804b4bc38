"""Is a difference within noise? Student's t and Welch's test, in plain Python. Pure.

scipy would do it too, at 40 MB and half a second of import; the tests hold these to scipy's figures.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from airflows.scores import mean

_TINY = 1e-300
_CONVERGED = 1e-15
_MOST_TERMS = 10_000


@dataclass(frozen=True, slots=True)
class Summary:
    """A sample in three figures; `sd` is the sample standard deviation, None for a single value."""

    n: int
    mean: float
    sd: float | None


@dataclass(frozen=True, slots=True)
class Welch:
    """Welch's t-test for two means.

    Attributes:
        t: the statistic, infinite when neither sample varies and the means differ.
        df: degrees of freedom, by Welch and Satterthwaite.
        p: two-sided probability of a difference at least this large by chance.
    """

    t: float
    df: float
    p: float


def summarize(values: Sequence[float]) -> Summary:
    """Return the summary of at least one finite value."""
    middle = mean(values)
    if len(values) == 1:
        return Summary(1, middle, None)
    largest = max(abs(value - middle) for value in values)
    if largest == 0:
        return Summary(len(values), middle, 0.0)
    # Scaled, so that squares of very large or small deviations neither overflow nor vanish.
    squares = math.fsum(((value - middle) / largest) ** 2 for value in values)
    sd = largest * math.sqrt(squares / (len(values) - 1))
    return Summary(len(values), middle, min(sd, sys.float_info.max))


def confidence_interval(sample: Summary, level: float = 0.95) -> tuple[float, float] | None:
    """Return the t-interval of the mean; None for a single value."""
    if sample.sd is None:
        return None
    half = t_quantile((1 + level) / 2, sample.n - 1) * sample.sd / math.sqrt(sample.n)
    return sample.mean - half, sample.mean + half


def welch(one: Summary, other: Summary) -> Welch | None:
    """Return Welch's t-test of two samples; None when one of them is a single value.

    Samples that do not vary at all differ for certain (p 0) or not at all (p 1).
    """
    if one.sd is None or other.sd is None:
        return None
    largest = max(one.sd, other.sd)
    difference = one.mean - other.mean
    if largest == 0:
        certain = difference != 0
        return Welch(
            math.copysign(math.inf, difference) if certain else 0.0, math.inf, 0.0 if certain else 1.0
        )
    # In units of the larger deviation, so that no square overflows.
    a, b = (one.sd / largest) ** 2 / one.n, (other.sd / largest) ** 2 / other.n
    # Two finite means may be further apart than floats reach.
    apart = one.mean / largest - other.mean / largest if math.isinf(difference) else difference / largest
    t = apart / math.sqrt(a + b)
    df = (a + b) ** 2 / (a * a / (one.n - 1) + b * b / (other.n - 1))
    return Welch(t, df, t_two_sided(t, df))


def holm(ps: Sequence[float]) -> list[float]:
    """Return the p-values adjusted by Holm's method, in the order given.

    Where those below a level are called differences, the probability that any of them is chance is at most
    that level, however many were tested.
    """
    adjusted = [1.0] * len(ps)
    so_far = 0.0
    for place, at in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        so_far = max(so_far, min(1.0, (len(ps) - place) * ps[at]))
        adjusted[at] = so_far
    return adjusted


def t_two_sided(t: float, df: float) -> float:
    """Return the probability that a t variable of `df` degrees of freedom is beyond ±t."""
    if math.isinf(t):
        return 0.0
    ratio = (t / df) * t
    return regularized_beta(1 / (1 + ratio), ratio / (1 + ratio), df / 2, 0.5)


@lru_cache(maxsize=1024)
def t_quantile(probability: float, df: float) -> float:
    """Return the quantile of Student's t for a probability of at least one half and below 1."""
    tail = 2 * (1 - probability)
    high = 1.0
    while t_two_sided(high, df) > tail:
        high *= 2
    low = 0.0
    while high - low > 1e-14 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_two_sided(middle, df) > tail else (low, middle)
    return (low + high) / 2


def regularized_beta(x: float, y: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b) for positive a and b.

    Args:
        x: from 0 to 1.
        y: 1 - x, given apart because near x = 1 the difference would be lost.
        a: first parameter.
        b: second parameter.
    """
    if x <= 0 or y <= 0:
        return 0.0 if x <= 0 else 1.0
    log_x = math.log(x) if x < y else math.log1p(-y)
    log_y = math.log(y) if y < x else math.log1p(-x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * log_x + b * log_y)
    # The continued fraction converges quickly below the mean of the distribution, its mirror above.
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(x, a, b) / a
    return 1 - front * _beta_fraction(y, b, a) / b


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function by Lentz's method."""
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / _not_zero(1 + even * d), _not_zero(1 + even / c)
        value *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / _not_zero(1 + odd * d), _not_zero(1 + odd / c)
        value *= d * c
        if abs(d * c - 1) < _CONVERGED:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY

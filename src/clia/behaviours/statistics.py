"""Success rates and their uncertainty.

Invariant: every number comes with its count. An interval covers the true rate at its level if observations are independent.
``proven`` is wrong with at most the stated probability however often it is asked, because the test is valid at every look.
"""

from __future__ import annotations

from math import exp, lgamma, log, sqrt
from typing import NamedTuple

LEVEL = 0.95
"""Default coverage of an interval."""
ERROR = 0.05
"""Default probability of a suggestion for equally good versions."""
LEAST = 20
"""Default number of observations of each version that a suggestion needs."""
_SCALE = 0.3
"""The difference, in standard deviations of one observation, at which the test is most powerful."""
_NOTHING = -60.0
"""Log ratio below which terms of a sum are negligible."""
_Z = {0.95: 1.959963984540054, 0.99: 2.5758293035489004, 0.9: 1.6448536269514722}


class Count(NamedTuple):
    """The number of good and bad outcomes."""

    good: int = 0
    bad: int = 0

    @property
    def n(self) -> int:
        return self.good + self.bad

    @property
    def rate(self) -> float | None:
        return self.good / self.n if self.n else None


class Interval(NamedTuple):
    low: float
    high: float


def interval(count: Count, level: float = LEVEL) -> Interval:
    """Wilson's score interval; [0, 1] without observations."""
    if not count.n:
        return Interval(0.0, 1.0)
    z, n = _z(level), count.n
    p, widened = count.good / n, 1 + z * z / n
    middle = (p + z * z / (2 * n)) / widened
    half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / widened
    # Rounding would move the bounds at the ends.
    return Interval(0.0 if count.good == 0 else max(0.0, middle - half), 1.0 if count.bad == 0 else min(1.0, middle + half))


def difference(before: Count, after: Count, level: float = LEVEL) -> Interval:
    """Newcombe's interval of the difference ``after - before``, from both of Wilson's."""
    if not before.n or not after.n:
        return Interval(-1.0, 1.0)
    rate_before, rate_after = before.good / before.n, after.good / after.n
    low, high = interval(before, level)
    after_low, after_high = interval(after, level)
    delta = rate_after - rate_before
    return Interval(
        delta - sqrt((rate_after - after_low) ** 2 + (high - rate_before) ** 2),
        delta + sqrt((after_high - rate_after) ** 2 + (rate_before - low) ** 2),
    )


def better(before: Count, after: Count) -> float:
    """The probability that ``after`` has the higher true rate, with uniform priors.

    A sum over beta distributions along the smallest of the four counts, without negligible terms.
    """
    a, b = before.good + 1, before.bad + 1
    c, d = after.good + 1, after.bad + 1
    least = min(a, b, c, d)
    if least == c:
        return _exceeds((a, b), (c, d))
    if least == a:
        return 1 - _exceeds((c, d), (a, b))
    if least == b:  # by symmetry, with bad outcomes
        return _exceeds((d, c), (b, a))
    return 1 - _exceeds((b, a), (d, c))


def _exceeds(first: tuple[int, int], second: tuple[int, int]) -> float:
    """The probability that a beta variable with the parameters ``second`` exceeds one with ``first``."""
    (a, b), (c, d) = first, second
    top = _largest(a, b, c, d)
    most = _log_beta(a + top, b + d) - log(d + top) - _log_beta(1 + top, d) - _log_beta(a, b)
    total, term, at = 1.0, 0.0, top
    while at + 1 < c and term > _NOTHING:  # from the largest term outwards, in logarithms
        term += log(a + at) + log(d + at) - log(a + b + d + at) - log(at + 1)
        at += 1
        total += exp(term)
    term, at = 0.0, top
    while at > 0 and term > _NOTHING:
        at -= 1
        term -= log(a + at) + log(d + at) - log(a + b + d + at) - log(at + 1)
        total += exp(term)
    return min(1.0, exp(most) * total)


def _largest(a: int, b: int, c: int, d: int) -> int:
    """The index of the largest term, by bisection: terms rise, then fall."""
    low, high = 0, c - 1
    while low < high:
        at = (low + high) // 2
        if (a + at) * (d + at) > (a + b + d + at) * (at + 1):
            low = at + 1
        else:
            high = at
    return low


def _log_beta(a: int, b: int) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


class Proof(NamedTuple):
    """Which of two is proven better: 1 the later, -1 the earlier, 0 neither. ``reached``: the share of the threshold."""

    sign: int
    reached: float


def proven(before: Count, after: Count, error: float = ERROR) -> Proof:
    """Whether two rates are proven to differ, by a test that is valid at every look (a mixture of normal likelihood ratios).

    A fixed-sample test would eventually reject equal rates. The statistic is the smaller of two: for rates near 0 or 1, the score
    overrates a few failures, and the likelihood ratio overrates their absence.
    """
    n, m = before.n, after.n
    good = before.good + after.good
    if not n or not m or good in (0, n + m):
        return Proof(0, 0.0)
    pooled = good / (n + m)
    information = n * m / (n + m)
    delta = after.good / m - before.good / n
    score = delta * delta * information / (pooled * (1 - pooled))
    ratio = 2 * (_likelihood(before) + _likelihood(after) - _likelihood(Count(good, n + m - good)))
    square = max(0.0, min(score, ratio))  # rounding can make the ratio of equal rates negative
    spread = information * _SCALE * _SCALE
    bar = (1 + 1 / spread) * (log(1 + spread) + 2 * log(1 / error))
    sign = (delta > 0) - (delta < 0)
    return Proof(sign if square >= bar else 0, square / bar)


def _likelihood(count: Count) -> float:
    """The log-likelihood of a count at its own rate."""
    return sum(n * log(n / count.n) for n in count if n)


def still_needed(before: Count, after: Count, error: float = ERROR) -> int | None:
    """The estimated number of further observations of each that would prove the current difference; None if there is none."""
    if not before.n or not after.n or before.rate == after.rate:
        return None
    for factor in range(1, 80):
        extra = round(1.3**factor)
        if proven(_grown(before, extra), _grown(after, extra), error).sign:
            return extra
    return None


def _grown(count: Count, extra: int) -> Count:
    """A count after more observations at its own rate."""
    good = round(extra * count.good / count.n)
    return Count(count.good + good, count.bad + extra - good)


def _z(level: float) -> float:
    if level in _Z:
        return _Z[level]
    from statistics import NormalDist  # a large module for rare levels

    return NormalDist().inv_cdf((1 + level) / 2)


def quantile(counted: dict[int, int], share: float) -> int | None:
    """The quantile of values with their counts."""
    total, cumulative = sum(counted.values()), 0
    for value in sorted(counted):
        cumulative += counted[value]
        if cumulative >= share * total:
            return value
    return None


def rounded(seconds: int) -> int:
    """Round down to two significant digits, to limit the number of distinct durations."""
    value, unit = max(0, seconds), 1
    while value // unit >= 100:
        unit *= 10
    return value // unit * unit

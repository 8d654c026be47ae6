"""Rates and proofs: checked against values computed by hand, exact fractions, laws, and their stated error over many
seeds."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import factorial, isclose
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clia.behaviours.statistics import (
    ERROR,
    LEAST,
    Count,
    Interval,
    better,
    difference,
    interval,
    proven,
    quantile,
    rounded,
    still_needed,
)

counts = st.builds(Count, st.integers(0, 400), st.integers(0, 400))
huge = st.builds(Count, st.integers(0, 10**7), st.integers(0, 10**7))
NOTHING = Count()


# Intervals


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [
        (Count(0, 1), 0.0, 0.79345),  # z²/(1+z²)
        (Count(1, 0), 0.20655, 1.0),
        (Count(5, 5), 0.23659, 0.76341),
        (Count(81, 182), 0.25527, 0.36621),  # 81 of 263, as Newcombe (1998) gives it
        (Count(0, 20), 0.0, 0.16113),
        (Count(1, 28), 0.00611, 0.17176),
    ],
)
def test_wilson_intervals_match_values_computed_by_hand(count: Count, low: float, high: float) -> None:
    assert list(interval(count)) == pytest.approx([low, high], abs=2e-5)


@given(counts, st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_wilson_intervals_contain_the_rate_mirror_and_narrow(count: Count, level: float) -> None:
    low, high = interval(count, level)
    assert 0 <= low < high <= 1
    assert count.rate is None or low <= count.rate <= high
    mirrored = interval(Count(count.bad, count.good), level)
    assert isclose(mirrored.low, 1 - high, abs_tol=1e-12)
    assert isclose(mirrored.high, 1 - low, abs_tol=1e-12)
    if count.n:
        more = interval(Count(count.good * 4, count.bad * 4), level)
        assert more.high - more.low < high - low
        wider = interval(count, 0.999)
        assert wider.low <= low
        assert wider.high >= high


def test_nothing_observed_proves_nothing() -> None:
    assert NOTHING.rate is None
    assert interval(NOTHING) == Interval(0.0, 1.0)
    assert difference(NOTHING, Count(5, 5)) == difference(Count(5, 5), NOTHING) == Interval(-1.0, 1.0)
    assert better(NOTHING, NOTHING) == pytest.approx(0.5)
    for one, other in product((NOTHING, Count(1, 0), Count(0, 1)), repeat=2):
        assert proven(one, other).sign == 0
        assert 0 < better(one, other) < 1
    assert better(NOTHING, Count(1, 0)) == pytest.approx(2 / 3)
    assert still_needed(NOTHING, Count(3, 1)) is None


def test_newcombe_intervals_match_values_computed_by_hand() -> None:
    """56 of 70 against 48 of 80, Newcombe (1998), method 10: 0.0524 to 0.3339; and with one that never failed."""
    assert list(difference(Count(48, 32), Count(56, 14))) == pytest.approx([0.0524, 0.3339], abs=5e-5)
    assert list(difference(Count(0, 10), Count(10, 0))) == pytest.approx([0.6075, 1.0], abs=5e-5)


@given(counts, counts)
def test_a_difference_is_within_bounds_and_changes_sign_with_its_sides(before: Count, after: Count) -> None:
    low, high = difference(before, after)
    assert -1 <= low <= high <= 1
    assert list(difference(after, before)) == pytest.approx([-high, -low])
    if before.rate is not None and after.rate is not None:
        assert low <= after.rate - before.rate <= high


# The probability of being better


def _exactly(before: Count, after: Count) -> Fraction:
    """The integral of two beta densities as a fraction, with the second one written as a polynomial."""

    def beta(a: int, b: int) -> Fraction:
        return Fraction(factorial(a - 1) * factorial(b - 1), factorial(a + b - 1))

    a, b, n = before.good + 1, before.bad + 1, after.n + 1

    def choose(k: int) -> int:
        return factorial(n) // factorial(k) // factorial(n - k)

    # A beta variable exceeds x if at most `good` of n draws fall below x.
    return sum((choose(k) * beta(a + k, b + n - k) / beta(a, b) for k in range(after.good + 1)), Fraction(0))


def test_better_is_the_exact_fraction_for_small_counts() -> None:
    for one, two, three, four in product((0, 1, 2, 5, 9), repeat=4):
        before, after = Count(one, two), Count(three, four)
        assert better(before, after) == pytest.approx(float(_exactly(before, after)), abs=1e-12)


@given(counts, counts)
def test_better_has_a_complement_and_a_mirror(before: Count, after: Count) -> None:
    probability = better(before, after)
    assert 0 <= probability <= 1
    assert isclose(probability + better(after, before), 1, abs_tol=1e-9)
    assert isclose(probability, better(Count(after.bad, after.good), Count(before.bad, before.good)), abs_tol=1e-9)
    assert better(before, after._replace(good=after.good + 1)) >= probability - 1e-9


@given(huge, huge)
def test_better_stays_a_probability_and_quick_for_large_counts(before: Count, after: Count) -> None:
    assert 0 <= better(before, after) <= 1
    assert isclose(better(before, after) + better(after, before), 1, abs_tol=1e-6)


def test_better_distinguishes_large_counts() -> None:
    even = Count(10**8, 10**8)
    assert better(even, even) == pytest.approx(0.5, abs=1e-5)
    assert better(even, Count(10**8 + 10**6, 10**8)) == pytest.approx(1.0)
    assert better(Count(10**9, 1), Count(10**9, 3)) == pytest.approx(0.1875, abs=1e-4)  # depends on the failures alone


# Proofs

SEEDS, LOOKS_MAX = 200, 10_000
ONE_LOOK = 3.84
"""The squared distance in standard deviations that would be significant in a single look; nothing below it is a proof."""


def _squared_distance(before: Count, after: Count) -> float:
    """The squared distance of two rates, in standard deviations."""
    good, n = before.good + after.good, before.n + after.n
    if not before.n or not after.n or good in (0, n):
        return 0.0
    return (after.good * before.n - before.good * after.n) ** 2 * n / (before.n * after.n * good * (n - good))


def _side_by_side(seed: int, rates: tuple[float, float], looks: int) -> int | None:
    """Alternate two versions and look after every pair from the 20th; the look at which a difference is first claimed."""
    draw = Random(f"{seed} {rates}").random  # noqa: S311  # the same each time
    one, other = rates
    one_good = other_good = 0
    for n in range(1, looks + 1):
        one_good += draw() < one
        other_good += draw() < other
        total = one_good + other_good
        # Only looks that would be significant alone; the others prove nothing, as another test shows.
        is_significant = n >= LEAST and (other_good - one_good) ** 2 * 2 * n >= ONE_LOOK * total * (2 * n - total)
        if is_significant and proven(Count(one_good, n - one_good), Count(other_good, n - other_good)).sign:
            return n
    return None


def _beside_an_old_one(seed: int, rate: float, n: int, looks: int) -> bool:
    """Compare a new version with an equally good one that has many observations; whether a difference is ever claimed."""
    chance = Random(f"{seed} {rate} {n}")  # noqa: S311  # the same each time
    good = sum(chance.random() < rate for _ in range(n))
    old, new_good = Count(good, n - good), 0
    for m in range(1, looks + 1):
        new_good += chance.random() < rate
        new = Count(new_good, m - new_good)
        if m >= LEAST and _squared_distance(old, new) >= ONE_LOOK and proven(old, new).sign:
            return True
    return False


@given(counts, counts)
def test_nothing_is_proven_below_a_single_look_and_proof_changes_sign_with_its_sides(before: Count, after: Count) -> None:
    proof = proven(before, after)
    assert proof.sign == 0 or _squared_distance(before, after) > ONE_LOOK
    assert list(proven(after, before)) == pytest.approx([-proof.sign, proof.reached], abs=1e-9)
    mirrored = proven(Count(before.bad, before.good), Count(after.bad, after.good))
    assert list(mirrored) == pytest.approx([-proof.sign, proof.reached], abs=1e-9)
    assert (proof.sign != 0) == (proof.reached >= 1)
    assert proven(before, after, error=0.001).reached <= proof.reached


def test_equally_good_versions_are_rarely_distinguished_however_often_one_looks() -> None:
    """200 seeds, three rates, two versions side by side, looked at after every observation of both from the 20th to the 10,000th.

    The share of histories in which a difference was ever claimed, over all seeds and rates, is at most the stated error: 5 %.
    """
    rates = (0.5, 0.9, 0.99)
    wrong = sum(_side_by_side(seed, (rate, rate), LOOKS_MAX) is not None for seed in range(SEEDS) for rate in rates)
    assert 0 < wrong / (SEEDS * len(rates)) <= ERROR


def test_a_few_failures_beside_many_observations_of_a_reliable_version_prove_nothing() -> None:
    """A new version that is as good as the old one, of which there are 5,000 observations, looked at after each of its first 500.

    200 seeds, rates near both ends and in the middle. With the score alone, more than 5 % near the ends claim a difference.
    """
    for rates in ((0.99, 0.995, 0.01), (0.5, 0.8, 0.95)):
        wrong = sum(_beside_an_old_one(seed, rate, 5000, 500) for seed in range(SEEDS) for rate in rates)
        assert wrong / (SEEDS * len(rates)) <= ERROR


@pytest.mark.parametrize(("rates", "usual"), [((0.6, 0.8), 120), ((0.9, 0.97), 250), ((0.5, 0.6), 500), ((0.2, 0.1), 300)])
def test_real_differences_are_found(rates: tuple[float, float], usual: int) -> None:
    """In all of 100 histories, and in half of them within the usual number of observations."""
    looks = sorted(_side_by_side(seed, rates, LOOKS_MAX) or LOOKS_MAX for seed in range(100))
    assert looks[-1] < LOOKS_MAX
    assert looks[50] <= usual


def test_a_proof_has_the_right_sign() -> None:
    assert proven(Count(60, 40), Count(90, 10)).sign == 1
    assert proven(Count(90, 10), Count(60, 40)).sign == -1
    assert proven(Count(50, 50), Count(52, 48)).sign == 0
    assert proven(Count(100, 0), Count(100, 0)).sign == 0


@given(counts, counts)
def test_the_estimated_number_of_observations_proves_a_visible_difference(before: Count, after: Count) -> None:
    needed = still_needed(before, after)
    if before.rate is None or after.rate is None or before.rate == after.rate:
        assert needed is None
    elif needed is not None:
        assert needed >= 1
        goods = [round(needed * count.good / count.n) for count in (before, after)]
        one, other = (
            Count(count.good + good, count.bad + needed - good) for count, good in zip((before, after), goods, strict=True)
        )
        assert proven(one, other).sign


# Durations


@given(st.dictionaries(st.integers(0, 1000), st.integers(1, 5), min_size=1), st.sampled_from([0.1, 0.5, 0.9, 1.0]))
def test_a_quantile_is_the_first_value_that_covers_the_share(counted: dict[int, int], share: float) -> None:
    values = sorted(value for value, times in counted.items() for _ in range(times))
    first_value = quantile(counted, share)
    assert first_value is not None
    assert sum(value <= first_value for value in values) >= share * len(values)
    assert sum(value < first_value for value in values) < share * len(values)


def test_the_quantile_of_nothing_is_none() -> None:
    assert quantile({}, 0.5) is None


@given(st.integers(-(10**20), 10**20))
def test_durations_are_rounded_to_two_digits(seconds: int) -> None:
    rounded_seconds = rounded(seconds)
    assert 0 <= rounded_seconds <= max(0, seconds)
    assert max(0, seconds) - rounded_seconds <= max(0, seconds) // 10
    assert len(str(rounded_seconds).rstrip("0")) <= 2


def test_a_proof_matches_values_computed_by_hand() -> None:
    """60 and 90 of 100: the score is 24, the bar (1 + 1/4.5) (ln 5.5 + 2 ln 20). 995 of 1000 and 18 of 20: the ratio is 7.7335."""
    assert proven(Count(60, 40), Count(90, 10)).reached == pytest.approx(2.55143, abs=1e-5)
    assert proven(Count(995, 5), Count(18, 2)).reached == pytest.approx(0.70433, abs=1e-5)


def test_the_estimate_is_close_if_one_version_has_most_observations() -> None:
    for one, other, actual in ((Count(5, 15), Count(900, 1000), 29), (Count(18, 2), Count(2000, 100), 195)):
        needed = still_needed(one, other)
        assert needed is not None
        assert actual / 1.5 < needed < actual * 1.5

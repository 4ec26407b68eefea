"""The search for what fits."""

import bisect
import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_bench.systems.fitting import SLACK, find_largest


@given(
    weights=st.lists(st.integers(0, 30), max_size=400),
    limit=st.integers(0, 3000),
    base=st.integers(0, 50),
    guess=st.integers(0, 500),
)
def test_it_finds_the_most_but_for_a_thousandth(
    weights: list[int], limit: int, base: int, guess: int
) -> None:
    sums = [base, *accumulate(weights, initial=base)][1:]
    n, used = find_largest(sums.__getitem__, limit, most=len(weights), guess=guess)
    assert used == sums[n]
    if base > limit:
        assert n == 0
        return
    best = bisect.bisect_right(sums, limit) - 1
    assert used <= limit
    assert sums[best] - used <= limit // SLACK


@pytest.mark.parametrize(("most", "limit", "expected"), [(0, 10, 0), (10, 0, 0), (5, 100, 5)])
def test_ends(most: int, limit: int, expected: int) -> None:
    assert find_largest(lambda n: 3 * n, limit, most=most, guess=2)[0] == expected


def test_it_looks_no_further_than_fourfold_and_not_often() -> None:
    asked: list[int] = []

    def tokens(n: int) -> int:
        asked.append(n)
        return math.ceil(n / 4.3)

    n, used = find_largest(tokens, 8000, most=16_000_000, guess=32_000)
    assert abs(used - 8000) <= 8
    assert 34_300 < n <= 34_400
    assert max(asked) <= 4 * 34_400
    assert len(asked) <= 6


def test_a_text_that_is_light_and_then_heavy_is_found_out() -> None:
    n, used = find_largest(
        lambda n: n if n < 1000 else 1000 + 50 * (n - 1000), 2000, most=10**6, guess=10
    )
    assert (n, used) == (1020, 2000)

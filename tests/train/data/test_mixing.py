"""Shares of sources, and their order."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_train.data.mixing import counts_of, epoch_size, order_of, weights_of, with_each
from memagent_train.errors import DataError


def test_weights_are_shares() -> None:
    assert weights_of(["a", "b"], [10, 990], [1, 3]) == [0.25, 0.75]
    assert weights_of(["a", "b"], [10, 990], [None, None]) == [0.01, 0.99]
    with pytest.raises(DataError, match=r"\['b'\] have no weight"):
        weights_of(["a", "b"], [10, 990], [1, None])


def test_an_epoch_takes_no_item_twice() -> None:
    assert epoch_size([1000, 100], [0.5, 0.5]) == 200
    assert epoch_size([1000, 100], [1000 / 1100, 100 / 1100]) == 1100
    assert epoch_size([10, 3], [0.01, 0.99]) == 3
    assert epoch_size([1, 1, 1], [0.98, 0.01, 0.01]) == 3


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=6))
def test_without_weights_an_epoch_has_every_item_once(sizes: list[int]) -> None:
    weights = weights_of([str(i) for i in range(len(sizes))], sizes, [None] * len(sizes))
    size = epoch_size(sizes, weights)
    assert size == sum(sizes)
    assert counts_of(size, weights) == sizes


@given(st.integers(1, 10_000), st.lists(st.floats(0.01, 100), min_size=1, max_size=6))
def test_counts_are_the_shares_rounded(size: int, raw: list[float]) -> None:
    weights = weights_of([str(i) for i in range(len(raw))], [1] * len(raw), raw)
    counts = counts_of(size, weights)
    assert sum(counts) == size
    assert all(abs(count - size * w) < 1 + 1e-6 for count, w in zip(counts, weights, strict=True))


def test_no_source_is_rounded_away() -> None:
    assert with_each(counts_of(100, [300 / 301, 1 / 301])) == [99, 1]
    assert with_each([3, 0, 0]) == [1, 1, 1]
    assert with_each([2, 0, 0]) == [1, 1, 0], "fewer samples than sources"


def test_the_order_is_mixed_and_the_same_for_a_seed() -> None:
    sources, numbers = order_of([600, 300, 0, 100], seed=4)
    assert Counter(sources.tolist()) == {0: 600, 1: 300, 3: 100}
    assert sorted(numbers[sources == 1].tolist()) == list(range(300))
    assert 20 < (sources[:100] == 1).sum() < 45
    again, _ = order_of([600, 300, 0, 100], seed=4)
    assert again.tolist() == sources.tolist()
    other, _ = order_of([600, 300, 0, 100], seed=5)
    assert other.tolist() != sources.tolist()

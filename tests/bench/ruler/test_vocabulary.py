"""Words are drawn without repeats, evenly, and more of them add to fewer."""

from collections import Counter
from random import Random

import numpy as np
import pytest

from memagent_bench.ruler.vocabulary import Vocabulary, draw_distinct


@pytest.mark.parametrize("n", [1, 2, 7, 100, 5000])
@pytest.mark.parametrize("share", [0.01, 0.4, 0.74, 0.76, 1.0])
def test_more_numbers_add_to_fewer(n: int, share: float) -> None:
    k = max(1, int(n * share))
    some, whole = draw_distinct(n, k, Random(5)), draw_distinct(n, n, Random(5))
    assert sorted(whole.tolist()) == list(range(n))
    assert whole[:k].tolist() == some.tolist()


def test_each_order_is_as_likely() -> None:
    orders = Counter(tuple(draw_distinct(3, 3, Random(seed)).tolist()) for seed in range(6000))
    assert len(orders) == 6
    assert all(850 < times < 1150 for times in orders.values())


def test_words_have_the_costs_asked_for_and_come_once() -> None:
    words = [f"{'x' * (1 + i % 3)}{i}" for i in range(300)]
    vocabulary = Vocabulary(words, lambda word: word.count("x"))
    costs = np.array([1, 3, 2, 2, 1] * 20)
    drawn = vocabulary.draw(costs, Random(1))
    assert vocabulary.costs[drawn].tolist() == costs.tolist()
    assert len(set(drawn.tolist())) == len(costs)
    fewer = vocabulary.draw(costs[:50], Random(1))
    assert fewer.tolist() == drawn[:50].tolist()

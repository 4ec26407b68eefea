"""Chance that stays the same, and sums that are checked against the whole."""

from random import Random

import numpy as np
import pytest
from tests.bench.counters import line_ends

from memagent.tasks import Sample
from memagent.tokens import TokenCounter
from memagent_bench.fitted import FittedTask, objects, shuffle_range
from memagent_bench.length_tokens import length_counter
from memagent_bench.numbered import Numbered
from memagent_bench.options import DataOptions


def test_the_same_seed_gives_the_same_order_for_ever() -> None:
    assert shuffle_range(8, Random("a seed")).tolist() == [6, 0, 3, 5, 2, 1, 7, 4]
    assert shuffle_range(0, Random(1)).tolist() == []


def test_every_order_is_as_likely() -> None:
    rng = Random(5)
    firsts = np.bincount([shuffle_range(5, rng)[0] for _ in range(5000)], minlength=5)
    lasts = np.bincount([shuffle_range(5, rng)[-1] for _ in range(5000)], minlength=5)
    # 1000 expected, standard deviation 28.
    assert abs(firsts - 1000).max() < 140
    assert abs(lasts - 1000).max() < 140
    assert sorted(shuffle_range(100_000, rng).tolist()) == list(range(100_000))


def test_texts_are_picked_by_index() -> None:
    array = objects(["one", "two", "three"])
    assert array[[2, 0, 2]].tolist() == ["three", "one", "three"]


@pytest.mark.parametrize("counter", [length_counter(None), line_ends()], ids=["gpt2", "line-ends"])
@pytest.mark.parametrize(
    ("item", "between"),
    [("{}. {}", " "), ("{}) {}", "\n"), ("<{}> {} #", ", "), ("{}:\n{}", "\n\n")],
)
def test_numbers_counted_in_blocks_are_exact(
    counter: TokenCounter, item: str, between: str
) -> None:
    numbered = Numbered(item.format, between, counter)
    words = ["word", "other", "words"] * 1000
    for n in (1, 9, 10, 255, 256, 257, 1000, 2560, 3000):
        text = numbered.text(objects(words[:n]))
        assert text == between.join(item.format(i, w) for i, w in enumerate(words[:n], start=1))
        summed = sum(map(numbered.cost, words[:n])) + numbered.more(n)
        assert summed == counter.count(
            "".join(between + item.format(i, w) for i, w in enumerate(words[:n], 1))
        )
    assert numbered.text(objects([])) == ""


class Fixed(FittedTask):
    """Says how often it was made."""

    def __init__(self, counter: TokenCounter, wrong: int) -> None:
        super().__init__("fixed", "f1", 100, DataOptions(counter=counter))
        self.wrong, self.made = wrong, 0

    def _make(self, index: int, limit: int) -> Sample:
        self.made += 1
        return Sample(
            task="fixed",
            index=index,
            length=100,
            tokens=limit,
            context=" a" * (limit - 10 + self.wrong),
            question="?",
            outputs=("a",),
            generate=10,
        )


def test_only_the_first_sample_is_counted_where_sums_are_right() -> None:
    task = Fixed(length_counter(None), wrong=0)
    assert [task.sample(i).tokens for i in (3, 4, 5)] == [100] * 3
    assert task.made == 4, "sample 0 is what the sums are checked with"


@pytest.mark.parametrize("wrong", [7, -7])
def test_every_sample_is_counted_where_sums_are_wrong(wrong: int) -> None:
    counter = length_counter(None)
    task = Fixed(counter, wrong)
    for i in (3, 0, 5):
        sample = task.sample(i)
        assert sample.tokens == counter.count(sample.prompt) + 10
        assert 92 <= sample.tokens <= 100

"""Common and frequent words: published counts, the same positions in all samples of a length, exact lengths."""

import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bench.counters import Quarters

from memagent.errors import ConfigError
from memagent.tasks import Sample
from memagent_bench.length_tokens import length_counter
from memagent_bench.options import DataOptions
from memagent_bench.ruler.cwe import CweTask
from memagent_bench.ruler.fwe import FweTask, zeta_counts
from memagent_bench.ruler.vocabulary import english, wonderwords

COUNTER = length_counter(None)
OPTIONS = DataOptions(counter=COUNTER)
TASKS = {"cwe": CweTask, "fwe": FweTask}


class Spaces(Quarters):
    """A token for each stretch between white space: cheap, and exact for parts that begin with a space."""

    name = "spaces"

    def count(self, text: str) -> int:
        return len(text.split())


def words(sample: Sample) -> list[str]:
    """Some words of the list have a space in them."""
    if sample.task == "fwe":
        return sample.context.split(" ")
    return re.split(r"(?:^| )\d+\. ", sample.context)[1:]


def places(sample: Sample) -> list[list[int]]:
    """Where each answer stands, by place in the text."""
    found = words(sample)
    return [[i for i, w in enumerate(found) if w == answer] for answer in sample.outputs]


def test_a_quarter_of_a_million_tokens() -> None:
    sample = FweTask(262144, OPTIONS).sample(3)
    assert COUNTER.count(sample.prompt) + 50 == sample.tokens
    assert 262144 * 4 // 5 <= sample.tokens <= 262144


def test_coded_words_take_different_numbers_of_tokens() -> None:
    task = FweTask(4096, OPTIONS)
    samples = [task.sample(i) for i in range(20)]
    costs = Counter(COUNTER.count(" " + word) for s in samples for word in s.outputs)
    assert len(costs) >= 3, "not only words of the most usual number"
    sizes = Counter(len(words(s)) for s in samples)
    assert len(sizes) <= 4
    (size, many), *_ = sizes.most_common(1)
    assert many >= 8
    same = [places(s) for s in samples if len(words(s)) == size]
    assert all(place == same[0] for place in same)


def test_wonderwords_stay_where_fewer_english_words_would_fit() -> None:
    task = CweTask(131072, OPTIONS)
    sample = task.sample(0)
    # RULER's own script stops at 111K there.
    assert task.facts["haystack"] == "8169 words of wonderwords"
    assert set(words(sample)) == set(wonderwords())
    assert 110_000 < sample.tokens == COUNTER.count(sample.prompt) + 120 < 112_000
    longer = CweTask(160_000, OPTIONS)
    assert re.fullmatch(r"\d+ words of English", str(longer.facts["haystack"]))
    assert 160_000 - 32 <= longer.sample(0).tokens <= 160_000


def test_common_words_come_thirty_times_and_the_others_three_times() -> None:
    sample = CweTask(4096, OPTIONS).sample(2)
    counts = Counter(words(sample))
    assert len(sample.outputs) == len(set(sample.outputs)) == 10
    assert {counts.pop(word) for word in sample.outputs} == {30}
    assert set(counts.values()) == {3}
    assert set(words(sample)) <= set(wonderwords())
    numbers = [int(n) for n in re.findall(r"(\d+)\. ", sample.context)]
    assert numbers == list(range(1, len(words(sample)) + 1))
    assert (sample.generate, sample.evidence) == (120, ())
    assert "10 words" in sample.question


def test_the_example_of_the_list_has_forty_words() -> None:
    sample = CweTask(4096, OPTIONS).sample(2)
    listed, reply = re.findall(r"(?:\d+\. \S+ ?)+", sample.before)
    counts = Counter(re.sub(r"\d+\. ", "", listed).split())
    assert sorted(counts.values()) == [3] * 30 + [10] * 10
    answers = re.sub(r"\d+\. ", "", reply).split()
    assert {counts[word] for word in answers} == {10}
    assert len(answers) == 10


def test_zeta_counts_by_hand() -> None:
    # n k^-2 / zeta(2) with 1 / zeta(2) = 6 / pi^2 = 0.6079271: 607.927, 151.98, 67.547, 37.995, 24.317, 16.887
    assert zeta_counts(1000)[:6].tolist() == [607, 151, 67, 37, 24, 16]
    # Rank 24 is the last with 607.927 / k^2 >= 1.
    assert len(zeta_counts(1000)) == 24
    assert zeta_counts(1000)[-1] == 1
    # 6.079, 1.5198, 0.675: ranks beyond 2 do not come.
    assert zeta_counts(10).tolist() == [6, 1]
    assert zeta_counts(1).tolist() == []
    assert zeta_counts(2).tolist() == [1]


@given(st.integers(0, 10**6))
def test_zeta_counts_grow_with_the_words(n: int) -> None:
    few, more = zeta_counts(n), zeta_counts(n + 1)
    assert len(few) <= len(more)
    assert (few <= more[: len(few)]).all()
    assert few.sum() <= n


def test_coded_words_come_as_often_as_zeta_says() -> None:
    sample = FweTask(8192, OPTIONS).sample(1)
    counts = Counter(words(sample)).most_common()
    assert counts[0][0] == "..."
    assert {word for word, _ in counts[1:4]} == set(sample.outputs)
    ranked = [count for _, count in counts]
    # Of n = 3,300 words, say, the ranks have 0.6079 n / k^2; the sum does not tell n, so it is sought.
    assert ranked in [zeta_counts(n).tolist() for n in range(sum(ranked), sum(ranked) + 100)]
    assert ranked[3] > ranked[4]
    assert all(re.fullmatch("[a-z]{6}", word) for word, _ in counts[1:])
    assert (sample.generate, sample.evidence) == (50, ())


@pytest.mark.parametrize("name", TASKS)
def test_published_positions_are_the_same_in_each_sample_of_a_length(name: str) -> None:
    task = TASKS[name](4096, OPTIONS)
    first, second = task.sample(0), task.sample(1)
    assert first.outputs != second.outputs
    assert places(first) == places(second)
    assert places(first) != places(TASKS[name](4096, replace(OPTIONS, seed=1)).sample(0))
    drawn = TASKS[name](4096, replace(OPTIONS, positions="shuffled"))
    assert places(drawn.sample(0)) != places(drawn.sample(1))
    assert [len(place) for place in places(drawn.sample(0))] == [len(p) for p in places(first)]


@pytest.mark.parametrize("name", TASKS)
def test_nested_samples_have_the_same_answers_and_more_others(name: str) -> None:
    nested = replace(OPTIONS, nested=True)
    short, long = TASKS[name](4096, nested).sample(3), TASKS[name](16384, nested).sample(3)
    assert short.outputs == long.outputs
    assert set(words(short)) < set(words(long))
    assert TASKS[name](4096, nested).sample(4).outputs != short.outputs
    assert TASKS[name](16384, OPTIONS).sample(3).outputs != short.outputs


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("length", [1, 100, 150])
def test_too_short_a_length_is_refused(name: str, length: int) -> None:
    with pytest.raises(ConfigError, match=f"{length} tokens are too few for {name}") as caught:
        TASKS[name](length, OPTIONS).sample(0)
    least = int(str(caught.value).rpartition(" ")[2])
    assert TASKS[name](least, OPTIONS).sample(0).tokens <= least


def test_beyond_wonderwords_the_words_are_english() -> None:
    counter = DataOptions(counter=Spaces())
    # An item takes 2 tokens: 8,169 words three times are 49,000.
    small, large = CweTask(40_000, counter), CweTask(64_000, counter)
    assert set(words(small.sample(0))) <= set(wonderwords())
    found = set(words(large.sample(0)))
    assert len(found) > len(wonderwords())
    assert found <= set(english())
    assert re.fullmatch(r"\d+ words of wonderwords", str(small.facts["haystack"]))
    assert re.fullmatch(r"\d+ words of English", str(large.facts["haystack"]))
    task = CweTask(64_000, replace(counter, nested=True))
    nested = task.sample(0)
    assert set(nested.outputs) <= set(wonderwords()) < set(words(nested))
    assert set(Counter(words(nested)).values()) == {3, 30}
    assert re.fullmatch(
        r"8169 words of wonderwords, then \d+ words of further English", str(task.facts["haystack"])
    )
    short = CweTask(40_000, replace(counter, nested=True)).sample(0)
    assert short.outputs == nested.outputs


def test_more_words_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError, match="more different words than there are"):
        CweTask(4_000_000, DataOptions(counter=Spaces())).sample(0)


def test_the_words() -> None:
    assert len(wonderwords()) == 8169
    assert len(english()) == len(set(english())) == 314_667
    assert all(3 <= len(word) <= 12 for word in english())
    assert list(english()) == sorted(english())

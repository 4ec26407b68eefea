"""Units counted once add up to the whole, whatever is taken of them."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bench.counters import Quarters, line_ends

from memagent.errors import ConfigError
from memagent_bench.filler import Filler
from memagent_bench.length_tokens import length_counter

UNITS = ["The first.", "A second, longer one!", "“Third?”", "4.", "Some fifth unit of text here."]


class Tally(Quarters):
    """Counts how much it was asked to count."""

    def __init__(self) -> None:
        self.chars = 0

    def count(self, text: str) -> int:
        self.chars += len(text)
        return len(text)


@pytest.mark.parametrize("joiner", [" ", "\n"])
@given(n=st.integers(0, 23))
def test_sums_are_exact_in_any_number_of_rounds(joiner: str, n: int) -> None:
    counter = length_counter(None)
    filler = Filler("units", UNITS, joiner, counter)
    assert filler.tokens(n) == counter.count(joiner.join(filler.take(0, n)))


@given(n=st.integers(1, 23))
def test_sums_are_exact_where_a_sign_takes_the_line_end(n: int) -> None:
    counter = line_ends()
    units = [unit.rstrip("”") for unit in UNITS]
    filler = Filler("units", units, "\n", counter)
    assert filler.tokens(n) == counter.count("\n".join(filler.take(0, n)))


@pytest.mark.parametrize("counter", [length_counter(None), line_ends()], ids=["gpt2", "line-ends"])
@pytest.mark.parametrize(("before", "after"), [("Read:\n\n", "\n\nWhat?"), ("", ""), ("x ", " y")])
@given(n=st.integers(2, 9))
def test_ends_make_the_whole_prompt_exact(counter, before: str, after: str, n: int) -> None:
    filler = Filler("units", [unit.rstrip("”") for unit in UNITS], "\n", counter)
    units = filler.take(0, n)
    summed = sum(map(filler.cost, units)) + filler.ends(before, units[0], units[-1], after)
    assert summed == counter.count(before + "\n".join(units) + after)


@given(st.integers(-5, 300))
def test_within_is_the_most_that_fits(tokens: int) -> None:
    filler = Filler("units", UNITS, " ", length_counter(None))
    n = filler.within(tokens)
    assert n >= 0
    assert n == 0 or filler.tokens(n) <= tokens
    assert filler.tokens(n + 1) > tokens


@given(start=st.integers(0, 17), n=st.integers(0, 17))
def test_units_are_taken_in_order_over_and_over(start: int, n: int) -> None:
    filler = Filler("units", UNITS, " ", length_counter(None))
    assert filler.take(start, start + n) == [UNITS[i % 5] for i in range(start, start + n)]
    assert filler.take(start + 1, start) == []


def test_rounds_say_whether_something_repeats() -> None:
    filler = Filler("units", UNITS, " ", length_counter(None))
    assert [filler.rounds(n) for n in (0, 1, 5, 6, 10, 11)] == [1, 1, 1, 2, 2, 3]


def test_each_unit_is_counted_once_and_no_more_than_needed() -> None:
    counter = Tally()
    units = [f"unit {i:06}" for i in range(20_000)]
    filler = Filler("units", units, " ", counter)
    filler.within(1000)
    short = counter.chars
    assert short < 100_000, "a short text waits for no long pool"
    filler.within(10**9)
    once = counter.chars
    assert once < 300_000
    filler.within(10**8)
    filler.tokens(123_456)
    assert counter.chars == once


def test_threads_count_the_same() -> None:
    filler = Filler("units", [f"unit {i}" for i in range(5000)], " ", length_counter(None))
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(filler.within(9000))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = Filler("units", [f"unit {i}" for i in range(5000)], " ", length_counter(None))
    assert found == [alone.within(9000)] * 4


def test_nothing_to_fill_with_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"'empty\.txt'"):
        Filler("empty.txt", [], " ", length_counter(None))

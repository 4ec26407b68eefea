"""Haystacks: sentences of books, one line over and over, lines drawn from a pool."""

import gzip
import json
from pathlib import Path
from random import Random

import pytest
from tests.bench.counters import Quarters

from memagent.errors import BinaryDocument, ConfigError, DocumentNotFound, EmptyDocument
from memagent_bench.filler import Filler
from memagent_bench.haystacks import FixedHaystack, ShuffledHaystack, essays, sentences
from memagent_bench.length_tokens import length_counter

COUNTER = length_counter(None)
TEXT = """THE TITLE

CHAPTER I

Mr. Smith came at 5.30 p.m. on Monday. “Is he in?” he asked
J. R. Brown... Nobody knew! (Not even she.) “Well!” said Dr. Who.

今日は。明日は「雨！」です。

And so on"""


def pool(n: int) -> Filler:
    return Filler("pool", [f"Line {i} of the pool says {i * i}." for i in range(n)], "\n", COUNTER)


def test_sentences_are_whole_and_titles_are_left_out() -> None:
    assert sentences(TEXT) == [
        "Mr. Smith came at 5.30 p.m. on Monday.",
        "“Is he in?” he asked J. R. Brown...",
        "Nobody knew!",
        "(Not even she.)",
        "“Well!” said Dr. Who.",
        "今日は。",
        "明日は「雨！」",
        "です。",
    ]


def test_the_shipped_book_stands_in_and_says_so() -> None:
    book = essays((), COUNTER)
    assert "War and Peace" in book.name
    assert "RULER" in book.name
    assert book.take(0, 1)[0].startswith("“Well, Prince, so Genoa and Lucca")
    assert book.joiner == " "


def test_a_users_texts_follow_each_other_and_are_named_by_content(tmp_path: Path) -> None:
    plain, packed, ruler = (tmp_path / name for name in ("a.txt", "b.txt.gz", "c.json"))
    plain.write_text("One. Two.")
    packed.write_bytes(gzip.compress("Three é.".encode()))
    ruler.write_text(json.dumps({"text": "Four. Five."}))
    found = essays((plain, packed, ruler), COUNTER)
    assert found.take(0, len(found)) == ["One.", "Two.", "Three é.", "Four.", "Five."]
    assert found.name.startswith("a.txt, b.txt.gz, c.json (sha256 ")
    assert str(tmp_path) not in found.name
    plain.write_text("One. Other.")
    essays.cache_clear()
    assert essays((plain, packed, ruler), COUNTER).name != found.name


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", EmptyDocument),
        (b"no sentence at all", ConfigError),
        (b"{not json.}", ConfigError),
        (b'{"other": "One."}', ConfigError),
        (b'{"text": 5}', ConfigError),
        (bytes(range(256)) * 4, BinaryDocument),
    ],
)
def test_what_is_no_text_is_named(tmp_path: Path, content: bytes, error: type[Exception]) -> None:
    path = tmp_path / "essays.txt"
    path.write_bytes(content)
    with pytest.raises(error, match=r"essays\.txt"):
        essays((path,), COUNTER)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DocumentNotFound, match=r"none\.txt"):
        essays((tmp_path / "none.txt",), COUNTER)


@pytest.mark.parametrize("room", [-5, 0, 1, 50, 499, 5000])
def test_fixed_units_cost_what_they_say(room: int) -> None:
    filler = pool(40)
    units, cost = FixedHaystack(filler).lay(room, Random(0), ())
    assert cost == sum(map(filler.cost, units)) <= max(0, room)
    assert cost + max(map(filler.cost, filler.take(0, 40))) > room
    assert units == filler.take(0, len(units))


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("room", [-5, 0, 50, 499])
def test_drawn_units_are_different_and_cost_what_they_say(room: int, nested: bool) -> None:
    filler = pool(100)
    units, cost = ShuffledHaystack(filler, nested=nested).lay(room, Random(0), ())
    assert len(set(units)) == len(units)
    assert cost == sum(map(filler.cost, units)) <= max(0, room)
    assert cost + max(map(filler.cost, filler.take(0, 100))) > room


def test_drawn_units_differ_from_sample_to_sample() -> None:
    drawn = ShuffledHaystack(pool(100), nested=False)
    one, two, again = (drawn.lay(499, Random(seed), ())[0] for seed in (1, 2, 1))
    assert one == again
    assert set(one) != set(two)


def test_nested_units_stay_in_order_when_more_come() -> None:
    short, long = (
        ShuffledHaystack(pool(n), nested=True).lay(room, Random(7), ())[0]
        for n, room in ((100, 499), (300, 3000))
    )
    assert len(long) > 2 * len(short)
    assert [unit for unit in long if unit in set(short)] == short
    assert short != sorted(short), "in an order of its own"


def test_no_drawn_unit_holds_what_it_must_not() -> None:
    filler = pool(30)
    units, cost = ShuffledHaystack(filler, nested=False).lay(
        10**6, Random(0), ("says 16.", "Line 2")
    )
    assert len(units) == 30 - 1 - 11
    assert cost == sum(map(filler.cost, units))


def test_other_counters_are_served_too() -> None:
    units, cost = FixedHaystack(Filler("x", ["abcdefg"], "\n", Quarters())).lay(9, Random(0), ())
    assert (len(units), cost) == (4, 8)

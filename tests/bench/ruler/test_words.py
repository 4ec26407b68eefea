"""Keys and values are RULER's."""

import re
import subprocess
import sys
import uuid
from pathlib import Path
from random import Random

import pytest

from memagent.errors import ConfigError
from memagent_bench.ruler import words
from memagent_bench.ruler.words import Names, draw, names, word_list

PUBLISHED = 6_175_260


def test_there_are_as_many_words_as_published() -> None:
    found = names()
    assert len(found) == PUBLISHED
    assert found[0] < found[1] < found[PUBLISHED // 2] < found[PUBLISHED - 1]


def test_the_index_is_that_of_the_sorted_list() -> None:
    adjectives = ["blue", "blue-eyed", "blue-eyed-old", "bluer", "ad hoc", "a", "blue"]
    nouns = ["f", "eyed", "eye", "eyed-x", "zebra", "ATM", "f"]
    plain = sorted({f"{a}-{n}" for a in adjectives for n in nouns})
    assert list(Names(adjectives, nouns)) == plain
    assert Names(adjectives, nouns)[3:9] == plain[3:9]


def test_families_of_adjectives_stand_where_they_are_sorted() -> None:
    hyphenated = [a for a in word_list("adjective") if a.startswith(("blue", "high", "old"))]
    nouns = [*word_list("noun")[::50], "eyebrow", "eyesight"]
    plain = sorted({f"{a}-{n}" for a in hyphenated for n in nouns})
    assert list(Names(hyphenated, nouns)) == plain


def test_a_word_that_is_not_there_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        names()[PUBLISHED]


def test_kinds_of_values() -> None:
    rng = Random(1)
    drawn = {kind: [draw(kind, rng) for _ in range(200)] for kind in ("words", "numbers", "uuids")}
    assert all(re.fullmatch(r"[1-9][0-9]{6}", number) for number in drawn["numbers"])
    assert all(uuid.UUID(text).version == 4 for text in drawn["uuids"])
    assert all("-" in word for word in drawn["words"])
    assert all(len(set(values)) == 200 for values in drawn.values())


def test_uuids_are_the_bits_of_the_generator() -> None:
    bits = Random(5).getrandbits(128)
    assert draw("uuids", Random(5)) == str(uuid.UUID(int=bits, version=4))


def test_another_version_of_the_words_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "version", lambda name: "3.0.0")
    with pytest.raises(ConfigError, match=r"'3\.0\.0'.*memagent\[bench\]"):
        word_list("noun")


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"memagent\[bench\]"):
        word_list("noun")


def test_reading_the_words_warns_of_nothing() -> None:
    code = "from memagent_bench.ruler.words import names; print(len(names()))"
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={"PYTHONPATH": str(Path(words.__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout.strip(), ran.stderr) == (str(PUBLISHED), "")


def test_different_ones_are_no_parts_of_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(["old-cat", "old-cat", "bold-cats", "cat", "red-hat", "a-b"])
    monkeypatch.setattr(words, "draw", lambda kind, rng: next(drawn))
    assert words.draw_different("words", 3, Random(1)) == ["old-cat", "red-hat", "a-b"]

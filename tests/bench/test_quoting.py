"""The measurement of quotes, on the committed questions of HotpotQA."""

from __future__ import annotations

import json
from pathlib import Path

import memagent_bench
from memagent.quotes import Quote
from memagent_bench import quoting

SAMPLE = Path(memagent_bench.__file__).parent / "data" / "hotpotqa_sample.json"


def test_sentences_as_they_are_are_all_found() -> None:
    questions = json.loads(SAMPLE.read_text())
    lines = quoting.measure(questions)
    assert [line[0] for line in lines] == ["0%", "20%", "40%"]
    assert lines[0][1:3] == ("1.000", "1.000")
    recall = [float(line[2]) for line in lines]
    assert recall[0] > recall[2]
    assert sum(map(int, lines[0][4].split(" + "))) == len(quoting.supporting(questions))


def test_a_quote_is_right_if_one_contains_the_other() -> None:
    assert quoting.is_right(Quote("x", "He met\nMr."), "He met Mr. Ed Wood.")
    assert not quoting.is_right(Quote("x", "He met."), "He met Mr. Ed Wood.")
    assert not quoting.is_right(Quote("x"), "He met Mr. Ed Wood.")

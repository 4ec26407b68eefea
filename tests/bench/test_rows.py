"""The measurement of rows: its documents, and the rule that plays the model."""

from __future__ import annotations

import pytest

from memagent_bench import rows
from memagent_bench.length_tokens import length_counter

COUNTER = length_counter(None)


@pytest.mark.parametrize("tokens", [2_000, 30_000])
def test_documents_have_their_length_and_rows(tokens: int) -> None:
    paper = rows.make_paper(tokens, 0, COUNTER)
    assert 0.97 * tokens < COUNTER.count(paper.text) <= 1.03 * tokens
    assert len(paper.rows) == tokens // rows.EVERY
    mentions = [
        paper.text.count(f"Invoice {number} is over {total}") for number, total in paper.rows
    ]
    assert sorted(set(mentions)) == ([1] if tokens < 2_500 else [1, 2])
    assert paper != rows.make_paper(tokens, 1, COUNTER)


def test_extracting_finds_all_and_a_full_memory_does_not() -> None:
    ask, extract = rows.measure(rows.play(COUNTER), 100_000, 1, COUNTER)
    assert ask[2] == "ask"
    assert float(ask[5].split()[0]) < 0.9
    assert extract[5].startswith("1.000")
    assert extract[6:8] == ("0", "0")

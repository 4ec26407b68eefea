"""The published figures, against what the paper prints."""

from __future__ import annotations

import pytest

from memagent.tasks import SCORERS
from memagent_bench.published import EFFECTIVE, RULER_TASKS, list_published

K = 1024


def test_ruler() -> None:
    assert len(set(RULER_TASKS)) == 13
    assert pytest.approx(0.856) == EFFECTIVE


def test_hotpotqa_doubles_from_7k_to_3_5m() -> None:
    (table,) = list_published("qa")
    assert table.lengths == tuple(7 * K * 2**i for i in range(10))
    rows = {name: list(scores.values()) for name, scores in table.scores.items()}
    assert len(rows) == 8
    best = rows["RL-MemAgent-14B"]
    assert (best[0], best[-1], len(best)) == (pytest.approx(0.8359), pytest.approx(0.7812), 10)
    assert len(rows["Qwen2.5-14B, direct"]) == 8
    assert table.samples == 128


def test_ruler_is_over_eleven_tasks_and_then_ten() -> None:
    (table,) = list_published("ruler")
    assert set(RULER_TASKS) - set(table.tasks) == {"cwe", "qa_2"}
    assert "qa_1" in table.tasks_at(256 * K)
    assert len(table.tasks_at(512 * K)) == 10
    assert table.scores["RL-MemAgent-7B"][512 * K] == pytest.approx(0.8191)


@pytest.mark.parametrize("suite", ["qa", "ruler"])
def test_tables_say_where_they_come_from(suite: str) -> None:
    for table in list_published(suite):
        assert "arXiv 2507.02259" in table.source
        assert table.caveat
        assert set(table.metrics) <= set(SCORERS)
        assert all(0 <= s <= 1 for scores in table.scores.values() for s in scores.values())
        assert all(set(at) <= set(table.scores[name]) for name, at in table.read_off.items())


def test_metric_of_a_record() -> None:
    (table,) = list_published("qa")
    assert table.metric_of("sub_exact_match", ()) == "sub_exact_match"
    assert table.metric_of("f1", ("exact_match", "sub_exact_match")) == "sub_exact_match"
    assert table.metric_of("f1", ("exact_match",)) is None


def test_nothing_is_published_of_other_suites() -> None:
    assert list_published("tracking") == []

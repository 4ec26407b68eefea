"""The answer in plain words."""

from __future__ import annotations

import pytest
from tests.bench.report.made import K, record, run

from memagent.messages import Usage
from memagent_bench.published import RULER_TASKS
from memagent_bench.record import Record
from memagent_bench.report.cells import sort_records
from memagent_bench.report.primary import primary_tests
from memagent_bench.report.summary import summary, verdict_words
from memagent_bench.report.view import view
from memagent_bench.significance import Verdict


def told(*records: Record) -> tuple[str, str]:
    suites = sort_records({"run": list(records)})
    tests = primary_tests(suites, {"ruler": "memory"}, [], 0.05)
    return summary(view(suites[0], "memory", suites[0].labels, 0.05), tests, 0.05)


def test_one_record() -> None:
    lead, more = told(record())
    assert (
        lead
        == "On niah_single_1, memory scores 100.0 of 100 at 8K (95% interval 20.7–100.0, 1 sample)."
    )
    assert more == "It makes 1.00 times the predicted calls."


def test_a_loss_that_is_shown() -> None:
    records = [
        record(index=i, length=n, score=float(n < 9 * K))
        for i in range(50)
        for n in (8 * K, 32 * K)
    ]
    lead, _ = told(*records)
    assert "and 0.0 at 32K (0.0–7.1). The change is −100.0 points" in lead
    assert lead.endswith("the loss is more than 5 points (inferior).")


def test_a_loss_that_is_ruled_out() -> None:
    same = {"question": "Who?", "outputs": ("Ada",)}
    lead, more = told(
        *(record(index=i, length=n, **same) for i in range(60) for n in (8 * K, 32 * K))
    )
    assert "The change is 0.0 points" in lead
    assert lead.endswith("a loss of 5 points or more is ruled out (non-inferior).")
    assert "Its calls grow with length as predicted" in more
    assert "All 120 samples have a score." in more


def test_everything_failed() -> None:
    lead, more = told(*(record(index=i, score=None) for i in range(5)))
    assert "scores 0.0 of 100" in lead
    assert more == "5 samples of 5 (100%) have no score and count as 0."


def test_systems_are_ranked_and_tested() -> None:
    _, more = told(*run(n=20))
    assert "At 128K the scores are memory " in more
    assert "In the mean at 128K, direct scores " in more
    assert "points less than memory (" in more
    assert "adjusted p < 0.001)." in more


def test_many_comparisons_are_only_counted() -> None:
    _, more = told(
        *run(("memory", "direct", "bm25", "extractive", "map-reduce", "memory-gate"), n=6)
    )
    assert "Of 5 primary comparisons with memory, " in more
    assert "; 2 others score no higher." in more


def test_calls_that_were_not_predicted() -> None:
    _, more = told(record(usage=Usage(calls=6), predicted_calls=3))
    assert "It makes 2.00 times the predicted calls." in more


def test_effective_length_of_a_whole_run_with_the_published_prompt() -> None:
    def whole(system: str) -> list[Record]:
        return [record(t, length=n, system=system) for t in RULER_TASKS for n in (8 * K, 16 * K)]

    said = "The effective length of published by RULER's threshold of 85.6 is 16K."
    assert said in told(*whole("memory"), *whole("published"))[1]
    assert "effective" not in told(*whole("memory"), *whole("published")[2:])[1]
    assert "effective" not in told(*whole("memory"))[1]


def test_lengths_without_a_common_task() -> None:
    lead, _ = told(record("vt"), record("cwe", length=32 * K))
    assert lead.endswith("no task was run at both lengths.")


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_words(verdict: Verdict) -> None:
    assert verdict.value in verdict_words(verdict, 0.025)
    assert "2.5 points" in verdict_words(verdict, 0.025)

"""RULER's summary: only whole runs have an effective length."""

from __future__ import annotations

import pytest
from tests.bench.report.made import K, record

from memagent_bench.published import ONE_SHOT, RULER_TASKS
from memagent_bench.report.cells import sort_records
from memagent_bench.report.compare import means
from memagent_bench.report.ruler import Summary, summaries


def summarised(
    scores: dict[int, float],
    tasks: tuple[str, ...] = RULER_TASKS,
    system: str = ONE_SHOT,
) -> Summary:
    records = [
        record(t, length=n, score=s, system=system) for n, s in scores.items() for t in tasks
    ]
    (suite,) = sort_records({"run": records})
    (one,) = summaries(suite, means(suite))
    return one


def test_effective_length() -> None:
    one = summarised({8 * K: 0.9, 16 * K: 0.8, 32 * K: 0.86, 64 * K: 0.1})
    assert (one.complete, one.effective, one.below) == (True, 32 * K, (16 * K,))
    assert one.average == pytest.approx(2.66 / 4)
    assert one.increasing == pytest.approx((0.9 + 2 * 0.8 + 3 * 0.86 + 4 * 0.1) / 10)
    assert one.decreasing == pytest.approx((4 * 0.9 + 3 * 0.8 + 2 * 0.86 + 0.1) / 10)


def test_only_the_published_prompt_has_an_effective_length() -> None:
    assert summarised({8 * K: 0.9}).has_effective_length
    assert not summarised({8 * K: 0.9}, system="memory").has_effective_length
    assert not summarised({8 * K: 0.9}, RULER_TASKS[:5]).has_effective_length


def test_no_effective_length() -> None:
    one = summarised({8 * K: 0.5})
    assert (one.complete, one.effective, one.below) == (True, None, ())


def test_partial() -> None:
    one = summarised({8 * K: 1.0}, RULER_TASKS[:5])
    assert (one.complete, one.tasks) == (False, 5)
    assert not summarised({8 * K: 1.0}, (*RULER_TASKS, "mine")).complete


def test_other_suites_have_none() -> None:
    (suite,) = sort_records({"run": [record(suite="qa", task="hotpotqa")]})
    assert summaries(suite, means(suite)) == []


def test_averages_are_those_of_the_paper() -> None:
    """GPT-4's row of the table of arXiv 2404.06654: 91.6 on average, 89.0 increasing, 94.1 decreasing."""
    percents = dict(zip([4, 8, 16, 32, 64, 128], [96.6, 96.3, 95.2, 93.2, 87.0, 81.2], strict=True))
    one = summarised({length * K: percent / 100 for length, percent in percents.items()})
    assert one.average == pytest.approx(0.916, abs=0.0005)
    assert one.increasing == pytest.approx(0.890, abs=0.0005)
    assert one.decreasing == pytest.approx(0.941, abs=0.0005)
    assert one.effective == 64 * K

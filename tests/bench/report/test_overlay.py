"""Published figures stand only beside what they compare with."""

from __future__ import annotations

from typing import Any

from tests.bench.report.made import K, record, run

from memagent_bench.record import Record
from memagent_bench.report.cells import sort_records
from memagent_bench.report.overlay import Overlay, overlay_chart, overlays
from memagent_bench.report.theme import mark


def found(*records: Record) -> list[Overlay]:
    (suite,) = sort_records({"run": list(records)})
    return overlays(suite)


def qa(**changed: Any) -> Record:
    given: dict[str, Any] = {
        "suite": "qa",
        "task": "hotpotqa",
        "scorer": "sub_exact_match",
        "system": "published",
    }
    return record(length=7 * K, **given | changed)


def test_other_prompts_have_no_published_figures_beside_them() -> None:
    assert found(qa(system="memory")) == []
    (one,) = found(qa(), qa(system="memory"))
    assert set(one.measured) == {"published"}


def test_answers_without_a_text_have_no_published_figures_beside_them() -> None:
    assert found(qa(task="hotpotqa_no_context")) == []
    (one,) = found(qa(), qa(task="hotpotqa_no_context"))
    assert set(one.measured) == {"published"}


def test_ruler_needs_the_eleven_tasks() -> None:
    (one,) = found(*run(("published",), n=1))
    assert set(one.measured) == {"published"}
    assert set(one.measured["published"]) == {8 * K, 32 * K, 128 * K}
    assert one.measured["published"][8 * K].n == 11
    assert found(record("vt", system="published"), record("cwe", system="published")) == []


def test_ten_tasks_suffice_where_ten_were_published() -> None:
    records = [r for r in run(("published",), lengths=(256 * K, 512 * K), n=1) if r.task != "qa_1"]
    (one,) = found(*records)
    assert set(one.measured["published"]) == {512 * K}


def test_hotpotqa_needs_the_metric() -> None:
    (one,) = found(qa(score=0.0), qa(index=1))
    assert one.measured["published"][7 * K].mean == 0.5
    assert found(qa(scorer="f1")) == []


def test_the_metric_may_be_a_further_score() -> None:
    (one,) = found(qa(scorer="f1", score=0.4, scores={"f1": 0.4, "sub_exact_match": 1.0}))
    assert one.measured["published"][7 * K].mean == 1.0


def test_unscored_is_zero_here_too() -> None:
    (one,) = found(qa(), qa(index=1, score=None))
    assert (one.measured["published"][7 * K].mean, one.measured["published"][7 * K].unscored) == (
        0.5,
        1,
    )


def test_other_tasks_have_nothing_published() -> None:
    assert found(qa(task="squad")) == []
    assert found(qa(suite="tracking")) == []


def test_every_published_line_says_so() -> None:
    (one,) = found(qa())
    chart = overlay_chart("name", one, {"published": mark(0)})
    assert [s.published for s in chart.series] == [False] + [True] * 8
    assert all(s.label.startswith("published: ") for s in chart.series if s.published)
    assert one.lengths == tuple(7 * K * 2**i for i in range(10))

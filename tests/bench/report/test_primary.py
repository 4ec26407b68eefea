"""The named comparisons and their family."""

from __future__ import annotations

import pytest
from tests.bench.report.made import K, record, run

from memagent.errors import ConfigError
from memagent_bench.report.cells import sort_records
from memagent_bench.report.primary import default_cells, primary_tests
from memagent_bench.significance import holm


def test_each_cell_is_tested_for_each_other_system() -> None:
    suites = sort_records({"run": run(("memory", "direct", "bm25"), n=12)})
    found = primary_tests(suites, {"ruler": "memory"}, ["vt@32k", "mean@128K"], 0.05)
    assert [(t.cell, t.label) for t in found] == [
        *(("vt@32K", "direct"), ("vt@32K", "bm25")),
        *(("mean@128K", "direct"), ("mean@128K", "bm25")),
    ]
    p = [t.p.p for t in found if t.p]
    assert [t.adjusted for t in found] == holm(p)
    assert found[2].contrast
    assert len(found[2].contrast.tasks) == 13


def test_a_cell_named_twice_is_one_hypothesis() -> None:
    suites = sort_records({"run": run(("memory", "direct"), n=12)})
    once = primary_tests(suites, {"ruler": "memory"}, ["vt@32k"], 0.05)
    twice = primary_tests(suites, {"ruler": "memory"}, ["vt@32k", "vt@32768", "vt@32K"], 0.05)
    assert [(t.cell, t.adjusted) for t in twice] == [(t.cell, t.adjusted) for t in once]


def test_the_default_is_the_mean_at_the_longest_shared_length() -> None:
    (suite,) = sort_records(
        {
            "run": [
                record(),
                record(length=32 * K),
                record(length=128 * K),
                record(system="direct", length=32 * K),
            ]
        }
    )
    assert default_cells(suite, "memory") == ["mean@32K"]
    (tested,) = primary_tests([suite], {"ruler": "memory"}, [], 0.05)
    assert (tested.cell, tested.label, tested.adjusted) == ("mean@32K", "direct", 1.0)


def test_one_system_has_nothing_to_compare() -> None:
    suites = sort_records({"run": [record()]})
    assert primary_tests(suites, {"ruler": "memory"}, [], 0.05) == []


def test_a_system_without_the_cell_is_shown_and_not_tested() -> None:
    records = [record(length=n) for n in (8 * K, 32 * K)] + [record(system="direct")]
    suites = sort_records({"run": records})
    (tested,) = primary_tests(suites, {"ruler": "memory"}, ["mean@32k"], 0.05)
    assert (tested.contrast, tested.p, tested.adjusted) == (None, None, None)


def test_other_documents_are_compared_and_not_tested() -> None:
    records = [record(), record(system="direct", document="0" * 16)]
    (tested,) = primary_tests(sort_records({"run": records}), {"ruler": "memory"}, [], 0.05)
    assert tested.contrast
    assert tested.p is None


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("vt", "write TASK@LENGTH"),
        ("@8k", "write TASK@LENGTH"),
        ("vt@", "is not a length"),
        ("vt@many", "is not a length"),
        (
            "vt@8k",
            "is not in the records; the tasks are mean, niah_single_1 and the lengths 8K",
        ),
        ("mean@1m", "is not in the records"),
    ],
)
def test_a_cell_that_is_not_there_is_refused(cell: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        primary_tests(sort_records({"run": [record()]}), {"ruler": "memory"}, [cell], 0.05)


def test_a_cell_belongs_to_the_suites_that_have_it() -> None:
    records = [
        record(system=s, suite=u, task=t)
        for s in ("memory", "direct")
        for u, t in (("ruler", "vt"), ("qa", "hotpotqa"))
    ]
    suites = sort_records({"run": records})
    both = {"ruler": "memory", "qa": "memory"}
    assert [t.suite for t in primary_tests(suites, both, ["vt@8k"], 0.05)] == ["ruler"]
    assert [t.suite for t in primary_tests(suites, both, ["mean@8k"], 0.05)] == ["ruler", "qa"]

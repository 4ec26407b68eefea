"""Means and differences of cells: what is paired, and over which tasks."""

from __future__ import annotations

from typing import Any

import pytest
from tests.bench.report.made import K, record

from memagent_bench.record import Record
from memagent_bench.report.cells import Suite, sort_records
from memagent_bench.report.compare import contrast, losses, means
from memagent_bench.significance import Verdict


def suite(*records: Record) -> Suite:
    (one,) = sort_records({"run": list(records)})
    return one


def many(score: float, n: int = 40, **changed: Any) -> list[Record]:
    return [record(index=i, score=score, **changed) for i in range(n)]


def test_means_are_over_the_tasks_that_were_run() -> None:
    found = means(
        suite(record("vt", score=1.0), record("cwe", score=0.0), record("vt", length=32 * K))
    )
    assert found["memory", 8 * K].estimate.mean == 0.5
    assert found["memory", 8 * K].tasks == ("vt", "cwe")
    assert found["memory", 32 * K].tasks == ("vt",)
    assert set(found) == {("memory", 8 * K), ("memory", 32 * K)}


def test_systems_are_paired_by_index_and_document() -> None:
    one = contrast(suite(*many(1.0), *many(0.0, system="direct")), "direct", "memory", 8 * K, 0.05)
    assert one is not None
    assert (one.difference.mean, one.difference.paired, one.difference.n) == (-1.0, True, 40)
    assert one.verdict is Verdict.INFERIOR
    assert one.pairs == ((-1.0,) * 40,)
    assert one.relative == -1.0


def test_other_documents_are_not_paired() -> None:
    other = many(0.0, system="direct", document="0" * 16)
    one = contrast(suite(*many(1.0), *other), "direct", "memory", 8 * K, 0.05)
    assert one is not None
    assert (one.difference.paired, one.pairs, one.difference.mean) == (False, None, -1.0)


def test_only_shared_indexes_are_paired() -> None:
    one = contrast(
        suite(*many(1.0), *many(1.0, n=15, system="direct")), "direct", "memory", 8 * K, 0.05
    )
    assert one is not None
    assert (one.difference.n, one.old, one.difference.mean) == (15, 1.0, 0.0)


def test_unscored_is_zero_in_a_difference() -> None:
    one = contrast(
        suite(record(), record(system="direct", score=None)), "direct", "memory", 8 * K, 0.05
    )
    assert one is not None
    assert one.difference.mean == -1.0


def test_systems_are_compared_over_the_tasks_of_both() -> None:
    mixed = suite(record("vt"), record("cwe", score=0.0), record("vt", system="direct"))
    one = contrast(mixed, "direct", "memory", 8 * K, 0.05)
    assert one is not None
    assert (one.tasks, one.difference.mean) == (("vt",), 0.0)
    assert contrast(mixed, "direct", "memory", 8 * K, 0.05, task="cwe") is None


def test_a_length_is_compared_with_the_shortest_unpaired() -> None:
    """The questions of a length are its own."""
    (one,) = losses(suite(*many(1.0), *many(0.5, length=32 * K)), 0.05)
    assert (one.length, one.start, one.difference.paired) == (32 * K, 8 * K, False)
    assert (one.difference.mean, one.old, one.relative) == (-0.5, 1.0, -0.5)
    assert one.verdict is Verdict.INFERIOR


def test_a_longer_sample_that_asks_the_same_is_paired() -> None:
    same = {"question": "Who?", "outputs": ("Ada",)}
    (one,) = losses(suite(*many(1.0, **same), *many(1.0, length=32 * K, **same)), 0.05)
    assert one.difference.paired
    assert one.verdict is Verdict.NON_INFERIOR  # 40 equal pairs: within 4.6 points


def test_one_sample_that_asks_another_thing_ends_the_pairing() -> None:
    same = {"question": "Who?", "outputs": ("Ada",)}
    longer = many(1.0, length=32 * K, **same)
    longer[3] = record(index=3, length=32 * K, question="Who?", outputs=("Grace",))
    (one,) = losses(suite(*many(1.0, **same), *longer), 0.05)
    assert not one.difference.paired


def test_lengths_without_a_common_task_have_no_loss() -> None:
    assert losses(suite(record("vt"), record("cwe", length=32 * K)), 0.05) == []


def test_nothing_to_lose_has_no_relative_loss() -> None:
    (one,) = losses(suite(record(score=0.0), record(length=32 * K, score=0.0)), 0.05)
    assert one.relative is None
    assert one.difference.mean == pytest.approx(0.0)

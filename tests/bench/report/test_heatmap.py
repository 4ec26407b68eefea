"""Heat maps: the numbers in the cells, and their colours."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from matplotlib.image import imread
from tests.bench.report.made import K, record

from memagent.tasks import Evidence
from memagent_bench.record import Record
from memagent_bench.report.cells import sort_records
from memagent_bench.report.compare import means
from memagent_bench.report.heatmap import (
    HeatMap,
    blend,
    colour,
    depth_map,
    heat_map,
    heat_map_png,
)
from memagent_bench.report.theme import LIGHT


def heat(*records: Record) -> HeatMap:
    (suite,) = sort_records({"run": list(records)})
    return heat_map(suite, suite.labels[0], means(suite))


def test_rows_are_tasks_and_their_mean() -> None:
    one = heat(record("vt", score=0.5), record("cwe"), record("vt", length=32 * K, score=None))
    assert [task for task, _ in one.rows] == ["vt", "cwe", "mean"]
    shown = [[e and e.mean for e in cells] for _, cells in one.rows]
    assert shown == [[0.5, 0.0], [1.0, None], [0.75, 0.0]]
    assert one.rows[0][1][1]
    assert one.rows[0][1][1].unscored == 1


def at(depth: float, **changed: Any) -> Record:
    place = Evidence(start=int(depth * 10_000), end=10_000, supports=(0,))
    return record(chars=10_000, evidence=(place,), **changed)


def test_needles_are_mapped_by_depth_and_length() -> None:
    records = [at(0.0), at(0.09, index=1, score=0.0), at(0.999, length=32 * K)]
    records += [at(0.05, task="vt", score=0.0), record("cwe", length=64 * K)]
    (suite,) = sort_records({"run": records})
    one = depth_map(suite, "memory")
    assert one is not None
    assert (one.kind, one.has_mean, one.lengths) == ("depth", False, (8 * K, 32 * K))
    assert [name for name, _ in one.rows] == [f"{n}–{n + 10}%" for n in range(0, 100, 10)]
    shown = [[e and e.mean for e in cells] for _, cells in one.rows]
    assert shown == [[0.25, None], *[[None, None]] * 8, [None, 1.0]]


def test_samples_with_several_places_have_no_depth() -> None:
    place = Evidence(start=0, end=9, supports=(0,))
    other = place.model_copy(update={"supports": (1,)})
    (suite,) = sort_records({"run": [record(evidence=(place, other)), record(index=1)]})
    assert depth_map(suite, "memory") is None


def test_one_task_needs_no_mean() -> None:
    assert [task for task, _ in heat(record("vt")).rows] == ["vt"]


@pytest.mark.parametrize(
    ("score", "expected"),
    [(0.0, ("bad", 100)), (0.25, ("bad", 50)), (0.5, ("good", 0)), (1.0, ("good", 100))],
)
def test_scale(score: float, expected: tuple[str, int]) -> None:
    assert blend(score) == expected


def test_colours() -> None:
    assert colour(1.0) == LIGHT["good"]
    assert colour(0.0) == LIGHT["bad"]
    assert colour(0.5) == LIGHT["paper"]


def test_picture_holds_the_whole_title() -> None:
    label = "memory · Qwen3-30B-A3B-Instruct-2507-and-a-name-that-goes-on-and-on"
    one = heat(record("vt"))
    short = imread(BytesIO(heat_map_png(one, "RULER")))
    wide = imread(BytesIO(heat_map_png(HeatMap(label, one.lengths, one.rows), "RULER")))
    assert wide.shape[1] > short.shape[1]
    # The last columns are paper: nothing is cut off.
    assert (wide[:, -4:, :3] == wide[0, 0, :3]).all()

"""Heat maps: the numbers in the cells, and their colours."""

from __future__ import annotations

from io import BytesIO

import pytest
from matplotlib.image import imread
from tests.bench.report.made import K, record

from memagent_bench.record import Record
from memagent_bench.report.cells import sort_records
from memagent_bench.report.compare import means
from memagent_bench.report.heatmap import HeatMap, blend, colour, heat_map, heat_map_png
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

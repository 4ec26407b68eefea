"""Arms answer the same held-out samples, and the committed question gets the answer that their scores give."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memagent.errors import ConfigError
from memagent.messages import ChatRequest, Sampling
from memagent.models.policy import Policy
from memagent.models.scripted import ScriptedModel
from memagent.prompts import PromptSet
from memagent_bench.length_tokens import length_counter
from memagent_bench.records import read_records
from memagent_bench.report.heatmap import HeatMap
from memagent_engines.smol import TRAINED
from memagent_smol import measure as measuring
from memagent_smol import picture as drawing
from memagent_smol import verdict as judging
from memagent_smol.answers import answers
from memagent_smol.lessons import MEMORY, PROMPTS, WINDOW
from memagent_smol.measure import CELLS, CHUNK, Cell, measure, plan_held_out
from memagent_smol.table import tables
from memagent_smol.verdict import BM25, scores, verdict

RULER = [c for c in CELLS["ruler-4k"] if c.task not in {"qa_1", "qa_2", "squad"}]
"""Those that need no data set."""
SMALL = {
    "short": (Cell("changes_4", 2048, 8), Cell("changes_8", 2048, 8)),
    "long": (Cell("changes_16", 4096, 8),),
}
"""Without HotpotQA, which the tests do not have."""
PAIR = ("short", "long")


@pytest.fixture(autouse=True)
def cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "CELLS", SMALL)
    monkeypatch.setattr(judging, "CELLS", SMALL)


class Reader:
    """Knows the answers of a share of the samples, by their questions."""

    def __init__(self, share: float) -> None:
        self._known: dict[str, str] = {}
        for name in PAIR:
            for cell in SMALL[name]:
                for index in range(round(share * cell.samples)):
                    sample = _sample(cell, index)
                    self._known[sample.question] = sample.outputs[0]

    def __call__(self, request: ChatRequest) -> str:
        if request.kind != "answer":
            return "[keep]"
        return self._known.get(request.parts["question"], "unknown")


def _sample(cell: Cell, index: int) -> Any:
    grid = plan_held_out(Path(), [cell], ["memory-gate"])
    return grid.tasks[cell.task](cell.length, grid.options).sample(index)


def opener(reader: Reader) -> Callable[..., Any]:
    return lambda *_, name, window, **__: ScriptedModel(
        reader, name=name, window=window, counter=length_counter(None)
    )


def records_of(
    folder: Path, share: float, *names: str, systems: tuple[str, ...] = ("memory-gate",)
) -> Path:
    grid = plan_held_out(Path(), [cell for name in names for cell in SMALL[name]], systems)
    asyncio.run(measure(grid, folder, adapter=None, open_model=opener(Reader(share))))
    return folder


def test_the_committed_cells_are_those_of_the_decision() -> None:
    page = Path(__file__).parents[2] / "docs" / "adr" / "0016-what-smol-has-to-show.md"
    rows = page.read_text(encoding="utf-8")
    assert "| (i) short | 4K, the longest of training | 200 | 16 |" in rows
    assert "| (ii) short | 4K | 200 | - |" in rows
    assert "| (i) long | 64K, 16 times as long | 48 | 128 |" in rows
    assert CELLS["short"] == (Cell("changes_16", 4096, 200), Cell("hotpotqa", 4096, 200))
    assert CELLS["long"] == (Cell("changes_128", 65536, 48),)


def test_a_second_call_does_what_is_left(tmp_path: Path) -> None:
    records_of(tmp_path / "a", 1.0, "short")
    first = read_records(tmp_path / "a")
    records_of(tmp_path / "a", 0.0, "short", "long")
    both = read_records(tmp_path / "a")
    assert len(first) == 16
    assert len(both) == 24
    assert scores(both, SMALL["short"][0], "memory-gate") == [1.0] * 8
    assert scores(both, SMALL["long"][0], "memory-gate") == [0.0] * 8


@pytest.mark.parametrize(
    ("rewarded", "more", "bm25", "positive"),
    [(1.0, 0.25, 0.25, True), (0.5, 0.5, 0.0, False), (1.0, 0.0, 1.0, False)],
)
def test_it_is_positive_if_both_differences_are(
    tmp_path: Path, rewarded: float, more: float, bm25: float, positive: bool
) -> None:
    rewards = records_of(tmp_path / "rewards", rewarded, *PAIR)
    for folder, share in ((rewards, 0.0), (tmp_path / "untrained", bm25)):
        records_of(folder, share, "long", systems=(BM25,))
    found = verdict(rewards, records_of(tmp_path / "more", more, "short"), tmp_path / "untrained")
    assert found.positive == positive
    assert found.more.mean == pytest.approx(rewarded - more)
    assert found.bm25.mean == pytest.approx(rewarded - bm25)
    assert found.more.n == 16


def test_a_table_has_arms_or_tasks_down_whichever_are_more(tmp_path: Path) -> None:
    a = records_of(tmp_path / "a", 0.5, *PAIR)
    records_of(a, 1.0, "long", systems=(BM25,))
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in tables([a]).splitlines()
    ]
    assert lines == [
        ["2K", "a `memory-gate`"],
        ["---", "---"],
        *([f"changes_{many}", "0.500 [0.215, 0.785] (n=8)"] for many in (4, 8)),
        [""],
        ["4K", "changes_16"],
        ["---", "---"],
        [f"a `{BM25}`", "1.000 [0.676, 1.000] (n=8)"],
        ["a `memory-gate`", "0.500 [0.215, 0.785] (n=8)"],
    ]
    b = records_of(tmp_path / "b", 0.0, "short")
    assert (
        tables([a, b]).splitlines()[3]
        == f"| b `memory-gate` |{' 0.000 [0.000, 0.324] (n=8) |' * 2}"
    )


def test_the_kinds_of_answers_are_counted_for_each_arm(tmp_path: Path) -> None:
    a = records_of(tmp_path / "a", 0.5, *PAIR)
    _, _, *rows = [line.strip("| ").split(" | ") for line in answers([a])]
    shares = {row[2]: [float(cell) for cell in row[4:]] for row in rows}
    assert [row[:2] for row in rows] == [["a", "`memory-gate`"]] * 3
    assert shares["changes_16, 4K"] == [0.5, 0.0, 0.0, 0.0, 0.5]
    assert set(shares) == {"changes_4, 2K", "changes_8, 2K", "changes_16, 4K"}


def test_the_picture_has_a_row_for_each_task_and_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[HeatMap] = []

    def draw(heat: HeatMap, _: str) -> bytes:
        drawn.append(heat)
        return b"picture"

    monkeypatch.setattr(drawing, "heat_map_png", draw)
    a = records_of(tmp_path / "a", 0.5, *PAIR)
    records_of(a, 1.0, "long", systems=(BM25,))
    drawing.picture([a, records_of(tmp_path / "b", 1.0, "short")], tmp_path / "new" / "arms.png")
    assert (tmp_path / "new" / "arms.png").read_bytes() == b"picture"
    (heat,) = drawn
    assert heat.lengths == (2048, 4096)
    assert not heat.has_mean
    means = {name: [one and one.mean for one in found] for name, found in heat.rows}
    assert list(means) == [
        "changes_4, a",
        "changes_4, b",
        "changes_8, a",
        "changes_8, b",
        "changes_16, a",
    ]
    assert means["changes_4, a"] == [0.5, None]
    assert means["changes_8, b"] == [1.0, None]
    assert means["changes_16, a"] == [None, 0.5]


@pytest.mark.parametrize("cell", RULER, ids=[cell.task for cell in RULER])
def test_a_cell_of_ruler_holds_samples_of_its_task(cell: Cell) -> None:
    sample = _sample(cell, 0)
    assert sample.task == cell.task
    assert cell.length // 2 < sample.tokens <= cell.length


def test_a_missing_sample_is_named(tmp_path: Path) -> None:
    folder = records_of(tmp_path / "a", 1.0, "short")
    with pytest.raises(ConfigError, match="changes_16 at 4096 tokens has 0 of 8 samples"):
        scores(read_records(folder), SMALL["long"][0], "memory-gate")


def test_what_ships_reads_as_it_was_measured() -> None:
    shipped = Policy.load(TRAINED)
    assert shipped is not None
    assert shipped.prompts == PromptSet.load(str(PROMPTS))
    assert (shipped.window, shipped.chunk_tokens, shipped.memory_tokens) == (WINDOW, CHUNK, MEMORY)
    assert (shipped.gate, shipped.degenerate) == ("update", "take")
    assert shipped.sampling == Sampling(temperature=0.0)


def test_a_question_that_the_document_does_not_answer_is_right_as_unknown(tmp_path: Path) -> None:
    cell = Cell("unanswered_4", 2048, 4)
    for index in range(cell.samples):
        sample, answered = _sample(cell, index), _sample(Cell("changes_4", 2048, 4), index + 1)
        assert sample.question == answered.question
        assert answered.outputs[0].lower() not in sample.context.lower()
        assert sample.outputs == ("unknown",)
    grid = plan_held_out(Path(), [cell], ["memory-gate"])
    asyncio.run(measure(grid, tmp_path, adapter=None, open_model=opener(Reader(0.0))))
    assert [record.score for record in read_records(tmp_path)] == [1.0] * cell.samples

"""The page's figures are those of the committed rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from memagent.tasks.statistics import estimate
from memagent_bench.records import Record, read_records
from memagent_bench.ruler.tasks import TASKS as RULER
from memagent_bench.significance import Difference, paired_difference
from memagent_smol.answers import answers
from memagent_smol.measure import CELLS, MEMORY_GATE, UNTRAINED, Cell
from memagent_smol.table import tables
from memagent_smol.verdict import BM25, scores

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "memagent_smol" / "results"
PAGE = (ROOT / "docs" / "smol.md").read_text(encoding="utf-8")


@cache
def records_of(arm: str) -> list[Record]:
    return read_records(RESULTS / arm)


@pytest.mark.parametrize(
    ("row", "arm", "system"),
    [
        ("untrained, prompt set `small`", "untrained", UNTRAINED),
        ("imitation", "imitation", MEMORY_GATE),
        ("imitation, then rewards", "grpo", MEMORY_GATE),
        ("imitation, then as much more", "more", MEMORY_GATE),
        ("imitation, then rejection sampling", "rejection", MEMORY_GATE),
        ("imitation, asked once with the newest text", "truncated", "direct-left"),
        ("imitation, then rewards, asked once with BM25's best sentences", "grpo", BM25),
        ("untrained, asked once with BM25's best sentences", "untrained", BM25),
        ("imitation, then rewards, asked once with the newest text", "grpo", "direct-left"),
        ("no model: the question's words as a pattern", "search", "regex"),
        ("no model: BM25's best sentences", "search", "bm25"),
        ("no model: the reader `extractive`", "search", "extractive"),
    ],
)
def test_arms(row: str, arm: str, system: str) -> None:
    records = records_of(arm)
    found = [estimate([scores(records, cell, system)]) for cell in CELLS["short"]]
    cells = [f"{one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]" for one in found]
    assert f"| {row} | {' | '.join(cells)} |" in PAGE


@pytest.mark.parametrize("length", ["4K", "16K", "64K"])
@pytest.mark.parametrize(("tasks", "many"), [("all", 13), ("needles", 8)])
def test_ruler(length: str, tasks: str, many: int) -> None:
    cells = [cell for cell in CELLS[f"ruler-{length.lower()}"] if cell.task in RULER]
    cells = [cell for cell in cells if tasks == "all" or cell.task.startswith("niah_")]
    shown: list[str] = []
    for arm, system in (
        ("ruler", MEMORY_GATE),
        ("ruler", BM25),
        ("ruler", "direct-left"),
        ("ruler-search", "bm25"),
    ):
        one = estimate([scores(records_of(arm), cell, system) for cell in cells])
        shown.append(f"{one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]")
    assert len(cells) == many
    assert f"| {length} | {tasks} | {' | '.join(shown)} |" in PAGE


def test_ruler_untrained() -> None:
    untrained = records_of("ruler-untrained")
    for length, (tasks, prefix) in product(("4K", "16K"), (("all", ""), ("needles", "niah_"))):
        cells = [cell for cell in CELLS[f"ruler-{length.lower()}"] if cell.task in RULER]
        rows = [cell for cell in cells if cell.task.startswith(prefix)]
        mean = estimate([scores(untrained, cell, UNTRAINED) for cell in rows])
        shown = f"{mean.mean:.3f} [{mean.low:.3f}, {mean.high:.3f}]"
        gain, _ = difference("ruler", "ruler-untrained", to=UNTRAINED, cells=rows)
        points = f"{100 * gain.mean:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"
        assert f"| {length} | {tasks} | {shown} | {points} |" in PAGE


def test_256k() -> None:
    records, cells = records_of("ruler"), CELLS["256k"]
    right = {
        system: {cell.task: sum(scores(records, cell, system)) for cell in cells}
        for system in (MEMORY_GATE, BM25, "direct-left")
    }
    total = {system: sum(sums.values()) for system, sums in right.items()}
    assert total == {MEMORY_GATE: 4.0, BM25: 2.0, "direct-left": 0.0}
    assert right[MEMORY_GATE]["niah_single_2"] == right[MEMORY_GATE]["hotpotqa"] == 2.0
    samples = sum(cell.samples for cell in cells)
    assert (
        f"the memory has 4 of {samples} right (two needles, two of\n  `hotpotqa`), BM25's sentences 2 "
        "and the newest text none. None finds the latest"
    ) in PAGE


def test_512k_and_1m() -> None:
    assert [cell.length for cell in CELLS["1m"]] == [512 * 1024, 1024 * 1024]
    for cell in CELLS["1m"]:
        memory = scores(records_of("ruler"), cell, MEMORY_GATE)
        search = scores(records_of("ruler-search"), cell, "bm25")
        assert (len(memory), sum(memory), sum(search)) == (4, 0.0, 4.0)
    said = "the memory finds none of four needles each; BM25\n  without a model finds all."
    assert said in PAGE


@pytest.mark.parametrize(
    "folders",
    [
        "imitation grpo more rejection truncated untrained search notes notes-nano",
        "ruler ruler-untrained ruler-search",
    ],
)
def test_tables(folders: str) -> None:
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    made = tables([RESULTS / folder for folder in folders.split()])
    assert f"`{folders}`:\n\n{made}\n" in page


def difference(
    a: str, b: str, *, to: str = MEMORY_GATE, cells: Sequence[Cell] = CELLS["short"]
) -> tuple[Difference, int]:
    """Compares two arms over all cells; also counts the answers that are right in one of them only."""
    both = ((records_of(a), MEMORY_GATE), (records_of(b), to))
    pairs = [
        [x - y for x, y in zip(*(scores(of, cell, system) for of, system in both), strict=True)]
        for cell in cells
    ]
    return paired_difference(pairs), sum(gap != 0 for of in pairs for gap in of)


def test_differences() -> None:
    more, _ = difference("grpo", "more")
    interval = f"{100 * more.low:+.1f} to {100 * more.high:+.1f}"
    assert (
        f"| (a) rewards less more imitation | {100 * more.mean:+.1f} | {interval} | 400 |" in PAGE
    )
    assert more.low < 0
    gained, changed = difference("grpo", "imitation")
    _, otherwise = difference("more", "imitation")
    assert (
        f"(-{-100 * gained.low:.1f} to +{100 * gained.high:.1f}): they changed {changed} of\n"
        in PAGE
    )
    assert f"more imitation {otherwise}." in PAGE
    over, _ = difference("grpo", "rejection")
    interval = f"({100 * over.low:+.1f} to {100 * over.high:+.1f})"
    assert f"Rewards scored {100 * over.mean:.1f} above rejection sampling\n{interval}" in PAGE
    trained, _ = difference("grpo", "untrained", to=UNTRAINED)
    by = f"{100 * trained.mean:.1f} points over both tasks"
    assert f"{by} (+{100 * trained.low:.1f} to +{100 * trained.high:.1f})" in PAGE


def test_memory_beside_search_at_64k() -> None:
    (cell,) = CELLS["long"]
    memory, *searches = (
        scores(records_of(arm), cell, system)
        for arm, system in (("grpo", MEMORY_GATE), ("untrained", BM25), ("grpo", BM25))
    )
    assert [sum(one) for one in (memory, *searches)] == [2, 1, 0]
    found = paired_difference([[x - y for x, y in zip(memory, searches[0], strict=True)]])
    interval = f"{100 * found.low:+.1f} to {100 * found.high:+.1f}"
    row = f"| (b) memory less BM25 and a model | {100 * found.mean:+.1f} | {interval} | 48 |"
    assert row in PAGE


def test_answers() -> None:
    found = answers([RESULTS / arm for arm in ("untrained", "imitation", "grpo", "more")])[2:]
    for line, row in zip(
        [line for line in found if " changes_16, 4K " in line and "`memory" in line],
        ("untrained", "imitation", "then rewards", "then as much more"),
        strict=True,
    ):
        _, _, _, n, right, hedged, *others = line.strip("| ").split(" | ")
        assert (n, hedged) == ("200", "0.000")
        assert f"| {row} | {' | '.join([right, *others])} |" in PAGE


def test_the_demo_task_of_nano() -> None:
    (cell,) = CELLS["notes"]
    smol, nano, bm25 = (
        scores(records_of(arm), cell, system)
        for arm, system in (("notes", MEMORY_GATE), ("notes-nano", MEMORY_GATE), ("search", "bm25"))
    )
    models = " ".join((ROOT / "docs" / "models.md").read_text(encoding="utf-8").split())
    found = f"`nano` {sum(nano):.0f}, and BM25 without a model {sum(bm25):.0f}."
    assert f"answers {sum(smol):.0f} right, {found}" in models
    assert len(bm25) == len(smol) == len(nano) == 12


def test_hazards() -> None:
    rows, kept = [], [RESULTS / "grpo" / f"hazards-{name}.json" for name in ("short", "curve")]
    cells = [cell for file in kept for cell in json.loads(file.read_text("utf-8"))["cells"]]
    for cell in cells:
        hits = cell["wanted"] - cell["missed"]
        right = estimate([[1.0] * hits + [0.0] * cell["missed"]])
        many = cell["task"].removeprefix("changes_")
        hazards = [
            f"{100 * cell[name]:.1f}% [{100 * low:.1f}, {100 * high:.1f}]"
            for name in ("hazard", "hazard_per_note")
            for low, high in [cell[f"{name}_95"]]
        ]
        share = f"{right.mean:.3f} [{right.low:.3f}, {right.high:.3f}] (n={cell['wanted']})"
        rows.append(f"| {cell['length'] // 1024}K | {many} | {share} | {' | '.join(hazards)} |")
    assert all(row in PAGE for row in rows)
    assert len(rows) == 6
    page, short = " ".join(PAGE.split()), cells[0]
    wrong = "{never_written} of {missed} wrong answers, written and lost for {lost}"
    assert f"{wrong.format(**short)}, and misread for {short['unread_at_answer']}." in page
    (more,) = json.loads((RESULTS / "more" / "hazards-short.json").read_text("utf-8"))["cells"]
    chunk, statement = (
        f"{100 * more[name]:.1f}% [{100 * low:.1f}, {100 * high:.1f}]"
        for name in ("hazard", "hazard_per_note")
        for low, high in [more[f"{name}_95"]]
    )
    misread = f"misreads {more['unread_at_answer']} values"
    assert f"{chunk} and {statement}, but {misread}" in page
    lost = sum(cell["losses"] for cell in cells)
    for each, count, name in (
        ("statement, {} over all six rows,", "notes_met", "hazard_per_note"),
        ("chunk, {},", "steps_at_risk", "hazard"),
    ):
        share = lost / sum(cell[count] for cell in cells)
        within = sum(low <= share <= high for cell in cells for low, high in [cell[f"{name}_95"]])
        number = {2: "two", 5: "five"}[within]
        assert f"per {each.format(f'{100 * share:.1f}%')} lies in {number}" in page


def test_questions_without_an_answer() -> None:
    (cell,) = CELLS["unanswered"]
    before, more, after = (
        scores(records_of(arm), cell, MEMORY_GATE) for arm in ("imitation", "more", "grpo")
    )
    assert sum(scores(records_of("untrained"), cell, UNTRAINED)) == 0
    assert "The untrained model never does." in " ".join(PAGE.split())
    fewer = paired_difference([[x - y for x, y in zip(after, before, strict=True)]])
    said = f"in {sum(before):.0f} cases and more imitation in {sum(more):.0f}, rewards in {sum(after):.0f}"
    assert said in " ".join(PAGE.split())
    interval = f"({100 * fewer.low:.0f} to {100 * fewer.high:.0f})"
    assert f"{-100 * fewer.mean:.0f} fewer than before them {interval}" in PAGE


def test_search_beside_the_long_curve() -> None:
    cells = sorted(CELLS["curve"], key=lambda cell: (cell.length, int(cell.task[8:])))
    records = records_of("grpo")
    found, memory = (
        [f"{estimate([scores(records, cell, system)]).mean:.3f}" for cell in cells]
        for system in (BM25, MEMORY_GATE)
    )
    told = ["{}, {}, {}, {} and {}".format(*means) for means in (found, memory)]
    assert f"{told[0]}, where the memory has {told[1]}." in " ".join(PAGE.split())

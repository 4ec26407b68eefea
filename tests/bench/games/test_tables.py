"""The staircase and the readings."""

from __future__ import annotations

import pytest
from tests.bench.games.forgetting import call, told

from memagent.tools import Toolset
from memagent_bench.games.tables import SPAN, Drawdown, DrawdownNotes, Staircase


@pytest.mark.parametrize("seed", range(3))
async def test_all_small_cells_are_counted(seed: int) -> None:
    game = Staircase(seed=seed, difficulty=24)
    tools = Toolset(game.tools)
    places = range(1, int(game.task.split()[3]) + 1)
    rows = [
        [
            int((await tools.run(call("cell", row=i, column=j))).text.split()[-1][:-1])
            for j in places
        ]
        for i in places
    ]
    assert all(row == sorted(set(row)) for row in rows)
    assert all(list(column) == sorted(set(column)) for column in zip(*rows, strict=True))
    bound = int(game.task.split("at most ")[1].split("?")[0])
    assert game.finish(str(sum(cell <= bound for row in rows for cell in row)))


async def test_a_cell_outside_the_table_is_refused() -> None:
    output = await Toolset(Staircase(seed=0, difficulty=24).tools).run(
        call("cell", row=14, column=1)
    )
    assert output.text == "cell failed: there is no row 14; they are numbered 1 to 13"


@pytest.mark.parametrize("seed", range(4))
async def test_the_largest_fall_is_that_of_the_right_readings(seed: int) -> None:
    game = Drawdown(seed=seed, difficulty=80)
    true: list[int] = []
    texts = [(await told(game, "reading", number=n)).removesuffix(".") for n in range(1, 81)]
    for text in texts:
        reading, *correction = text.split("; ")
        true.append(int(reading.split()[-1]))
        for part in correction:
            number, value = int(part.split()[1]), int(part.split()[-1])
            assert 1 <= len(true) - number <= SPAN
            true[number - 1] = value
    assert any("wrong" in text for text in texts)
    falls = [high - low for i, high in enumerate(true) for low in true[i:]]
    assert game.finish(str(max(falls)))


def test_a_correction_counts_from_the_reading_that_it_corrects() -> None:
    notes = DrawdownNotes(readings=6)
    texts = ("50", "40", "90; reading 1 was wrong, it is 99", "80", "70", "60")
    for at, text in enumerate(texts, start=1):
        after = notes.fold(f"Reading {at}: {text}.")
        assert after is not None
        assert after.fold(f"Reading {at}: {text}.") is None
        notes = after
    assert len(notes.recent) == SPAN
    assert notes.next() == "59"

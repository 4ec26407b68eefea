"""Cells, the table and the picture."""

from pathlib import Path
from typing import Any

from memagent.messages import Usage
from memagent_bench.sessions.arms import Arm
from memagent_bench.sessions.figures import LEGEND, SPREAD, cells, lines
from memagent_bench.sessions.plot import plot
from memagent_bench.sessions.record import Origin, Reason, SessionRecord
from memagent_bench.systems.base import Status

FULL, SUMMARY = Arm(system="full"), Arm(system="summary", working_context=4096, summaries=7)
ORIGIN = Origin(
    player="expert",
    model="none",
    server=None,
    counter="bytes",
    window=None,
    protocol="native",
    prompts="session:0",
    commit=None,
    dirty=None,
    packages={},
    python="3.11",
    machine="test",
)


def record(tokens: int = 1000, **fields: Any) -> SessionRecord:
    given: dict[str, Any] = {
        "game": "deck",
        "difficulty": 100,
        "seed": 0,
        "arm": FULL,
        "score": 1.0,
        "status": Status.ANSWERED,
        "reason": Reason.ANSWERED,
        "answer": "7",
        "steps": 100,
        "summaries": 0,
        "usage": Usage(calls=101, prompt_tokens=tokens),
        "largest_prompt": tokens // 10,
        "seconds": 1.0,
        "started": "2026-11-21T12:00:00+00:00",
        "origin": ORIGIN,
    }
    return SessionRecord(**(given | fields))


LOST = {"score": None, "status": Status.STOPPED, "reason": Reason.OVERFLOW, "answer": None}


def test_a_session_without_an_answer_counts_as_nothing_and_is_told() -> None:
    (cell,) = cells([record(), record(3000, seed=1), record(2000, seed=2, **LOST)])
    assert (cell.success.mean, cell.success.unscored, cell.success.n) == (2 / 3, 1, 3)
    assert cell.success.scored_mean == 1
    assert cell.reasons == {"overflow": 1}
    assert (cell.prompt_tokens.median, cell.prompt_tokens.low, cell.prompt_tokens.high) == (
        2000,
        1000,
        3000,
    )
    assert cell.largest_prompt == 300


def test_games_count_the_same_however_many_deals_they_have() -> None:
    records = [record(seed=n) for n in range(3)] + [record(game="maze", score=0.0)]
    (cell,) = cells(records)
    assert cell.success.mean == 0.5


def test_the_table_has_a_block_for_each_difficulty() -> None:
    found = cells([record(difficulty=n, arm=arm) for n in (1000, 100) for arm in (FULL, SUMMARY)])
    table = lines(found)
    assert [line.split("  ")[0] for line in table] == [
        "100 steps",
        "full",
        "summary W=4096 S=7",
        "",
        "1,000 steps",
        "full",
        "summary W=4096 S=7",
        "",
        LEGEND + SPREAD,
    ]
    assert lines([]) == []


def test_a_narrow_table_has_medians_alone() -> None:
    found = cells([record(), record(3000, seed=1)])
    wide, narrow = lines(found), lines(found, spread=False)
    assert "2,000 (1,000 to 3,000)" in wide[1]
    assert "2,000" in narrow[1]
    assert " to 3,000" not in narrow[1]
    assert max(map(len, narrow)) < max(map(len, wide))


def test_cells_as_data() -> None:
    (cell,) = cells([record(arm=SUMMARY)])
    data = cell.as_data()
    assert data["label"] == "summary W=4096 S=7"
    assert data["arm"]["working_context"] == 4096
    assert data["prompt_tokens"] == {"median": 1000, "low": 1000, "high": 1000}


def test_the_picture_needs_two_difficulties(tmp_path: Path) -> None:
    one = [record(arm=arm) for arm in (FULL, SUMMARY)]
    assert plot(cells(one)) is None
    assert plot([]) is None
    more = [record(9000, difficulty=1000, **LOST), record(0, difficulty=30, arm=SUMMARY)]
    picture = plot(cells([*one, *more]))
    assert picture is not None
    assert picture.startswith(b"\x89PNG")

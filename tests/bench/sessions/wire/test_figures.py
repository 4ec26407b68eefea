"""Rows, their tables, and the picture over steps."""

from __future__ import annotations

from typing import Any

from tests.bench.sessions.test_figures import LOST, record

from memagent.messages import Usage
from memagent_bench.sessions.arms import Arm
from memagent_bench.sessions.record import Reason, SessionRecord
from memagent_bench.sessions.wire.figures import HEAD, LEGEND, lines, markdown, rows
from memagent_bench.sessions.wire.loop_figures import LoopFigures
from memagent_bench.sessions.wire.plot import choose, plot_steps
from memagent_bench.shift.shift import Probes

AGENT = Arm(system="tool-agent", working_context=8192)
OTHER = Arm(system="langchain", working_context=8192)


def wired(tokens: int = 1000, recall: float = 1, **fields: Any) -> SessionRecord:
    """A session of four steps; `own` seconds of it are not the server's."""
    own: float | None = fields.pop("own", 0.04)
    score: float | None = fields.get("score", 1.0)
    probes = Probes(recall=recall, artifacts=1, continuation=1, decisions=1)
    counted = LoopFigures(
        probes=None if score is None else probes,
        repeated=0,
        overflows=fields.pop("overflows", 0),
        broken_pairs=0,
        own_seconds=own,
        prompts=(100, 200, 300, 400),
        kept=(1, 1, 0.5, 0.5),
    )
    usage = Usage(calls=4, prompt_tokens=tokens)
    given: dict[str, Any] = {"game": "shift", "arm": AGENT, "wired": counted, "usage": usage}
    return record(tokens, **(given | fields))


def test_tokens_are_for_each_finished_task() -> None:
    (row,) = rows([wired(1000), wired(3000, seed=1, score=0.0, recall=0.5)])
    assert (row.finished, row.sessions, row.tokens) == (1, 2, 4000)
    assert row.probes["recall"] == 0.75
    assert row.own == (10, 10, 10)
    assert row.kept == 0.75


def test_sessions_without_an_answer_have_no_probes() -> None:
    lost: dict[str, Any] = {**LOST, "reason": Reason.TASK_LOST}
    (row,) = rows([wired(**lost, overflows=2), wired(**lost, seed=1, overflows=1, own=None)])
    assert set(row.probes.values()) == {None}
    assert (row.tokens, row.overflows, row.lost) == (None, 3, 2)
    assert row.cells() == ("0 of 2", "–", "–", "–", "–", "–", "10.0", "0", "3", "0", "2")


def test_a_block_for_each_work() -> None:
    played = [
        wired(game=game, difficulty=n, arm=arm)
        for game in ("shift-huge", "shift")
        for n in (300, 100)
        for arm in (AGENT, OTHER)
    ]
    found = rows([*played, record()])  # games without a server aren't among them
    assert [line.split("  ")[0] for line in lines(found)] == [
        *("shift, 100 steps", AGENT.label, OTHER.label, ""),
        *("shift, 300 steps", AGENT.label, OTHER.label, ""),
        *("shift-huge, 100 steps", AGENT.label, OTHER.label, ""),
        *("shift-huge, 300 steps", AGENT.label, OTHER.label, ""),
        LEGEND,
    ]
    table = markdown(found)
    assert table[:3] == ["**shift, 100 steps**", "", f"| | {' | '.join(HEAD)} |"]
    assert table[4].startswith("| `tool-agent W=8192` | 1 of 1 | 1.00 |")
    assert lines([]) == markdown([]) == []


def test_the_longest_work_is_drawn_once_for_each_system() -> None:
    few = wired(difficulty=100)
    first, second, other = wired(), wired(seed=1), wired(arm=OTHER, score=0.0)
    many = [r.model_copy(update={"difficulty": 300}) for r in (second, first, other)]
    assert choose([few, *many]) == [many[1], many[2]]
    picture = plot_steps([few, *many])
    assert picture is not None
    assert picture.startswith(b"\x89PNG")
    assert plot_steps([record()]) is None

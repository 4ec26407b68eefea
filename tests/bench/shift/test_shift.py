"""Shifts: dealt from a seed, worked off by rules, judged by what came through."""

from __future__ import annotations

import json

import pytest
from tests.bench.shift.working import work

from memagent.errors import ConfigError
from memagent.messages import ToolCall
from memagent.tools import Toolset
from memagent_bench.shift.shift import HUGE_CHARS, SHIFTS, HugeShift, Probes, Shift

RIGHT = Probes(recall=1, artifacts=1, continuation=1, decisions=1)


async def call(shift: Shift, name: str, **arguments: object) -> str:
    made = ToolCall(id="c", name=name, arguments=json.dumps(arguments))
    return (await Toolset(shift.tools).run(made)).text


@pytest.mark.parametrize("name", SHIFTS)
@pytest.mark.parametrize("difficulty", [10, 31, 200])
async def test_everything_comes_through_with_the_whole_history(name: str, difficulty: int) -> None:
    for seed in range(3):
        shift = SHIFTS[name](seed=seed, difficulty=difficulty)
        assert (shift.verdict(), shift.probes) == (0, None)
        await work(shift)
        assert (shift.verdict(), shift.probes, shift.repeated) == (1, RIGHT, 0)
        assert abs(shift.steps - difficulty) <= 1
        assert len(shift.told) >= 8


async def test_a_seed_is_a_shift() -> None:
    texts = [await call(Shift(seed=n, difficulty=50), "read_ticket", ticket=1) for n in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


async def test_one_ticket_of_a_huge_shift_is_huge() -> None:
    shift = HugeShift(seed=1, difficulty=30)
    texts = [await call(shift, "read_ticket", ticket=n) for n in range(1, 16)]
    assert [len(text) > HUGE_CHARS for text in texts].count(True) == 1
    assert all(text.startswith(f"Ticket {n} is ") for n, text in enumerate(texts, 1))


async def test_the_answer_is_graded_part_by_part() -> None:
    shift = Shift(seed=3, difficulty=100)
    said = json.loads(await work(Shift(seed=3, difficulty=100)))
    said["the id of the vault"] = "unknown"
    said["pending"] = said["pending"][1:]
    assert not shift.finish(json.dumps(said))
    probes = shift.probes
    assert probes is not None
    assert (probes.recall, probes.artifacts) == (3 / 4, 1)
    assert probes.continuation < 0.1  # nothing was closed
    assert probes.decisions == 0


@pytest.mark.parametrize("answer", ["", "[]", "{", "unknown", "[" * 100_000])
def test_an_answer_of_another_form_is_wrong(answer: str) -> None:
    shift = Shift(seed=3, difficulty=30)
    assert not shift.finish(answer)
    assert shift.probes is not None
    assert shift.probes.recall == 0


async def test_a_ticket_that_is_closed_twice_or_otherwise_counts() -> None:
    shift = Shift(seed=3, difficulty=30)
    assert "closed on channel main" in await call(shift, "close_ticket", ticket=1, channel="main")
    await call(shift, "close_ticket", ticket=1, channel="main")
    assert shift.repeated == 1
    assert "there is no ticket 99" in await call(shift, "close_ticket", ticket=99, channel="main")
    texts = [await call(shift, "read_ticket", ticket=n) for n in range(1, 16)]
    blocked = next(n for n, text in enumerate(texts, 1) if " and blocked." in text.split("\n")[0])
    assert "is blocked" in await call(shift, "close_ticket", ticket=blocked, channel="main")


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(ConfigError, match="from 10 to 10000, got 5"):
        Shift(seed=1, difficulty=5)

"""Who is where, and when jobs are done."""

from __future__ import annotations

import pytest
from tests.bench.games.forgetting import call, told

from memagent.tools import Toolset
from memagent_bench.games.logs import REACH, Rooms, RoomsNotes, Schedule, ScheduleNotes


@pytest.mark.parametrize("seed", range(4))
async def test_the_last_entry_on_each_counts(seed: int) -> None:
    game = Rooms(seed=seed, difficulty=60)
    first = game.task.split("At first there are ")[1].split(". Who")[0]
    where = dict(part.split(" in the ") for part in first.split("; "))
    for number in range(1, 61):
        words = (await told(game, "entry", number=number)).split(": ")[1].removesuffix(".").split()
        if "swap" in words:
            where[words[0]], where[words[2]] = where[words[2]], where[words[0]]
        else:
            where[words[0]] = words[-1]
    room = game.task.split("in the ")[-1].split(" at the end")[0]
    assert game.finish(", ".join(sorted(name for name in where if where[name] == room)))


def test_a_swap_after_a_move() -> None:
    notes = RoomsNotes(asked="hall", entries=2, where={"a": "hall", "b": "attic"})
    moved = notes.fold("Entry 1: a goes to the cellar.")
    assert moved is not None
    swapped = moved.fold("Entry 2: a and b swap places.")
    assert swapped is not None
    assert swapped.where == {"a": "attic", "b": "cellar"}
    assert notes.fold("Entry 2: a and b swap places.") is None


@pytest.mark.parametrize("seed", range(4))
async def test_a_job_ends_after_those_that_it_waits_for(seed: int) -> None:
    game = Schedule(seed=seed, difficulty=50)
    tools = Toolset(game.tools)
    ends: list[int] = []
    waited = 0
    for number in range(1, 51):
        words = (await tools.run(call("job", number=number))).text.removesuffix(".").split()
        needs = [int(text) for text in words[8:] if text.isdigit()]
        assert all(0 < number - need <= REACH for need in needs)
        ends.append(int(words[3]) + max((ends[need - 1] for need in needs), default=0))
        waited += len(needs)
    assert waited > 25
    assert game.finish(str(max(ends)))


def test_only_the_last_ends_are_noted() -> None:
    notes = ScheduleNotes(jobs=9)
    for at in range(1, 8):
        waits = f"job {at - 1}" if at > 1 else "no job"
        after = notes.fold(f"Job {at} takes 2 hours and waits for {waits}.")
        assert after is not None
        notes = after
    assert notes.ends == (6, 8, 10, 12, 14)
    after = notes.fold("Job 8 takes 1 hours and waits for jobs 3 and 7.")
    assert after is not None
    assert after.ends[-1] == 15

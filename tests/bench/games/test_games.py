"""What holds for every game and its expert."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.bench.games.forgetting import Shown, as_text, forgetful, native

from memagent.errors import ConfigError, ToolError
from memagent.messages import Message, ToolCall
from memagent.tools import Toolset
from memagent_bench.games import expert, make, names, play
from memagent_bench.games.base import EASIEST, HARDEST
from memagent_bench.games.experts import Notes
from memagent_bench.games.games import GAMES
from memagent_bench.games.transcript import Call

NAMES = names()
SUMMARY_BYTES = 250
"""Of the largest summary at any difficulty: about 100 tokens."""
ACTS = {"deck": ["draw"], "drift": ["guess"], "maze": ["move"], "stock": ["refuse", "ship"]}


def test_there_are_at_least_twelve() -> None:
    assert len(NAMES) >= 12
    assert list(NAMES) == sorted(set(NAMES))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("difficulty", "seed"), [(10, 1), (10, 2), (30, 3), (30, -4), (100, 5)])
async def test_an_expert_with_the_whole_history_solves_it_in_about_as_many_steps_as_its_difficulty(
    name: str, difficulty: int, seed: int
) -> None:
    played = await play(make(name, seed=seed, difficulty=difficulty), expert(name))
    assert played.verdict == 1.0
    # A search of ten steps depends on where the number is.
    slack = 0.6 if difficulty == 10 else 0.3 if difficulty == 30 else 0.15
    assert abs(played.steps - difficulty) <= slack * difficulty


@pytest.mark.parametrize("shown", [native, as_text], ids=["native", "text"])
@pytest.mark.parametrize("every", [1, 2, 7])
@pytest.mark.parametrize("name", NAMES)
async def test_an_expert_that_forgets_solves_it_from_its_summaries(
    name: str, every: int, shown: Shown
) -> None:
    environment = make(name, seed=every, difficulty=50)
    played = await forgetful(environment, expert(name), every=every, shown=shown, most=300)
    assert played.verdict == 1.0
    assert played.summaries >= 30 // (every + 1)
    assert played.largest <= SUMMARY_BYTES


@pytest.mark.parametrize("name", NAMES)
async def test_a_thousand_steps_need_a_small_summary(name: str) -> None:
    environment = make(name, seed=9, difficulty=1000)
    played = await forgetful(environment, expert(name), every=20, shown=native, most=1500)
    assert played.verdict == 1.0
    assert played.steps >= 900
    assert played.largest <= SUMMARY_BYTES


@given(every=st.integers(1, 12), seed=st.integers(), name=st.sampled_from(NAMES))
@settings(max_examples=30)
def test_it_is_solved_wherever_the_summaries_fall(every: int, seed: int, name: str) -> None:
    environment = make(name, seed=seed, difficulty=20)
    played = asyncio.run(forgetful(environment, expert(name), every=every, shown=native, most=200))
    assert played.verdict == 1.0


@pytest.mark.parametrize("name", NAMES)
async def test_results_that_repeat_or_left_do_not_disturb_the_expert(name: str) -> None:
    """Each turn is shown twice: first with a line in the place of its result, then whole, and one of them fails."""
    environment, player = make(name, seed=4, difficulty=20), expert(name)
    tools = Toolset(environment.tools)
    messages = [Message(role="user", content=environment.task)]
    while environment.steps < 60 and isinstance(wish := player.reply(messages), ToolCall):
        output = await tools.run(wish)
        assert output.ok
        asked = Message(role="assistant", content="", tool_calls=(wish,))
        others = ("[left out: called again later]", "failed: it took too long", output.text[:-1])
        for text in (*others, output.text, "[no result came for this call]"):
            messages += [asked, Message(role="tool", content=text, tool_call_id=wish.id)]
    answer = player.reply(messages)
    assert isinstance(answer, str)
    assert environment.finish(answer)


async def answer(name: str, **dealt: int) -> str:
    """The right answer, from a twin that the expert plays."""
    game, player = make(name, **dealt), expert(name)
    tools = Toolset(game.tools)
    messages = [Message(role="user", content=game.task)]
    while isinstance(wish := player.reply(messages), ToolCall):
        messages += native([(wish, (await tools.run(wish)).text)])
    assert game.finish(wish)
    return wish


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["no such thing", "1{}", "{}1", "{}, {}", " "])
async def test_a_wrong_answer_is_worth_nothing_and_stays(name: str, form: str) -> None:
    right = await answer(name, seed=6, difficulty=30)
    environment = make(name, seed=6, difficulty=30)
    assert (environment.verdict(), environment.over) == (0.0, False)
    assert not environment.finish(form.format(right, right))
    assert not environment.finish(right)
    assert (environment.verdict(), environment.over) == (0.0, True)


@pytest.mark.parametrize("name", NAMES)
async def test_nothing_can_be_done_after_the_end(name: str) -> None:
    environment = make(name, seed=6, difficulty=30)
    tools = Toolset(environment.tools)
    assert (await tools.run(wished("done", answer=" "))).text.endswith("the game goes on")
    assert (await tools.run(wished("done", answer="x"))).ok
    for tool in tools.values():
        output = await tools.run(wished(tool.name, **dict.fromkeys(required(tool.spec), 1)))
        assert not output.ok
        assert "the game is over" in output.text
    assert environment.steps == 0


@pytest.mark.parametrize("name", NAMES)
def test_tools_say_what_they_do_and_which_of_them_change_the_game(name: str) -> None:
    tools = make(name, seed=0, difficulty=10).tools
    assert [tool.name for tool in tools if not tool.idempotent] == sorted(ACTS.get(name, []))[::-1]
    assert all(tool.spec.description.endswith(".") for tool in tools)
    assert [tool.name for tool in tools].count("done") == 1


@given(name=st.sampled_from(NAMES), data=st.data())
@settings(max_examples=80)
def test_whatever_is_called_there_is_a_result(name: str, data: st.DataObject) -> None:
    environment = make(name, seed=2, difficulty=20)
    values = st.integers(-3, 40) | st.sampled_from(["north", "aa", "1234", ""]) | json_values()
    for _ in range(data.draw(st.integers(1, 12))):
        tool = data.draw(st.sampled_from(environment.tools))
        known = st.fixed_dictionaries(dict.fromkeys(required(tool.spec), values))
        arguments = data.draw(known | st.dictionaries(st.text(max_size=3), values, max_size=3))
        try:
            text = asyncio.run(tool.run(arguments))
        except ToolError as error:
            assert len(f"{error}") in range(1, 1500)  # noqa: PT017 - it may be raised or not
        else:
            if tool.final:
                assert text == arguments["answer"]
            else:
                assert text.endswith(".")
                assert "\n" not in text
                assert len(text) < 300


@pytest.mark.parametrize("name", NAMES)
async def test_results_of_different_calls_are_different(name: str) -> None:
    environment, player = make(name, seed=3, difficulty=30), expert(name)
    tools = Toolset(environment.tools)
    messages = [Message(role="user", content=environment.task)]
    seen: list[str] = []
    while isinstance(wish := player.reply(messages), ToolCall):
        seen.append((await tools.run(wish)).text)
        messages += native([(wish, seen[-1])])
    assert len(seen) == len(set(seen)) == environment.steps


def test_games_are_the_same_in_any_process_and_differ_by_seed_and_difficulty() -> None:
    code = (
        "import asyncio\n"
        "from tests.bench.games.test_games import NAMES, digest\n"
        "print([asyncio.run(digest(name, 7, 20)) for name in NAMES])"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    ]
    here = [asyncio.run(digest(name, 7, 20)) for name in NAMES]
    assert printed == [f"{here}\n"] * 2
    others = [asyncio.run(digest(n, s, d)) for n in NAMES for s, d in ((8, 20), (7, 21))]
    assert len({*here, *others}) == 3 * len(NAMES)


@pytest.mark.parametrize("seed", ["1", 1.0, None, True])
def test_a_seed_is_an_integer(seed: Any) -> None:
    with pytest.raises(ConfigError, match="seed must be"):
        make("maze", seed=seed, difficulty=10)


@pytest.mark.parametrize("difficulty", [0, -1, EASIEST - 1, HARDEST + 1, "30", 30.0, float("nan")])
def test_a_difficulty_is_within_limits(difficulty: Any) -> None:
    with pytest.raises(ConfigError, match="difficulty must be"):
        make("maze", seed=0, difficulty=difficulty)


@pytest.mark.parametrize("name", NAMES)
def test_the_hardest_can_be_dealt(name: str) -> None:
    assert len(make(name, seed=0, difficulty=HARDEST).task) < 1200


@pytest.mark.parametrize("made", [expert, lambda name: make(name, seed=0, difficulty=10)])
def test_a_name_that_is_not_known_is_told_with_those_that_are(made: Any) -> None:
    with pytest.raises(ConfigError, match=r"'chess'.*maze"):
        made("chess")


@pytest.mark.parametrize("name", NAMES)
def test_notes_begin_with_the_games_own_task_only(name: str) -> None:
    notes: type[Notes] = GAMES[name].notes
    assert isinstance(notes.start(make(name, seed=0, difficulty=10).task).next(), Call)
    for other in NAMES:
        if other != name:
            with pytest.raises(ValueError, match="task"):
                notes.start(make(other, seed=0, difficulty=10).task)


async def digest(name: str, seed: int, difficulty: int) -> str:
    """Of the task and all that an expert is told."""
    environment, player = make(name, seed=seed, difficulty=difficulty), expert(name)
    messages = [Message(role="user", content=environment.task)]
    while isinstance(wish := player.reply(messages), ToolCall):
        messages += native([(wish, (await Toolset(environment.tools).run(wish)).text)])
    text = "\n".join(message.model_dump_json() for message in messages)
    return hashlib.sha256(text.encode()).hexdigest()


def wished(name: str, /, **arguments: object) -> ToolCall:
    return ToolCall(id="a", name=name, arguments=json.dumps(arguments))


def required(spec: Any) -> list[str]:
    return list(spec.parameters.get("required", []))


def json_values() -> st.SearchStrategy[Any]:
    leaves = (
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("x" * 5000)
    )
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=2), max_leaves=3)

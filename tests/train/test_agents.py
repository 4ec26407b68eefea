import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.train.rollout.policies import sample

from memagent import Result, RunStore, ScriptedModel
from memagent.errors import ConfigError, PromptSetError
from memagent.messages import ChatRequest, Completion, TokenIds
from memagent.trajectory import StopReason
from memagent_train import fresh_runs
from memagent_train.agents import (
    AgentSettings,
    GatedResult,
    load_agent,
)
from memagent_train.rollouts import ROLLOUT, Running
from memagent_viewer.view import View

SMALL: dict[str, Any] = {"window": 2048, "chunk_tokens": 600, "memory_tokens": 200}


def scripted(reply: Callable[[ChatRequest], Any] | None = None) -> ScriptedModel:
    return ScriptedModel(reply or (lambda request: f"{request.kind}."), window=2048)


async def as_rollout(
    work: Callable[[], Awaitable[Any]], rollout_id: str = "g-0", seed: int = 1
) -> Any:
    before = ROLLOUT.set(Running(rollout_id, seed))
    try:
        return await work()
    finally:
        ROLLOUT.reset(before)


async def loaded(settings: AgentSettings, store: RunStore | None = None) -> Any:
    """The agent: loading one blocks."""
    return await asyncio.to_thread(load_agent, settings, store=store)


# --- the memory agent


async def test_the_memory_agent_reads_the_sample_under_the_rollouts_id(tmp_path: Path) -> None:
    store = await asyncio.to_thread(RunStore, tmp_path / "runs.sqlite")
    agent = await loaded(AgentSettings(**SMALL), store)
    model = scripted()
    result = await as_rollout(lambda: agent(model, sample()))
    assert (result.answer, result.run_id) == ("answer.", "g-0")
    assert [request.kind for request in model.requests][-1] == "answer"
    assert (await asyncio.to_thread(store.get, "g-0")).status == "finished"
    view = await asyncio.to_thread(View, store, "g-0")
    assert await asyncio.to_thread(view.update)
    page = await asyncio.to_thread(view.data)
    assert page["books"][0]["answer"]["text"] == "answer."


async def test_seeds_are_those_of_the_rollout() -> None:
    agent = await loaded(AgentSettings(**SMALL))
    seeds: list[list[int | None]] = []
    for seed in (1, 2, 1):
        model = scripted()
        await as_rollout(lambda model=model: agent(model, sample()), f"r{len(seeds)}", seed)
        seeds.append([request.seed for request in model.requests])
    assert seeds[0] == seeds[2] != seeds[1]


async def test_a_rollout_that_was_killed_begins_again() -> None:
    store = await asyncio.to_thread(RunStore, None)
    agent = await loaded(AgentSettings(**SMALL), store)
    first, second = scripted(), scripted(lambda _: "another.")
    await as_rollout(lambda: agent(first, sample()))
    result = await as_rollout(lambda: agent(second, sample()))
    assert len(second.requests) == len(first.requests), "nothing was taken from the old run"
    assert result.answer == "another."


async def test_without_a_store_runs_are_kept_no_longer_than_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = await asyncio.to_thread(RunStore, None)
    monkeypatch.setattr(fresh_runs, "RunStore", lambda _: store)
    agent = await loaded(AgentSettings(**SMALL))
    await as_rollout(lambda: agent(scripted(), sample()))
    failing = scripted(lambda _: ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await as_rollout(lambda: agent(failing, sample()), "g-1")
    assert await asyncio.to_thread(store.runs) == []


async def test_outside_of_a_rollout_it_is_an_agent_like_any_other() -> None:
    agent = await loaded(AgentSettings(**SMALL))
    result = await agent(scripted(), sample())
    assert isinstance(result, Result)
    assert result.answer == "answer."


async def test_a_limit_of_calls_stops_a_rollout() -> None:
    agent = await loaded(AgentSettings(**SMALL, max_calls=2))
    result = await agent(scripted(), sample())
    assert (result.answer, result.stop_reason) == (None, StopReason.LIMIT)


@pytest.mark.parametrize("gate", ["off", "exit", "update", "both"])
async def test_with_an_update_gate_the_result_says_what_was_kept(gate: str) -> None:
    number = iter(range(1000))

    def reply(request: ChatRequest) -> Completion:
        n = next(number)
        ids = TokenIds(prompt=(n, 1), sampled=(n, 2), logprobs=(-1.0, -1.0))
        text = "[keep]" if request.kind == "update" and n % 2 else f"{request.kind} {n}."
        return Completion(text=text, tokens=ids)

    agent = await loaded(AgentSettings.model_validate({**SMALL, "gate": gate}))
    asked = sample()
    result = await as_rollout(lambda: agent(scripted(reply), asked))
    assert isinstance(result, GatedResult) is (gate in ("update", "both"))
    if isinstance(result, GatedResult):
        assert len(result.reads) >= 3
        assert [read.kept for read in result.reads] == [
            bool(n % 2) for n in range(len(result.reads))
        ]
        assert [read.ids for read in result.reads] == [
            (n, 1, n, 2) for n in range(len(result.reads))
        ]
        spans = [read.span for read in result.reads]
        assert spans[0][0] == 0
        assert spans[-1][1] == len(asked.context)
        assert all(a[1] == b[0] for a, b in pairwise(spans))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"prompts": "no-such-set"}, PromptSetError),
        ({"chunk_tokens": 0}, ValidationError),
        ({"gate": "open"}, ValidationError),
        ({"chunks": 3}, ValidationError),
    ],
)
def test_settings_that_cannot_be(fields: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        load_agent(AgentSettings.model_validate(fields), store=None)


# --- a user's own

CODE = """
from memagent.errors import ConfigError

async def agent(model, sample):
    return "an answer"

class Agent:
    async def __call__(self, model, sample):
        return "an answer"

    async def method(self, model, sample, temperature=1):
        return "an answer"

instance = Agent()
number = 3

def not_async(model, sample): ...
async def too_few(model): ...
async def too_many(model, sample, more): ...
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with modules in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    (tmp_path / "own_agent.py").write_text(CODE)
    (tmp_path / "broken_agent.py").write_text("import nothing_of_this_name")
    (tmp_path / "garbled_agent.py").write_text("def agent(model, sample:")
    (tmp_path / "failing_agent.py").write_text("raise RuntimeError('no GPU')")
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    "use", ["own_agent:agent", "own_agent:instance", "own_agent:instance.method"]
)
async def test_an_own_function_is_found_in_the_current_folder(here: Path, use: str) -> None:
    agent = await loaded(AgentSettings(use=use))
    assert await agent(scripted(), sample()) == "an answer"


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("own_agent", "write 'module:function'"),
        ("own_agent:", "write 'module:function'"),
        (":agent", "write 'module:function'"),
        (
            "no_such:agent",
            "there is no module 'no_such', either installed or in the current folder",
        ),
        ("own_agent.no_such:agent", "there is no module 'own_agent.no_such'"),
        ("broken_agent:agent", "nothing_of_this_name"),
        ("failing_agent:agent", "no GPU"),
        ("garbled_agent:agent", "SyntaxError"),
        ("own_agent:missing", "has no function 'missing'"),
        ("own_agent:agent.missing", "has no function 'agent.missing'"),
        ("own_agent:number", "has no function 'number'"),
        ("own_agent:not_async", "must be an async function"),
        ("own_agent:Agent", "must be an async function"),
        ("own_agent:too_few", "cannot be called with a model and a sample"),
        ("own_agent:too_many", "cannot be called with a model and a sample"),
    ],
)
def test_what_is_wrong_with_a_function_is_said(here: Path, use: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_agent(AgentSettings(use=use), store=None)

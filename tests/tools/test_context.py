"""A tool may learn which call it answers, which attempt it is, and a key for it; the model sees nothing of that."""

import asyncio
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from tests.run.heard import session, temporary

from memagent.messages import ToolCall
from memagent.prompts import Neutraliser
from memagent.runstore import RunStore
from memagent.session.step import ToolCalls
from memagent.tools import Tool, ToolContext, ToolOutput, Toolset, tool


def pay(amount: int, context: ToolContext, to: str = "shop") -> str:
    """Pay an amount."""
    return f"{amount} to {to}: {context.call_id} {context.attempt} {context.idempotency_key}"


async def pay_later(context: ToolContext | None, amount: int) -> str:
    assert context is not None
    return f"{amount}: {context.call_id} {context.attempt} {context.idempotency_key}"


def call(name: str = "pay", arguments: str = '{"amount": 7}') -> ToolCall:
    return ToolCall(id="c1", name=name, arguments=arguments)


def test_the_model_does_not_see_it() -> None:
    made = tool(pay)
    assert made.takes_context
    assert not tool(call).takes_context
    assert list(made.spec.parameters["properties"]) == ["amount", "to"]  # type: ignore[arg-type]
    assert made.spec.parameters["required"] == ["amount"]
    assert list(tool(pay_later).spec.parameters["properties"]) == ["amount"]  # type: ignore[arg-type]


async def test_the_model_cannot_give_it() -> None:
    forged = '{"amount": 7, "context": {"call_id": "x", "attempt": 1, "idempotency_key": "x"}}'
    output = await Toolset([pay]).run(call(arguments=forged))
    assert not output.ok
    assert "context: there is no such argument; those there are: amount, to" in output.text


@pytest.mark.parametrize("function", [pay, pay_later])
async def test_it_is_handed_over(function: Any) -> None:
    context = ToolContext("c9", 3, "key")
    output = await Toolset([function]).run(call(function.__name__), context)
    assert output.text.endswith(": c9 3 key")
    assert output.ok


async def test_without_a_session_each_call_has_a_new_key() -> None:
    tools = Toolset([pay])
    texts = [(await tools.run(call())).text for _ in range(2)]
    assert all(text.startswith("7 to shop: c1 1 ") for text in texts)
    assert texts[0] != texts[1]


async def test_it_reaches_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "from memagent.tools import ToolContext\n"
        "def pay(amount: int, context: ToolContext) -> str:\n"
        "    return f'{amount} {context.call_id} {context.attempt} {context.idempotency_key}'\n"
    )
    (tmp_path / "paying.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    made = tool(importlib.import_module("paying").pay, process=True, timeout=60)
    output = await Toolset([made]).run(call(), ToolContext("c9", 2, "key"))
    assert output == ToolOutput("7 c9 2 key")


def test_a_described_context_is_hidden_too() -> None:
    def note(context: Annotated[ToolContext, "which call"], text: str) -> str:
        return text

    assert list(tool(note).spec.parameters["properties"]) == ["text"]  # type: ignore[arg-type]


# --- in a session


@pytest.fixture
def stores() -> Iterator[list[RunStore]]:
    """Two, both with a run r1."""
    made = [temporary(), temporary()]
    yield made
    for store in made:
        store.close()


def paying(seen: list[ToolContext], hang: asyncio.Event | None = None) -> Tool:
    async def pay(context: ToolContext) -> str:
        seen.append(context)
        if hang is not None:
            hang.set()
            await asyncio.Event().wait()
        return "paid"

    return tool(pay)


def running(store: RunStore, made: Tool) -> ToolCalls:
    return ToolCalls(Toolset([made]), session(store)[0], Neutraliser(["call"]), lambda answer: None)


async def run(store: RunStore, made: Tool, step: int = 0, calls: int = 1) -> list[ToolOutput]:
    return await running(store, made).run(step, (call(arguments="{}"),) * calls)


async def test_an_interrupted_call_is_made_again_with_the_same_key(stores: list[RunStore]) -> None:
    seen: list[ToolContext] = []
    store = stores[0]
    for attempt in (1, 2):
        hang = asyncio.Event()
        task = asyncio.create_task(run(store, paying(seen, hang)))
        await hang.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen[-1].attempt == attempt
    assert await run(store, paying(seen)) == [ToolOutput("paid")]
    assert [context.attempt for context in seen] == [1, 2, 3]
    assert len({context.idempotency_key for context in seen}) == 1
    assert {context.call_id for context in seen} == {"c1"}
    await run(store, paying(seen))  # committed: not made again
    assert len(seen) == 3


async def test_no_two_calls_share_a_key(stores: list[RunStore]) -> None:
    seen: list[ToolContext] = []
    for store in stores:
        await run(store, paying(seen), step=0, calls=2)
        await run(store, paying(seen), step=1)
    assert len(seen) == 6
    assert len({context.idempotency_key for context in seen}) == 6

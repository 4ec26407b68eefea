"""What a call took, where the server keeps it to itself."""

import threading
from typing import Any

import pytest
from tests.models.chat_server import TOKENIZER, Script, chat, send

from memagent import Limits, MemoryAgent, Message, ScriptedModel, open_model
from memagent.errors import LimitReached, TokenizerError
from memagent.messages import ChatRequest, Completion, ToolCall, Usage
from memagent.models.limit import Metered, UsageLimit
from memagent.tokens.byte_bound import ByteBound

REQUEST = ChatRequest(messages=(Message(role="user", content="x" * 40),), max_tokens=5)
PROMPT = ByteBound().count_messages(REQUEST.messages)
ASKED = "Whom does Natasha marry?"


NONSENSE: list[Any] = [
    {"usage": None},
    {"usage": "none"},
    {"usage": {"prompt_tokens": -5000, "completion_tokens": -5000}},
    {"usage": {"prompt_tokens": "many", "completion_tokens": True}},
    {"usage": {"prompt_tokens": 0, "completion_tokens": 0, "prompt_tokens_details": []}},
]


@pytest.mark.parametrize("said", NONSENSE)
async def test_a_server_that_reports_no_usage_does_not_get_round_limits(
    server: Script, said: dict[str, Any]
) -> None:
    server.default = send(200, chat("She marries Pierre.") | said)
    model = open_model("openai:tiny", base_url=server.url, tokenizer=TOKENIZER)
    agent = MemoryAgent(model, window=512, store=None, limits=Limits(tokens=1))
    async with agent:
        result = await agent.aask("Natasha marries Pierre. " * 500, ASKED)
    assert (result.stop_reason, result.usage.calls) == ("limit", 1)
    counter = await model.counter()
    sent = tuple(Message(**message) for message in server.bodies[0]["messages"])
    assert result.usage.prompt_tokens == counter.count_messages(sent)
    assert result.usage.completion_tokens == counter.count("She marries Pierre.")


async def test_figures_of_the_server_are_kept(server: Script) -> None:
    async with MemoryAgent(
        open_model("openai:tiny", base_url=server.url), window=4096, store=None
    ) as agent:
        result = await agent.aask("Natasha marries Pierre.", ASKED)
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (22, 6)


async def test_what_the_sender_counted_is_taken() -> None:
    reply = Completion(text="four", reasoning="two", usage=Usage(calls=1))
    model = Metered(ScriptedModel([reply, reply]))
    counted = await model.complete(REQUEST.model_copy(update={"prompt_tokens": 7}))
    assert counted.usage == Usage(calls=1, prompt_tokens=7, completion_tokens=7)
    assert (await model.complete(REQUEST)).usage.prompt_tokens == PROMPT


async def test_calls_of_tools_are_output() -> None:
    reply = Completion(text="", tool_calls=(ToolCall(id="1", name="look", arguments="{}"),))
    assert (await Metered(ScriptedModel([reply])).complete(REQUEST)).usage.completion_tokens == 6


async def test_nothing_is_counted_without_need_and_never_on_the_event_loop() -> None:
    class Watched(ByteBound):
        threads: list[threading.Thread] = []  # noqa: RUF012

        def count(self, text: str) -> int:
            self.threads.append(threading.current_thread())
            return super().count(text)

    class Model(ScriptedModel):
        async def counter(self) -> Watched:
            return Watched()

    full = Completion(text="a", usage=Usage(calls=1, prompt_tokens=1, completion_tokens=1))
    model = Metered(Model([full, Completion(text="a")]))
    assert await model.complete(REQUEST) is full
    assert Watched.threads == []
    await model.complete(REQUEST)
    assert Watched.threads
    assert threading.current_thread() not in Watched.threads


async def test_a_paid_reply_survives_a_counter_that_fails() -> None:
    class Model(ScriptedModel):
        async def counter(self) -> ByteBound:
            raise TokenizerError("gone")

    counted = await Metered(Model([Completion(text="a")])).complete(REQUEST)
    assert counted.usage.prompt_tokens == PROMPT


async def test_negative_figures_do_not_give_anything_back() -> None:
    spent = Usage(calls=1, prompt_tokens=-10_000, completion_tokens=-10_000)
    limited = UsageLimit(ScriptedModel([Completion(text="a", usage=spent)] * 2), Limits(tokens=50))
    await limited.complete(REQUEST)
    with pytest.raises(LimitReached):
        await limited.complete(REQUEST)

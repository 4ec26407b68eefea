"""The model is paid, the expert plays."""

import pytest
from tests.bench.sessions.seats import nothing

from memagent.errors import ContextOverflow, ServerFailed
from memagent.messages import ChatRequest, Completion, Message, ToolSpec, Usage
from memagent.models.scripted import ScriptedModel
from memagent.tools.protocol import read_calls
from memagent_bench.games import expert, make
from memagent_bench.sessions.expert import PAID_OUTPUT, ExpertOver

GAME = make("heaviest", seed=1, difficulty=10)
TASK = Message(role="user", content=GAME.task)
TOOLS = tuple(tool.spec for tool in GAME.tools)


def request(**fields: object) -> ChatRequest:
    given = {"messages": (TASK,), "max_tokens": 300, "tools": TOOLS, "kind": "act"}
    return ChatRequest.model_validate(given | fields)


async def test_the_real_request_is_sent_and_its_price_is_kept() -> None:
    price = Usage(calls=1, prompt_tokens=777, completion_tokens=55, cached_tokens=5, retries=2)
    real = ScriptedModel(lambda _: Completion(text="I say so.", usage=price))
    reply = await ExpertOver(real, expert("heaviest")).complete(request())
    (sent,) = real.requests
    assert sent == request(max_tokens=PAID_OUTPUT)
    (call,) = reply.tool_calls
    assert (call.name, reply.text) == ("compare", "")
    assert reply.usage == price.model_copy(
        update={"completion_tokens": reply.usage.completion_tokens}
    )
    assert len(call.arguments) < reply.usage.completion_tokens < 100


async def test_calls_and_summaries_as_text() -> None:
    player = ExpertOver(ScriptedModel(nothing), expert("heaviest"), native=False)
    reply = await player.complete(request(tools=()))
    assert reply.tool_calls == ()
    assert read_calls(reply.text)[1][0].name == "compare"
    summary = await player.complete(request(tools=(), kind="summary"))
    assert summary.text.startswith("<summary>")
    assert "best" in summary.text


async def test_an_output_that_would_not_fit_is_refused_although_less_is_sent() -> None:
    real = ScriptedModel(nothing, window=4000)
    player = ExpertOver(real, expert("heaviest"))
    prompt = (await player.counter()).count_messages((TASK,), tools=TOOLS)
    assert (await player.complete(request(max_tokens=4000 - prompt))).tool_calls
    with pytest.raises(ContextOverflow, match="exceeds its window of 4000"):
        await player.complete(request(max_tokens=4001 - prompt))
    assert len(real.requests) == 1


async def test_what_the_model_fails_at_is_not_played() -> None:
    player = ExpertOver(ScriptedModel([ServerFailed("down")]), expert("heaviest"))
    with pytest.raises(ServerFailed):
        await player.complete(request(tools=(ToolSpec(name="compare"),)))

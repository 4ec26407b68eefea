import pytest

from memagent.errors import ConfigError, ContextOverflow, ModelError, ServerBusy
from memagent.messages import ChatRequest, Completion, FinishReason, Message, ToolCall, ToolSpec
from memagent.models.scripted import ScriptedModel
from memagent.tokens.byte_bound import ByteBound

REQUEST = ChatRequest(messages=(Message(role="user", content="héllo"),), max_tokens=5)


async def test_replies_in_order_and_keeps_the_requests() -> None:
    cut = Completion(text="c", finish_reason=FinishReason.LENGTH)
    model = ScriptedModel(["ä", cut, ServerBusy("busy")])
    first = await model.complete(REQUEST)
    assert first.text == "ä"
    assert first.usage.completion_tokens == 2
    assert first.usage.prompt_tokens == ByteBound().count_messages(REQUEST.messages)
    assert await model.complete(REQUEST) is cut
    with pytest.raises(ServerBusy):
        await model.complete(REQUEST)
    assert model.requests == [REQUEST] * 3


async def test_running_out_is_an_error_that_says_so() -> None:
    model = ScriptedModel(["a"], name="short")
    await model.complete(REQUEST)
    with pytest.raises(ModelError, match="short has 1 reply, and this is call number 2") as caught:
        await model.complete(REQUEST)
    assert not caught.value.retryable


async def test_functions_sync_and_async() -> None:
    async def later(request: ChatRequest) -> Completion:
        return Completion(text=request.messages[0].content)

    assert (await ScriptedModel(later).complete(REQUEST)).text == "héllo"
    assert (await ScriptedModel(lambda request: request.kind).complete(REQUEST)).text == "other"


async def test_a_function_may_give_an_exception() -> None:
    with pytest.raises(ServerBusy):
        await ScriptedModel(lambda request: ServerBusy("x")).complete(REQUEST)


async def test_window_counter_name() -> None:
    counter = ByteBound()
    model = ScriptedModel([], window=None, counter=counter, name="n")
    assert await model.window() is None
    assert await model.counter() is counter
    assert model.name == "n"
    assert await ScriptedModel([]).window() == 8192
    assert "0 requests" in repr(model)
    await model.aclose()


def test_one_text_is_not_a_list_of_texts() -> None:
    with pytest.raises(ConfigError, match=r"\['yes'\]"):
        ScriptedModel("yes")


async def test_tool_calls_are_replies() -> None:
    call = ToolCall(id="a", name="look", arguments="{}")
    whole = Completion(text="I look.", tool_calls=(call,))
    model = ScriptedModel([call, [call, call], whole])
    one = await model.complete(REQUEST)
    assert (one.text, one.tool_calls) == ("", (call,))
    assert one.usage.completion_tokens == len("look{}")
    assert (await model.complete(REQUEST)).tool_calls == (call, call)
    assert await model.complete(REQUEST) is whole


async def test_tools_are_counted() -> None:
    tools = (ToolSpec(name="look"),)
    asked = REQUEST.model_copy(update={"tools": tools})
    prompt = ByteBound().count_messages(REQUEST.messages, tools=tools)
    model = ScriptedModel(["a"], window=prompt + REQUEST.max_tokens)
    assert (await model.complete(asked)).usage.prompt_tokens == prompt
    with pytest.raises(ContextOverflow):
        await ScriptedModel(["a"], window=prompt).complete(asked)

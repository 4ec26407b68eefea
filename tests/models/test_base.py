import pytest

from memagent.errors import ConfigError
from memagent.messages import ChatRequest, Message, ToolCall, ToolSpec
from memagent.models.base import Wrapper
from memagent.models.scripted import ScriptedModel
from memagent_engines.in_process import refuse_unread


async def test_a_wrapper_is_what_it_wraps() -> None:
    inner = ScriptedModel(["a"], window=990, name="inner")
    wrapper = Wrapper(Wrapper(inner))
    assert wrapper.name == "inner"
    assert await wrapper.window() == 990
    assert await wrapper.counter() is await inner.counter()
    request = ChatRequest(messages=(Message(role="user", content="x"),), max_tokens=1)
    assert (await wrapper.complete(request)).text == "a"
    assert repr(wrapper).startswith("Wrapper(Wrapper(ScriptedModel(")
    await wrapper.aclose()


def test_tools_are_refused_by_name_and_earlier_calls_are_not() -> None:
    call = ToolCall(id="a", name="look", arguments="{}")
    called = Message(role="assistant", content="", tool_calls=(call,))
    request = ChatRequest(messages=(called,), max_tokens=1)
    refuse_unread("nano", request)
    with pytest.raises(ConfigError, match=r"'nano'.*\['look'\].*text protocol"):
        refuse_unread("nano", request.model_copy(update={"tools": (ToolSpec(name="look"),)}))
    none = {"tools": (ToolSpec(name="look"),), "tool_choice": "none"}  # as summaries are asked for
    refuse_unread("nano", request.model_copy(update=none))


def test_pictures_are_refused() -> None:
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {}}]
    seen = Message.from_openai({"role": "user", "content": parts})
    with pytest.raises(ConfigError, match=r"'nano'.*reads text only.*image_url"):
        refuse_unread("nano", ChatRequest(messages=(seen,), max_tokens=1))

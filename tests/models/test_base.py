from memagent.messages import ChatRequest, Message
from memagent.models.base import Wrapper
from memagent.models.scripted import ScriptedModel


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

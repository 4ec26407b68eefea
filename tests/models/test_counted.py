"""Another tokenizer for a model."""

import asyncio

import pytest
from tests.models.chat_server import TOKENIZER

from memagent.errors import TokenizerError
from memagent.messages import ChatRequest, Message
from memagent.models.counting import Counted
from memagent.models.scripted import ScriptedModel
from memagent.tokens import ByteBound, TokenizerFile

ASK = ChatRequest(messages=(Message(role="user", content="hi"),), max_tokens=5)


async def test_only_the_counter_is_another() -> None:
    inner = ScriptedModel(["yes"], window=777, name="inner")
    model = Counted(inner, TOKENIZER)
    first, *others = await asyncio.gather(*(model.counter() for _ in range(5)))
    assert isinstance(first, TokenizerFile)
    assert all(other is first for other in others), "it is loaded once"
    assert isinstance(await inner.counter(), ByteBound)
    assert (model.name, await model.window()) == ("inner", 777)
    assert (await model.complete(ASK)).text == "yes"


async def test_a_counter_is_taken_as_it_is() -> None:
    counter = ByteBound()
    assert await Counted(ScriptedModel([]), counter).counter() is counter


async def test_one_that_cannot_be_had_is_named_when_it_is_needed() -> None:
    model = Counted(ScriptedModel(["yes"]), "nowhere/tokenizer.json")
    assert (await model.complete(ASK)).text == "yes"
    for _ in range(2):
        with pytest.raises(TokenizerError, match="nowhere"):
            await model.counter()

"""What one session pays."""

import pytest

from memagent.errors import ContextOverflow, ServerFailed
from memagent.messages import ChatRequest, Completion, Message, Usage
from memagent.models.scripted import ScriptedModel
from memagent_bench.sessions.tally import Tally

ASK = ChatRequest(messages=(Message(role="user", content="?"),), max_tokens=5)


def paid(tokens: int) -> Completion:
    return Completion(text="x", usage=Usage(calls=1, prompt_tokens=tokens, completion_tokens=1))


async def test_calls_are_added_up_and_failed_ones_counted_apart() -> None:
    replies = [
        paid(30),
        paid(50),
        ServerFailed("down", attempts=3),
        ContextOverflow("much", attempts=0),
    ]
    tally = Tally(ScriptedModel(replies))
    for _ in range(2):
        await tally.complete(ASK)
    for error in (ServerFailed, ContextOverflow):
        with pytest.raises(error):
            await tally.complete(ASK)
    assert tally.usage == Usage(calls=2, prompt_tokens=80, completion_tokens=2, retries=3)
    assert tally.largest == 50


async def test_the_model_stays_open_for_the_other_sessions() -> None:
    class Closing(ScriptedModel):
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    inner = Closing([])
    await Tally(inner).aclose()
    assert not inner.closed

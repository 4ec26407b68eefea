"""Servers of which nothing is known, and the OpenAI API."""

from memagent.messages import ChatRequest, Message
from memagent.models.dialects.plain import OPENAI, PLAIN

ASK = ChatRequest(
    messages=(Message(role="user", content="hi"),),
    max_tokens=9,
    seed=3,
    thinking=False,
    pattern="a+",
)


def test_only_what_every_server_knows() -> None:
    assert PLAIN.fields(ASK, tokens=True) == {"max_tokens": 9, "seed": 3}
    assert (PLAIN.owner, PLAIN.version, PLAIN.tokenize) == (None, None, False)


def test_the_openai_api_has_another_name_for_the_limit() -> None:
    assert OPENAI.fields(ASK, tokens=True) == {"max_completion_tokens": 9, "seed": 3}
    assert (OPENAI.owner, OPENAI.version, OPENAI.tokenize) == (None, None, False)

"""What is asked of SGLang beyond the common ground."""

from memagent.messages import ChatRequest, Message
from memagent.models.dialects.sglang import SGLANG

ASK = ChatRequest(messages=(Message(role="user", content="hi"),), max_tokens=9)


def test_reasoning_is_switched_in_the_template() -> None:
    off = SGLANG.fields(ASK.model_copy(update={"thinking": False}), tokens=False)
    assert off == {"max_tokens": 9, "chat_template_kwargs": {"enable_thinking": False}}
    on = SGLANG.fields(ASK.model_copy(update={"thinking": True}), tokens=False)
    assert on["chat_template_kwargs"] == {"enable_thinking": True}


def test_a_pattern_holds_the_reply() -> None:
    held = SGLANG.fields(ASK.model_copy(update={"pattern": r"\S[\s\S]*"}), tokens=False)
    assert held == {"max_tokens": 9, "regex": r"\S[\s\S]*"}


def test_ids_and_log_probabilities() -> None:
    asked = SGLANG.fields(ASK, tokens=True)
    assert asked == {"max_tokens": 9, "return_token_ids": True, "logprobs": True}


def test_it_gives_itself_away_and_counts() -> None:
    assert SGLANG.owner == "sglang"
    assert SGLANG.version == ("/server_info", "version")
    assert SGLANG.tokenize

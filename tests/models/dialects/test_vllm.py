"""What is asked of vLLM beyond the common ground."""

from memagent.messages import ChatRequest, Message
from memagent.models.dialects.vllm import VLLM

ASK = ChatRequest(messages=(Message(role="user", content="hi"),), max_tokens=9)


def test_reasoning_is_switched_in_the_template() -> None:
    off = VLLM.fields(ASK.model_copy(update={"thinking": False}), tokens=False)
    assert off == {"max_tokens": 9, "chat_template_kwargs": {"enable_thinking": False}}
    on = VLLM.fields(ASK.model_copy(update={"thinking": True}), tokens=False)
    assert on["chat_template_kwargs"] == {"enable_thinking": True}


def test_a_pattern_holds_the_reply() -> None:
    held = VLLM.fields(ASK.model_copy(update={"pattern": r"\S[\s\S]*"}), tokens=False)
    assert held == {"max_tokens": 9, "structured_outputs": {"regex": r"\S[\s\S]*"}}


def test_ids_and_log_probabilities() -> None:
    asked = VLLM.fields(ASK, tokens=True)
    assert asked == {"max_tokens": 9, "return_token_ids": True, "logprobs": True}


def test_it_gives_itself_away_and_counts() -> None:
    assert VLLM.owner == "vllm"
    assert VLLM.version == ("/version", "version")
    assert VLLM.tokenize

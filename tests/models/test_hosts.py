"""Servers that can't be run here, at exchanges recorded from their documentation and from their users' reports.

LM Studio: its pages on `/api/v0` and on OpenAI's form, issues 546 and 2339 of its tracker. Azure: its page on the v1
API. A gateway: what LiteLLM lists.
"""

from typing import Any

import pytest
from tests.models.chat_server import TOKENIZER, Behaviour, Handler, Script, chat, send

from memagent import MemoryAgent, Sampling, StopReason, open_model
from memagent.errors import ConfigError, ContextOverflow, WindowUnknown
from memagent.messages import ChatRequest, Message
from memagent.models.retry import RetryPolicy
from memagent.tokens import TokenizerFile

ASK = ChatRequest(messages=(Message(role="user", content="Which year?"),), max_tokens=9)
LOCAL = TokenizerFile(TOKENIZER)
ONCE = RetryPolicy(attempts=1)
LOADED = {"state": "loaded", "max_context_length": 131_072, "loaded_context_length": 4096}
NOT_LOADED = {"state": "not-loaded", "max_context_length": 131_072}


def counted(text: str) -> Behaviour:
    """Answers, and says how many tokens it read."""

    def behave(handler: Handler) -> None:
        body = chat(text)
        messages = tuple(Message(**message) for message in handler.body["messages"])
        body["usage"]["prompt_tokens"] = LOCAL.count_messages(messages)
        send(200, body)(handler)

    return behave


def be_lm_studio(server: Script, **native: Any) -> None:
    """Lists `tiny` in both forms, in its own with what else it says there."""

    def models(handler: Any) -> None:
        own = handler.path == "/api/v0/models"
        entry = {"id": "tiny", "object": "model"}
        entry |= {"type": "llm", **native} if own else {"owned_by": "organization_owner"}
        send(200, {"data": [entry], "object": "list"})(handler)

    server.models = models


async def test_lm_studio_says_in_its_own_list_with_what_window_it_loaded(server: Script) -> None:
    be_lm_studio(server, **LOADED)
    model = open_model("openai:tiny", base_url=server.url, window=8192)
    assert await model.window() == 4096
    await model.aclose()


async def test_lm_studio_has_no_window_before_it_loads(server: Script) -> None:
    """It may then load the model with less than `max_context_length`."""
    be_lm_studio(server, **NOT_LOADED)
    agent = MemoryAgent(open_model("openai:tiny", base_url=server.url), store=None)
    with pytest.raises(WindowUnknown, match="--window"):
        await agent.aask("Pierre.", "Who?")
    await agent.aclose()


KEEP = "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens"  # noqa: E501


async def test_what_lm_studio_cannot_fit_is_an_overflow(server: Script) -> None:
    be_lm_studio(server, **LOADED)
    server.default = send(400, {"error": KEEP})
    model = open_model("openai:tiny", base_url=server.url, retry=ONCE)
    with pytest.raises(ContextOverflow, match="4096"):
        await model.complete(ASK)
    await model.aclose()


async def test_lm_studios_empty_reply_to_what_does_not_fit_is_no_answer(server: Script) -> None:
    be_lm_studio(server, **LOADED)
    server.default = counted("")
    model = open_model("openai:tiny", base_url=server.url, tokenizer=TOKENIZER, retry=ONCE)
    agent = MemoryAgent(model, store=None)
    result = await agent.aask("Pierre.", "Who?")
    assert (result.stop_reason, result.answer) == (StopReason.UNUSABLE_REPLY, None)
    await agent.aclose()


async def test_azure_takes_its_key_as_any_server_does(server: Script) -> None:
    """`https://RESOURCE.openai.azure.com/openai/v1`; a model is named by its deployment."""
    base = server.url.replace("/v1", "/openai/v1")
    server.serve_models({"id": "gpt-5-mini-2025-08-07", "object": "model"})
    refusal = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."  # noqa: E501
    error = {"message": refusal, "param": "max_tokens", "code": "unsupported_parameter"}
    server.replies = [send(400, {"error": error | {"type": "invalid_request_error"}})]
    model = open_model(
        "openai:my-deployment", base_url=f"{base}/", api_key="a-key", window=8192, retry=ONCE
    )
    assert (await model.complete(ASK)).text == "hello"
    assert server.paths == ["/openai/v1/chat/completions"] * 2
    assert server.bodies[-1]["max_completion_tokens"] == 9
    assert server.bodies[-1]["model"] == "my-deployment"
    assert server.headers[-1]["authorization"] == "Bearer a-key"
    assert await model.window() == 8192
    await model.aclose()


def test_azures_dated_addresses_are_refused() -> None:
    dated = "https://r.openai.azure.com/openai/deployments/d?api-version=2024-10-21"
    with pytest.raises(ConfigError, match="followed by a query"):
        open_model("openai:d", base_url=dated, window=8192)


async def test_a_gateway_without_tokenize_is_read_with_a_local_tokenizer(server: Script) -> None:
    """It names vLLM as the owner, and forwards chat alone."""
    server.serve_models({"id": "tiny", "object": "model", "owned_by": "vllm"})
    server.default = counted("hello")
    model = open_model(
        "openai:tiny", base_url=server.url, tokenizer=TOKENIZER, window=2048, retry=ONCE
    )
    assert (await model.counter()).name == LOCAL.name
    agent = MemoryAgent(model, store=None, sampling=Sampling(temperature=0))
    assert (await agent.aask("Pierre. " * 1500, "Who?")).stop_reason is StopReason.ANSWERED
    assert server.of("/tokenize"), "it was asked, and has none"
    await agent.aclose()

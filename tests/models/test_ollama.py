"""`ollama:` at exchanges recorded from Ollama's source and API page of August 2026: no such server ran here.

`api/types.go` has the fields, `docs/api.md` the replies, `server/routes.go` and `llm/llama_server.go` the errors.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.models.chat_server import TOKENIZER, Behaviour, Handler, Script, send

from memagent import ChatRequest, MemoryAgent, Message, Sampling, StopReason, open_model
from memagent.errors import (
    BadResponse,
    ConfigError,
    ContextOverflow,
    ModelError,
    ModelNotFound,
    PromptTruncated,
    ServerBusy,
    ServerFailed,
)
from memagent.messages import FinishReason, ToolCall, ToolSpec
from memagent.models.base import ChatModel
from memagent.models.probe import Probe, probe
from memagent.models.retry import RetryPolicy
from memagent.tokens import TokenizerFile

TRAINED = 4096
LOCAL = TokenizerFile(TOKENIZER)
ASK = ChatRequest(
    messages=(Message(role="user", content="Which year?"),), max_tokens=9, seed=3, stop=("\n",)
)
NEEDLE = "The code of the blue door is 4761."


def show(*capabilities: str) -> Behaviour:
    """`POST /api/show`."""
    info = {"general.architecture": "llama", "llama.context_length": TRAINED}
    return send(200, {"model_info": info, "capabilities": ["completion", *capabilities]})


def told(content: str = "1805.", *, prompt: int = 26, **fields: Any) -> dict[str, Any]:
    """A reply of `POST /api/chat` that isn't streamed."""
    message = {"role": "assistant", "content": content, **fields.pop("message", {})}
    head = {"model": "tiny", "created_at": "2026-08-21T18:48:22.5Z", "message": message}
    times = {"total_duration": 5191566416, "load_duration": 2154458, "eval_duration": 4799921000}
    counts = {"prompt_eval_count": prompt, "eval_count": 5}
    return {**head, **times, **counts, "done": True, "done_reason": "stop", **fields}


def counted(handler: Handler) -> None:
    """Reads the whole prompt, and answers with the sentence of the needle where it is in it."""
    texts = [message["content"] for message in handler.body["messages"]]
    messages = tuple(Message(role="user", content=text) for text in texts)
    seen = NEEDLE if NEEDLE in "".join(texts) else "[keep]"
    send(200, told(seen, prompt=LOCAL.count_messages(messages)))(handler)


def kept_half(handler: Handler) -> None:
    """A server that doesn't know `truncate`: `num_ctx` is less than the prompt, and half of it is left."""
    send(200, told(prompt=handler.body["options"]["num_ctx"] // 2 + 2))(handler)


@pytest.fixture
def ollama(server: Script) -> Script:
    """Answers as Ollama does."""
    server.serve_models({"id": "tiny:latest", "object": "model", "owned_by": "library"})
    server.others = {"/api/show": show(), "/api/chat": send(200, told())}
    server.others["/api/version"] = send(200, {"version": "0.20.1"})
    return server


@pytest.fixture
def model(ollama: Script) -> Callable[..., ChatModel]:
    """Opens it."""

    def opened(**options: Any) -> ChatModel:
        given = {"tokenizer": TOKENIZER, "retry": RetryPolicy(attempts=1), **options}
        return open_model("ollama:tiny", base_url=ollama.url.removesuffix("/v1"), **given)

    return opened


async def test_a_request_and_its_reply(ollama: Script, model: Callable[..., ChatModel]) -> None:
    tiny = model()
    reply = await tiny.complete(ASK)
    assert (reply.text, reply.finish_reason) == ("1805.", FinishReason.STOP)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (26, 5)
    (body,) = ollama.of("/api/chat")
    options = {"num_ctx": TRAINED, "num_predict": 9, "temperature": 0.7, "top_p": 0.95}
    assert body == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Which year?"}],
        "options": {**options, "seed": 3, "stop": ["\n"]},
        "stream": False,
        "truncate": False,
        "shift": False,
    }
    assert ollama.bodies == [], "nothing goes to /v1/chat/completions"
    await tiny.aclose()


@pytest.mark.parametrize(("window", "num_ctx"), [(None, TRAINED), (2048, 2048), (100_000, TRAINED)])
async def test_the_window_is_the_servers_num_ctx(
    ollama: Script, model: Callable[..., ChatModel], window: int | None, num_ctx: int
) -> None:
    tiny = model(window=window, extra_body={"options": {"num_ctx": 99, "num_gpu": 0}, "top_k": 20})
    assert await tiny.window() == num_ctx
    await tiny.complete(ASK)
    options = ollama.of("/api/chat")[0]["options"]
    assert (options["num_ctx"], options["num_gpu"], options["top_k"]) == (num_ctx, 0, 20)
    await tiny.aclose()


async def test_a_long_context_length_is_not_reserved_unasked(
    ollama: Script, model: Callable[..., ChatModel]
) -> None:
    ollama.others["/api/show"] = send(200, {"model_info": {"qwen3.context_length": 262_144}})
    assert await model().window() == 8192


@pytest.mark.parametrize(("able", "thinking"), [(True, True), (True, False), (False, False)])
async def test_reasoning_is_switched_where_the_model_can(
    ollama: Script, model: Callable[..., ChatModel], able: bool, thinking: bool
) -> None:
    ollama.others["/api/show"] = show(*["thinking"] * able)
    ollama.others["/api/chat"] = send(200, told(message={"thinking": "Well."}))
    reply = await model().complete(ASK.model_copy(update={"thinking": thinking}))
    assert ollama.of("/api/chat")[0].get("think") == (thinking if able else None)
    assert reply.reasoning == "Well."


async def test_calls_of_tools_go_as_objects(
    ollama: Script, model: Callable[..., ChatModel]
) -> None:
    function = {"index": 0, "name": "look", "arguments": {"where": "here"}}
    calls = {"tool_calls": [{"id": "call_1", "function": function}]}
    ollama.others["/api/chat"] = send(200, told("", message=calls))
    call = ToolCall(id="c", name="look", arguments='{"where": "there"}')
    talk = (
        *ASK.messages,
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="nothing", tool_call_id="c"),
    )
    ask = ASK.model_copy(update={"messages": talk, "tools": (ToolSpec(name="look"),)})
    reply = await model(tokenizer="bytes").complete(ask)
    assert [(c.name, c.values()) for c in reply.tool_calls] == [("look", {"where": "here"})]
    body = ollama.of("/api/chat")[0]
    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"where": "there"}
    assert body["tools"][0]["function"]["name"] == "look"


LONG = "The old prince rode to the village, and nobody knew why. " * 400


@pytest.mark.parametrize("ask", [LONG, LONG[:10_000]], ids=["refused", "short"])
async def test_a_cut_prompt_is_found_by_its_count(
    ollama: Script, model: Callable[..., ChatModel], ask: str
) -> None:
    """Ollama before `truncate`: it keeps half of what fits, and answers as if nothing had happened."""
    tiny = model(window=1024)
    await tiny.counter()  # an agent counts
    ollama.others["/api/chat"] = kept_half
    with pytest.raises(PromptTruncated, match=r"read only 514 tokens of a prompt of"):
        await tiny.complete(
            ASK.model_copy(update={"messages": (Message(role="user", content=ask),)})
        )


async def test_what_is_dropped_while_the_reply_is_written_is_found(
    ollama: Script, model: Callable[..., ChatModel]
) -> None:
    ollama.others["/api/chat"] = send(200, told(prompt=1020))
    with pytest.raises(PromptTruncated, match=r"1020 .* 5 exceed the window of 1024"):
        await model(window=1024).complete(ASK)


OVER = "request (3031 tokens) exceeds the available context size (1024 tokens), try increasing it"
LONGER = "the prompt is longer than the context length currently available to the model; shorten the prompt"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (send(400, {"error": OVER}), ContextOverflow),
        (send(400, {"error": LONGER}), ContextOverflow),
        (send(404, {"error": "model 'tiny' not found"}), ModelNotFound),
        (send(503, {"error": "server busy, please try again.  maximum pending"}), ServerBusy),
        (send(500, {"error": "model runner has unexpectedly stopped"}), ServerFailed),
        (send(200, told(done_reason="load")), ServerFailed),
        (send(200, told(prompt=0)), BadResponse),
        (send(200, {"choices": []}), BadResponse),
        (send(200, b"<html>"), BadResponse),
    ],
)
async def test_failures_have_their_types(
    ollama: Script,
    model: Callable[..., ChatModel],
    reply: Behaviour,
    error: type[ModelError],
) -> None:
    ollama.others["/api/chat"] = reply
    with pytest.raises(error, match="ollama:tiny at"):
        await model().complete(ASK)


async def test_a_model_that_is_not_pulled(ollama: Script, model: Callable[..., ChatModel]) -> None:
    ollama.serve_models({"id": "other:latest", "owned_by": "library"})
    ollama.others["/api/show"] = send(404, {"error": "model 'tiny' not found"})
    with pytest.raises(ModelNotFound, match="other:latest"):
        await model().window()


async def test_it_reads_a_document_and_finds_the_needle(
    ollama: Script, model: Callable[..., ChatModel], tmp_path: Path
) -> None:
    ollama.others["/api/chat"] = counted
    agent = MemoryAgent(
        model(window=1024), store=tmp_path / "runs", sampling=Sampling(temperature=0)
    )
    result = await agent.aask(LONG[:9000] + NEEDLE + LONG[:9000], "What is the code?")
    assert result.stop_reason is StopReason.ANSWERED
    assert result.answer == NEEDLE
    bodies = ollama.of("/api/chat")
    assert len(bodies) == result.usage.calls > 3
    assert {body["options"]["num_ctx"] for body in bodies} == {1024}, "it would load the model anew"
    await agent.aclose()


async def test_it_is_probed(ollama: Script, model: Callable[..., ChatModel]) -> None:
    (found,) = await probe(model())
    assert isinstance(found, Probe)
    assert (found.dialect, found.version, found.window) == ("ollama", "0.20.1", TRAINED)


def test_what_extra_body_may_not_say(model: Callable[..., ChatModel]) -> None:
    with pytest.raises(ConfigError, match="stream"):
        model(extra_body={"stream": True})

"""Who counts for a served model, and requests that would not fit its window."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.models.chat_server import (
    CHATML,
    THINKING,
    TOKENIZER,
    Script,
    chat,
    counts,
    hang_up,
    send,
)
from tests.models.test_openai import KEY, request
from tokenizers import Tokenizer

from memagent import threads
from memagent.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    ContextOverflow,
    PromptTruncated,
    TokenizerError,
)
from memagent.messages import ChatRequest, FinishReason, Message
from memagent.models.openai import OpenAIModel
from memagent.models.server_counter import COUNTING_THREADS, ServerCounter
from memagent.tokens import ByteBound, TokenCounter, TokenizerFile

SERVED = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
LOCAL = TokenizerFile(TOKENIZER)
TALK = (Message(role="user", content="Who is naïve Pierre?"),)


async def found(server: Script | list[str], **options: Any) -> TokenCounter:
    url = server if isinstance(server, list) else server.url
    model = OpenAIModel("tiny", base_url=url, **options)
    try:
        return await model.counter()
    finally:
        await model.aclose()


async def test_the_server_counts_where_nothing_lies_here(
    server: Script, caplog: pytest.LogCaptureFixture
) -> None:
    server.be_vllm()
    model = OpenAIModel("tiny", base_url=server.url)
    counter = await model.counter()
    assert isinstance(counter, ServerCounter)
    assert counter.who == "server"
    ids = SERVED.encode("naïve house", add_special_tokens=False).ids
    assert await asyncio.to_thread(counter.count, "naïve house") == len(ids)
    assert await model.counter() is counter
    assert caplog.records == []
    await model.aclose()


@pytest.mark.parametrize(
    ("template", "who"), [(CHATML, "tokenizer"), (THINKING, "both")], ids=["same", "other"]
)
async def test_a_tokenizer_that_agrees_is_used(
    server: Script, caplog: pytest.LogCaptureFixture, template: str, who: str
) -> None:
    server.be_vllm(template=template)
    counter = await found(server, tokenizer=TOKENIZER)
    assert isinstance(counter, ServerCounter)
    assert counter.who == who
    assert caplog.records == []
    server.asked.clear()
    assert counter.count("a house") == LOCAL.count("a house")
    assert server.asked == []


@pytest.mark.parametrize("tokenizer", ["bytes", ByteBound()], ids=["named", "object"])
async def test_one_that_disagrees_is_named_in_a_warning(
    server: Script, caplog: pytest.LogCaptureFixture, tokenizer: Any
) -> None:
    server.be_vllm()
    counter = await found(server, tokenizer=tokenizer)
    assert counter.name.startswith("server:")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    said = "bytes" if tokenizer == "bytes" else tokenizer.name
    assert f"the tokenizer {said} disagrees with the server of 'tiny'" in record.message


@pytest.mark.parametrize(
    "others",
    [{}, {"/tokenize": send(403, {"message": "no"})}, counts(template=None)],
    ids=["absent", "guarded", "no template"],
)
async def test_a_server_that_does_not_count(
    server: Script, caplog: pytest.LogCaptureFixture, others: dict[str, Any]
) -> None:
    server.be_vllm()
    server.others = others
    assert (await found(server)).name == ByteBound().name
    assert "its server does not count tokens" in caplog.text
    caplog.clear()
    counter = await found(server, tokenizer=TOKENIZER)
    assert counter.name == LOCAL.name
    assert caplog.records == []


async def test_an_unknown_server_is_not_asked_to_count(server: Script) -> None:
    server.others = counts()
    assert (await found(server)).name == ByteBound().name
    assert server.asked == []


async def test_a_tokenizer_that_cannot_be_had_says_so(server: Script) -> None:
    server.be_vllm()
    with pytest.raises(TokenizerError, match="nowhere"):
        await found(server, tokenizer="nowhere/tokenizer.json")


async def test_a_server_that_cannot_be_reached_is_asked_again(server: Script) -> None:
    model = OpenAIModel("tiny", base_url=server.url)
    server.be_vllm()
    tokenize = server.others["/tokenize"]
    server.others["/tokenize"] = hang_up
    with pytest.raises(ConnectionFailed):
        await model.counter()
    server.others["/tokenize"] = tokenize
    assert (await model.counter()).name.startswith("server:")
    await model.aclose()


async def test_any_of_several_servers_counts(server: Script, second: Script) -> None:
    for one in (server, second):
        one.be_vllm()
    model = OpenAIModel("tiny", base_url=[server.url, second.url])
    counter = await model.counter()
    expected = await asyncio.to_thread(counter.count_messages, TALK)
    server.die()
    again = await asyncio.to_thread(counter.count_messages, TALK, thinking=True)
    assert again == expected
    assert second.of("/tokenize")
    await model.aclose()
    second.die()
    with pytest.raises(ConnectionFailed):
        await found([server.url, second.url])


# --- what does not fit


def asking(text: str, max_tokens: int, **fields: Any) -> ChatRequest:
    messages = (Message(role="user", content=text),)
    return ChatRequest(messages=messages, max_tokens=max_tokens, **fields)


@pytest.mark.parametrize("tokenizer", [None, TOKENIZER], ids=["server", "tokenizer"])
async def test_what_does_not_fit_is_not_sent(server: Script, tokenizer: Path | None) -> None:
    server.be_vllm(window=100, template=THINKING)
    model = OpenAIModel("tiny", base_url=server.url, tokenizer=tokenizer)
    counter = await model.counter()
    ask = asking("Who is Pierre?", 50)
    prompt = await asyncio.to_thread(counter.count_messages, ask.messages)
    fits = ask.model_copy(update={"max_tokens": 100 - prompt})
    await model.complete(fits)
    assert len(server.bodies) == 1
    over = ask.model_copy(update={"max_tokens": 101 - prompt})
    for refused in (over, fits.model_copy(update={"thinking": False})):
        with pytest.raises(ContextOverflow, match=r"its window of 100; nothing was sent") as caught:
            await model.complete(refused)
        assert f"{refused.max_tokens} for the output" in str(caught.value)
    assert len(server.bodies) == 1
    smaller = OpenAIModel("tiny", base_url=server.url, tokenizer=tokenizer, window=99)
    with pytest.raises(ContextOverflow, match="its window of 99;"):
        await smaller.complete(fits)
    for one in (model, smaller):
        await one.aclose()


async def test_where_nobody_counts_the_server_has_its_say(server: Script) -> None:
    server.serve_models({"id": "tiny", "max_model_len": 10})
    model = OpenAIModel("tiny", base_url=server.url)
    assert (await model.complete(asking("word " * 50, 100))).text == "hello"
    await model.aclose()


def clipped(prompt: int, said: int, finish: str = "length") -> Any:
    usage = {"prompt_tokens": prompt, "completion_tokens": said}
    return send(200, chat(finish=finish) | {"usage": usage})


async def test_a_reply_clipped_by_a_smaller_window_is_refused(server: Script) -> None:
    server.be_vllm(window=100)
    model = OpenAIModel("tiny", base_url=server.url)
    await model.complete(asking("Who?", 60))
    server.be_vllm(window=40)
    server.replies.append(clipped(30, 10))
    with pytest.raises(ContextOverflow) as caught:
        await model.complete(asking("Who?", 60))
    for word in ("its window is now 40 tokens", "a prompt of 30 and 60", "--window 40"):
        assert word in str(caught.value)
    with pytest.raises(ContextOverflow, match="nothing was sent"):
        await model.complete(asking("Who?", 60))
    await model.aclose()


async def test_after_a_lost_connection_the_window_is_asked_for_anew(server: Script) -> None:
    server.be_vllm(window=100)
    model = OpenAIModel("tiny", base_url=server.url)
    await model.complete(asking("Who?", 60))
    server.be_vllm(window=40)  # it was restarted
    server.replies.append(hang_up)
    with pytest.raises(ConnectionFailed):
        await model.complete(asking("Who?", 60))
    with pytest.raises(ContextOverflow, match="its window of 40; nothing was sent"):
        await model.complete(asking("Who?", 60))
    await model.aclose()


@pytest.mark.parametrize(
    ("prompt", "said", "finish"),
    [(30, 60, "length"), (30, 10, "stop"), (30, 10, "length"), (0, 0, "length")],
    ids=["all of it", "ended", "within the window", "no usage"],
)
async def test_other_replies_pass(server: Script, prompt: int, said: int, finish: str) -> None:
    server.be_vllm(window=100)
    server.replies.append(clipped(prompt, said, finish))
    model = OpenAIModel("tiny", base_url=server.url)
    reply = await model.complete(asking("Who?", 60))
    assert reply.finish_reason is FinishReason(finish)
    await model.aclose()


# --- what is sent, and never shown


async def test_what_extra_body_says_of_the_template_is_sent_as_it_is_counted(
    server: Script,
) -> None:
    server.be_vllm(template=THINKING)
    extra = {"chat_template_kwargs": {"more": 1}, "top_k": 3}
    model = OpenAIModel("tiny", base_url=server.url, extra_body=extra)
    await model.complete(request(thinking=False))
    said = {"enable_thinking": False, "more": 1}
    assert server.bodies[-1]["chat_template_kwargs"] == said
    assert server.of("/tokenize")[-1]["chat_template_kwargs"] == said
    assert "top_k" not in server.of("/tokenize")[-1]
    await model.aclose()
    own = {"chat_template_kwargs": {"enable_thinking": True}}
    model = OpenAIModel("tiny", base_url=server.url, extra_body=own)
    await model.complete(request(thinking=False))
    assert server.bodies[-1]["chat_template_kwargs"] == {"enable_thinking": True}
    await model.aclose()


async def test_counting_shows_no_secret(
    server: Script, second: Script, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.be_vllm()
    second.be_vllm()
    urls = [one.url.replace("://", "://user:word-1%21@") for one in (server, second)]
    headers = {"X-Auth": "token-abcdefgh", "X-Key": KEY}
    model = OpenAIModel("tiny", base_url=urls, default_headers=headers)
    counter = await model.counter()
    words = f"no: {KEY} word-1! token-abcdefgh"
    for one in (server, second):
        one.others["/tokenize"] = send(401, {"error": {"message": words}})
    with pytest.raises(AuthenticationFailed, match=r"no: \*\*\* \*\*\* \*\*\*") as caught:
        await asyncio.to_thread(counter.count, "house")
    for one in (server, second):
        one.others["/tokenize"] = send(500, {"error": {"message": words}})
        one.models = send(403, {"error": {"message": words}})
    shown = [repr(model), str(caught.value), repr(caught.value.__cause__), repr(model.servers)]
    alone = OpenAIModel("tiny", base_url=urls, default_headers=headers)
    await alone.complete(request())
    await alone.counter()
    for one in (model, alone):
        await one.aclose()
    for secret in (KEY, "word-1", "user:", "token-abcdefgh"):
        assert secret not in "".join(shown) + caplog.text


@pytest.mark.parametrize(
    ("tokenizer", "more"), [(None, True), (TOKENIZER, False)], ids=["server", "tokenizer"]
)
async def test_threads_that_wait_for_the_server_are_more(
    server: Script, tokenizer: Path | None, more: bool
) -> None:
    server.be_vllm()
    await found(server, tokenizer=tokenizer)
    assert (threads.allowed_workers == COUNTING_THREADS) == more


async def test_a_tokenizer_that_undercounts_is_found_out_by_a_reply(
    server: Script, caplog: pytest.LogCaptureFixture
) -> None:
    """It agreed on the texts that it was tried with, and the server says that a prompt took more."""
    server.be_vllm()
    model = OpenAIModel("tiny", base_url=server.url, tokenizer=str(TOKENIZER))
    counter = await model.counter()
    reply = chat("hello")
    reply["usage"]["prompt_tokens"] = 1000
    server.replies.append(send(200, reply))
    asked = len(server.asked)
    await asyncio.to_thread(counter.count, "a house")
    assert len(server.asked) == asked
    await model.complete(request())
    assert "was counted as" in caplog.text
    asked = len(server.asked)
    await asyncio.to_thread(counter.count, "a house")
    assert len(server.asked) == asked + 1, "the server counts now"
    await model.aclose()


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_more_output_by_extra_body_is_refused_as_well(server: Script, field: str) -> None:
    server.be_vllm()
    model = OpenAIModel("tiny", base_url=server.url, extra_body={field: 2040})
    with pytest.raises(ContextOverflow, match="2040 for the output"):
        await model.complete(request())
    assert server.bodies == []
    await model.aclose()


async def test_one_failure_at_the_start_is_not_remembered(server: Script) -> None:
    server.be_vllm()
    listed, counted = server.models, server.others["/tokenize"]
    server.models = server.others["/tokenize"] = send(502, b"")
    model = OpenAIModel("tiny", base_url=server.url, dialect="vllm")
    assert (await model.complete(request())).text == "hello", "the chat has its say"
    server.models, server.others["/tokenize"] = listed, counted
    with pytest.raises(ContextOverflow):
        await model.complete(request().model_copy(update={"max_tokens": 2048}))
    await model.aclose()


@pytest.mark.parametrize("field", ["messages", "model", "n", "stream"])
def test_what_is_counted_cannot_be_replaced(field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        OpenAIModel("tiny", base_url="http://localhost:1/v1", extra_body={field: 1})


async def test_a_server_that_counts_nothing_does_not_count(server: Script) -> None:
    """Other servers have a `/tokenize` too, which reads another field and finds no text."""
    server.be_vllm()
    server.others["/tokenize"] = send(200, {"tokens": []})
    assert (await found(server, tokenizer=str(TOKENIZER))).name == LOCAL.name


LONG = Message(role="user", content="Natasha marries Pierre in the end. " * 30)


def took(prompt: int, cached: int | None = None) -> Any:
    """A reply to a prompt of that many tokens, as the server says."""
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return send(
        200, chat() | {"usage": {"prompt_tokens": prompt, "completion_tokens": 1} | details}
    )


async def ask_plain(
    server: Script, reply: Any, *, counted: int | None = None, **options: Any
) -> None:
    server.default = reply
    model = OpenAIModel("tiny", base_url=server.url, **options)
    try:
        await model.complete(request(LONG.content, prompt_tokens=counted))
    finally:
        await model.aclose()


@pytest.mark.parametrize("counted", [None, 10_000])
async def test_a_prompt_that_the_server_cut_is_an_error(
    server: Script, counted: int | None
) -> None:
    whole = LOCAL.count_messages((LONG,))
    with pytest.raises(PromptTruncated, match=r"num_ctx.*--window.*--tokenizer") as caught:
        await ask_plain(server, took(whole // 2), counted=counted, tokenizer=TOKENIZER)
    assert f"{whole // 2} tokens of a prompt of " in str(caught.value)
    assert len(server.bodies) == 1


async def test_a_counting_server_that_cuts_prompts_is_found_out(server: Script) -> None:
    server.be_vllm()
    with pytest.raises(PromptTruncated):
        await ask_plain(server, took(20))


async def test_what_is_nearly_all_of_a_prompt_is_no_cut(server: Script) -> None:
    whole = LOCAL.count_messages((LONG,))
    await ask_plain(server, took(int(whole * 0.95) - 32), tokenizer=TOKENIZER)
    await ask_plain(server, took(100), counted=130, tokenizer=TOKENIZER)  # a bound by parts


async def test_cached_tokens_that_are_left_out_are_no_cut(server: Script) -> None:
    whole = LOCAL.count_messages((LONG,))
    await ask_plain(server, took(10, cached=whole - 10), tokenizer=TOKENIZER)


@pytest.mark.parametrize("options", [{}, {"tokenizer": "bytes"}])
async def test_a_bound_finds_no_cut(server: Script, options: dict[str, Any]) -> None:
    await ask_plain(server, took(20), counted=10_000, **options)


async def test_a_server_with_a_shorter_template_cuts_nothing(
    server: Script, tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.json").write_bytes((TOKENIZER / "tokenizer.json").read_bytes())
    wordy = "{{ 'You are a helpful assistant, and you never tire. ' * 20 }}" + CHATML
    (tmp_path / "chat_template.jinja").write_text(wordy, "utf-8")
    await ask_plain(server, took(LOCAL.count_messages((LONG,))), tokenizer=tmp_path)


async def test_what_the_sender_counted_saves_the_count(server: Script) -> None:
    server.be_vllm()
    model = OpenAIModel("tiny", base_url=server.url)
    await model.complete(request(prompt_tokens=30))
    probes = len(server.asked)
    await model.complete(request("Who is she?", prompt_tokens=40))
    assert len(server.asked) == probes, "nothing is asked but the chat"
    await model.complete(request("Who?", prompt_tokens=5000))
    assert len(server.asked) == probes + 1, (
        "a bound over the window is counted before it is refused"
    )
    with pytest.raises(ContextOverflow):
        await model.complete(request("Who? " * 5000, prompt_tokens=50_000))
    await model.aclose()

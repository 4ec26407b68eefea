"""Replies that come in pieces: whole, broken off, left early, with an error inside."""

import asyncio
import logging
import traceback
from collections.abc import Sequence
from typing import Any

import pytest
from tests.models.chat_server import Script, chat, deltas, events, hang_up, send
from tests.models.test_openai import KEY, request

from memagent.errors import (
    AuthenticationFailed,
    BadResponse,
    ConnectionFailed,
    ModelError,
    RequestRefused,
    RequestTimeout,
    ServerBusy,
    ServerFailed,
)
from memagent.messages import ChatRequest, Completion, FinishReason, TokenIds, ToolSpec
from memagent.models.openai import OpenAIModel
from memagent.models.openai_errors import Endpoint
from memagent.models.openai_reply import read_completion
from memagent.models.openai_stream import Pieces

TEXTS = ("Pierre", " weds", " Nat", "ásha ", "🙂", ".")
HERE = Endpoint("vllm:tiny", "http://h/v1", 60.0, secrets=(KEY,))


async def streamed(
    server: Script, asked: ChatRequest | None = None, **options: Any
) -> tuple[list[str], Completion | None, ModelError | None]:
    """The pieces, the completion, and what went wrong."""
    model = OpenAIModel("tiny", base_url=server.url, **options)
    pieces: list[str] = []
    done: Completion | None = None
    failure: ModelError | None = None
    try:
        async for piece in model.stream(asked or request()):
            assert done is None, "the completion comes last"
            if isinstance(piece, Completion):
                done = piece
            else:
                pieces.append(piece)
    except ModelError as error:
        failure = error
    await model.aclose()
    return pieces, done, failure


def put_together(chunks: Sequence[dict[str, Any]]) -> tuple[list[str], Completion]:
    pieces = Pieces(HERE)
    texts = [pieces.add(chunk) for chunk in chunks]
    return texts, read_completion(pieces.reply(), HERE, request(tools=(ToolSpec(name="f"),)))


async def test_the_pieces_are_the_text(server: Script) -> None:
    server.default = events(*deltas(*TEXTS, finish="length"))
    pieces, done, failure = await streamed(server)
    assert failure is None
    assert pieces == list(TEXTS)
    assert done is not None
    assert done.text == "".join(TEXTS)
    assert done.finish_reason is FinishReason.LENGTH
    usage = done.usage
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens) == (1, 3, len(TEXTS))
    assert usage.cached_tokens == 2
    assert done.tokens is None
    assert server.bodies[0]["stream"] is True
    assert server.bodies[0]["stream_options"] == {"include_usage": True}


async def test_ids_and_log_probabilities_are_put_together(server: Script) -> None:
    server.be_vllm()
    server.default = events(*deltas("a", "b", "c", tokens=True))
    pieces, done, _ = await streamed(server, tokens=True)
    assert pieces == ["a", "b", "c"]
    assert done is not None
    assert done.tokens == TokenIds(
        prompt=(1, 2, 3), sampled=(100, 101, 102), logprobs=(0.0, -0.125, -0.25)
    )
    assert server.bodies[0]["return_token_ids"] is True


async def test_the_stream_says_what_the_whole_reply_would(server: Script) -> None:
    server.default = events(*deltas("a", "b", reasoning="hm"))
    _, done, _ = await streamed(server)
    reply = chat("ab", reasoning="hm")
    reply["usage"] = deltas("a", "b")[-1]["usage"]
    server.default = send(200, reply)
    model = OpenAIModel("tiny", base_url=server.url)
    assert await model.complete(request()) == done
    await model.aclose()


@pytest.mark.parametrize("reason", ["eos_token", "end_turn", "STOP"])
async def test_other_reasons_to_end(server: Script, reason: str) -> None:
    server.default = events(*deltas("a", finish=reason))
    _, done, failure = await streamed(server)
    assert failure is None
    assert done is not None
    assert done.finish_reason is FinishReason.STOP


@pytest.mark.parametrize("reason", ["abort", "error"])
async def test_an_engine_that_gives_up_is_no_reply(server: Script, reason: str) -> None:
    server.default = events(*deltas("a", "b", finish=reason))
    pieces, done, failure = await streamed(server)
    assert pieces == ["a", "b"]
    assert done is None
    assert isinstance(failure, ServerFailed)


@pytest.mark.parametrize("ends", [True, False], ids=["ended", "cut"])
async def test_half_a_stream_fails_after_its_pieces(server: Script, ends: bool) -> None:
    server.default = events(*deltas("a", "b", finish=None), ends=ends)
    pieces, done, failure = await streamed(server)
    assert pieces == ["a", "b"]
    assert done is None
    assert isinstance(failure, ConnectionFailed)
    assert failure.retryable
    assert f"openai:tiny at {server.url}" in str(failure)


async def test_a_stream_that_hangs_is_given_up(server: Script) -> None:
    server.default = events(*deltas("a", "b"), pause=5.0)
    pieces, done, failure = await streamed(server, timeout=0.3)
    assert (pieces, done) == ([], None)
    assert isinstance(failure, RequestTimeout)
    assert await asyncio.to_thread(server.left.wait, 5)


@pytest.mark.parametrize("how", ["break", "cancel"])
async def test_leaving_early_closes_the_connection(server: Script, how: str) -> None:
    server.default = events(*deltas(*"abcdefgh"), pause=0.05)
    model = OpenAIModel("tiny", base_url=server.url)
    came = asyncio.Event()

    async def read() -> None:
        stream = model.stream(request())
        async for _ in stream:
            came.set()
            if how == "break":
                break
        await stream.aclose()

    reading = asyncio.create_task(read())
    await came.wait()
    if how == "cancel":
        reading.cancel()
    (ended,) = await asyncio.gather(reading, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError) == (how == "cancel")
    assert await asyncio.to_thread(server.left.wait, 5)
    server.default = events(*deltas("fine"))
    assert [p async for p in model.stream(request()) if isinstance(p, str)] == ["fine"]
    await model.aclose()


BUSY = {"message": "try later", "type": "Service Unavailable", "code": 503}


@pytest.mark.parametrize(
    ("behaviour", "kind", "pieces"),
    [
        (events(*deltas("a", finish=None), {"error": {"message": "oops"}}), BadResponse, ["a"]),
        (events({"error": {"message": f"oops {KEY}"}}), BadResponse, []),
        (events(b"{no json"), ModelError, []),
        (events(b"5"), ModelError, []),
        (events({"object": "error", "message": "x"}), ModelError, []),
        (events(), ConnectionFailed, []),
        (send(503, {"error": BUSY}), ServerBusy, []),
        (send(401, {"error": "Unauthorized"}), AuthenticationFailed, []),
        (send(422, {"detail": "stream_options"}), RequestRefused, []),
        (hang_up, ConnectionFailed, []),
    ],
    ids=[
        "error behind a piece",
        "error at once",
        "no JSON",
        "no object",
        "another object",
        "nothing",
        "503",
        "401",
        "422",
        "lost",
    ],
)
async def test_what_goes_wrong_is_a_model_error(
    server: Script, behaviour: Any, kind: type[ModelError], pieces: list[str]
) -> None:
    server.default = behaviour
    came, done, failure = await streamed(server, api_key=KEY)
    assert came == pieces
    assert done is None
    assert isinstance(failure, kind)
    assert "openai:tiny at http" in str(failure)
    assert len(server.bodies) == 1


async def test_no_secret_in_what_went_wrong(
    server: Script, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    words = {"error": {"message": f"wrong key {KEY}"}}
    shown: list[str] = []
    for said in (
        events(*deltas("a", finish=None), words),
        send(401, words),
        events(f"{{no json {KEY}".encode()),
    ):
        server.default = said
        _, _, failure = await streamed(server, api_key=KEY)
        assert failure is not None
        shown += traceback.format_exception(failure)
    assert "wrong key ***" in "".join(shown)
    assert KEY not in "".join(shown) + caplog.text


# --- the parts, without a server


def test_chunks_without_text_add_none() -> None:
    texts, done = put_together(
        [{"choices": []}, {}, {"choices": [{"delta": None}]}, *deltas("a", ""), {"usage": None}]
    )
    assert "".join(texts) == "a"
    assert done.text == "a"
    assert done.usage.completion_tokens == 2


def test_reasoning_is_no_piece_of_the_text() -> None:
    for key in ("reasoning", "reasoning_content"):
        chunks = [{"choices": [{"delta": {key: part}}]} for part in ("let me", " see")]
        texts, done = put_together([*chunks, *deltas("a")])
        assert "".join(texts) == "a"
        assert done.reasoning == "let me see"


def test_ids_in_either_form() -> None:
    ids = [{"choices": [{"delta": {}, "prompt_token_ids": [7, 8]}]}]
    ids += [{"choices": [{"delta": {}, "response_token_ids": [n]}]} for n in (1, 2)]
    _, done = put_together([*ids, *deltas("a")])
    assert done.tokens == TokenIds(prompt=(7, 8), sampled=(1, 2))


def test_a_character_may_come_in_two_halves() -> None:
    _, done = put_together(deltas("\ud83d", "\ude42"))
    assert done.text == "🙂"


def test_a_reply_that_broke_off_says_where() -> None:
    with pytest.raises(ConnectionFailed, match=r"broke off after 3 characters"):
        put_together(deltas("ab", "c", finish=None))


# --- tool calls in pieces


def calling(*pieces: Any) -> list[dict[str, Any]]:
    """The chunks of a reply that calls tools: each piece is what `tool_calls` of a delta holds."""
    first, *_, last = deltas("")
    said = [{"choices": [{"index": 0, "delta": {"tool_calls": piece}}]} for piece in pieces]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    return [first, *said, end, last]


def piece(index: int | None = None, name: str | None = None, /, **fields: Any) -> dict[str, Any]:
    """A piece of a call: an index, the id, and of the function what is given."""
    call: dict[str, Any] = {} if index is None else {"index": index}
    if name is not None:
        call["id"] = name
    return call | ({"function": fields} if fields else {})


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        (
            [
                [piece(0, "a", name="f", arguments="")],
                [piece(0, arguments='{"x"')],
                [piece(0, None, name=None, arguments=": 1}")],
            ],
            [("a", "f", '{"x": 1}')],
        ),
        (
            [
                [piece(0, "a", name="f", arguments='{"x":'), piece(1, "b", name="g")],
                [piece(1, arguments='{"y":')],
                [piece(0, arguments=" 1}"), piece(1, arguments=" 2}")],
            ],
            [("a", "f", '{"x": 1}'), ("b", "g", '{"y": 2}')],
        ),
        (
            [
                [piece(0, "a", name="f", arguments="{")],
                [piece(0, "a", name="f", arguments="}")],
                [piece(0, "", name="", arguments="")],
            ],
            [("a", "f", "{}")],
        ),
        (
            [
                [piece(0, "a", name="f", arguments='{"x": ')],
                [piece(0, arguments="1}")],
                [piece(0, "b", name="f", arguments='{"x": ')],
                [piece(0, arguments="2}")],
            ],
            [("a", "f", '{"x": 1}'), ("b", "f", '{"x": 2}')],
        ),
        (
            [
                [piece(None, "a", name="f", arguments='{"x": ')],
                [piece(arguments="1}")],
                [piece(None, "b", name="g", arguments="{}")],
            ],
            [("a", "f", '{"x": 1}'), ("b", "g", "{}")],
        ),
        (
            [[piece(name="f", arguments="{}"), piece(name="g", arguments={"é": [1]})]],
            [("call00000", "f", "{}"), ("call00001", "g", '{"é": [1]}')],
        ),
        (
            [[piece(0, name="f")], [piece(0, "a")], [piece(0, arguments="{}")]],
            [("a", "f", "{}")],
        ),
        (
            [[piece(1, "a", name="f")], [piece(0, "a", name="g")], None, []],
            [("a", "f", "{}"), ("call00001", "g", "{}")],
        ),
    ],
    ids=[
        "pieces", "in turn", "repeated", "always index 0", "no index", "no index, no id",
        "late id", "same id",
    ],
)  # fmt: skip
def test_pieces_of_calls_are_put_together(
    pieces: list[Any], calls: list[tuple[str, str, str]]
) -> None:
    texts, reply = put_together(calling(*pieces))
    assert "".join(texts) == reply.text == ""
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == calls
    assert reply.finish_reason is FinishReason.STOP


async def test_calls_come_with_the_completion(server: Script) -> None:
    call = piece(0, "a", name="f", arguments="{}")
    server.default = events(*calling([call]))
    asked = request(tools=(ToolSpec(name="f"),))
    pieces, done, failure = await streamed(server, asked)
    assert failure is None
    assert pieces == []
    assert done is not None
    reply = chat(None, finish="tool_calls", tool_calls=[call])
    reply["usage"] = deltas("")[-1]["usage"]
    server.default = send(200, reply)
    model = OpenAIModel("tiny", base_url=server.url)
    assert await model.complete(asked) == done
    await model.aclose()


@pytest.mark.parametrize(
    "broken",
    [
        "f", ["f"], [{"index": 0, "function": "f"}], [piece(0, "a", name="f", arguments=[1])],
        [piece(0, "a", arguments="{}")], [piece(0, "a", name=3)], 7,
    ],
    ids=["text", "texts", "no function", "list", "no name", "number", "no list"],
)  # fmt: skip
async def test_pieces_of_another_form_are_no_reply(server: Script, broken: Any) -> None:
    server.default = events(*calling(broken))
    _, done, failure = await streamed(server)
    assert done is None
    assert isinstance(failure, BadResponse)

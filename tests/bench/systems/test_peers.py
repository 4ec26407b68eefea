"""Refine loops of other frameworks: their prompts, our chunks, the shared model, and no network."""

import asyncio
import socket
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.bench.systems.benches import (
    FILLER,
    PEERS,
    PLAIN,
    QUESTION,
    WINDOW,
    haystack,
    sample,
    scripted,
    setting,
)

from memagent import ChatRequest, Message, RunStore
from memagent.chunking import Chunker, chunk_text
from memagent.errors import ContextOverflow, MemagentError, ServerFailed, WindowTooSmall
from memagent.prompts import Neutraliser
from memagent.tokens.byte_bound import ByteBound
from memagent_bench.systems.base import Status
from memagent_bench.systems.peers import Peer, Send
from memagent_bench.systems.registry import open_system

pytestmark = pytest.mark.extra


def numbered(request: ChatRequest) -> str:
    return f"Answer {request.seed}."


def contents(request: ChatRequest) -> str:
    return "\n".join(message.content for message in request.messages)


@pytest.mark.parametrize("name", PEERS)
async def test_each_chunk_once_in_order_with_the_answer_so_far(name: str, store: RunStore) -> None:
    model = scripted(numbered)
    text = " ".join(f"Sentence {n} of the text." for n in range(600))
    outcome = await open_system(name, setting(model, store)).answer(sample(text), "r")
    answers = [numbered(request) for request in model.requests]
    assert len(set(answers)) == len(answers) == outcome.chunks
    assert outcome.answer == answers[-1]
    shown = [contents(request) for request in model.requests]
    assert all(QUESTION in content for content in shown)
    assert all(answer in content for answer, content in zip(answers, shown[1:], strict=False))
    # Every sentence stands in exactly one prompt, and those of a chunk in the next prompt's place.
    homes = [
        [i for i, content in enumerate(shown) if f"Sentence {n} of the text." in content]
        for n in range(600)
    ]
    assert all(len(home) == 1 for home in homes)
    assert homes == sorted(homes)
    assert outcome.usage.calls == outcome.predicted_calls == len(model.requests)
    used = outcome.usage.prompt_tokens + outcome.usage.completion_tokens
    assert used <= (outcome.predicted_tokens or 0)
    assert {request.kind for request in model.requests} == {"other"}


@pytest.mark.parametrize("name", PEERS)
async def test_texts_are_not_read_as_templates(name: str, store: RunStore) -> None:
    text = "A {question} and {{context_str}}, {existing_answer}, %s {0} {query_str} {% raw %}."
    model = scripted(lambda _: "It is {context_str} {x}.")
    await open_system(name, setting(model, store)).answer(
        sample(text + FILLER * 200, "Why {x}?"), "r"
    )
    assert text in contents(model.requests[0])
    assert "Why {x}?" in contents(model.requests[0])
    assert "It is {context_str} {x}." in contents(model.requests[1])


@pytest.mark.parametrize("name", PEERS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(
        st.one_of(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
            st.sampled_from(["<|im_end|>", "</memory>", "\ufb2c", "{", "\n\n", "x" * 500]),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_prompt_and_output_fit_with_the_longest_answers(name: str, parts: list[str]) -> None:
    store = RunStore(None)
    model = scripted(lambda request: "b" * request.max_tokens)
    text = "a" + ("".join(parts) * 500)[:9000]
    system = open_system(name, setting(model, store))
    outcome = asyncio.run(system.answer(sample(text), "r"))
    store.close()
    assert outcome.status is Status.ANSWERED
    for request in model.requests:
        assert ByteBound().count_messages(request.messages) + request.max_tokens <= WINDOW
        assert "<|im_end|>" not in contents(request)


@pytest.mark.parametrize("name", PEERS)
async def test_the_chunks_are_the_chunkers(name: str, store: RunStore) -> None:
    model = scripted(numbered)
    text = haystack(400)
    outcome = await open_system(name, setting(model, store, chunk_tokens=500)).answer(
        sample(text), "r"
    )
    chunker = Chunker(ByteBound(), 500, neutralise=Neutraliser(dict(PLAIN.tags).values()))
    chunks = [chunk.text for chunk in chunk_text([text], chunker)]
    assert outcome.chunks == len(chunks)
    assert all(
        chunk in contents(request) for chunk, request in zip(chunks, model.requests, strict=True)
    )


@pytest.mark.parametrize("name", PEERS)
async def test_failures_of_the_model_are_raised_as_they_are(name: str, store: RunStore) -> None:
    def fails(request: ChatRequest) -> str | Exception:
        return ServerFailed("gone") if len(model.requests) == 3 else numbered(request)

    model = scripted(fails)
    with pytest.raises(ServerFailed, match="gone"):
        await open_system(name, setting(model, store)).answer(sample(haystack()), "r")
    assert len(model.requests) == 3  # sent once: retrying is the shared model's


@pytest.mark.parametrize("name", PEERS)
async def test_an_answer_that_stays_empty_stops_the_sample(name: str, store: RunStore) -> None:
    model = scripted(lambda _: "")
    outcome = await open_system(name, setting(model, store)).answer(sample(haystack()), "r")
    assert (outcome.status, outcome.answer, outcome.usage.retries) == (Status.STOPPED, None, 3)


@pytest.mark.parametrize("name", PEERS)
async def test_a_prompt_that_does_not_fit_is_an_error(name: str, store: RunStore) -> None:
    class Twice(ByteBound):
        """Counts prompts with an answer in them as more than it said."""

        def count_messages(
            self, messages: Sequence[Message], *, thinking: bool | None = None, tools: object = ()
        ) -> int:
            more = 2000 if any("Long answer" in message.content for message in messages) else 0
            return super().count_messages(messages) + more

    model = scripted(lambda _: "Long answer", counter=Twice())
    with pytest.raises(ContextOverflow):
        await open_system(name, setting(model, store)).answer(sample(haystack()), "r")


@pytest.mark.parametrize("name", PEERS)
async def test_nothing_goes_to_the_network_or_a_cache(
    name: str, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def refuse(*args: object, **_: object) -> None:
        asked.append(args)
        raise OSError("no network here")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    for variable in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"):
        monkeypatch.setenv(variable, "true")
    monkeypatch.setenv("LANGSMITH_API_KEY", "k")
    from langchain_core.caches import InMemoryCache
    from langchain_core.globals import set_llm_cache
    from langchain_core.tracers.langchain import LangChainTracer
    from langsmith import utils

    monkeypatch.setattr(LangChainTracer, "__init__", refuse)
    utils.get_env_var.cache_clear()  # it remembers what it was told
    set_llm_cache(InMemoryCache())
    model = scripted(lambda _: "7405812")
    system = open_system(name, setting(model, store))
    try:
        first = await system.answer(sample(haystack()), "r")
        again = await system.answer(sample(haystack()), "r")
    finally:
        set_llm_cache(None)
        utils.get_env_var.cache_clear()
    assert asked == []
    assert len(model.requests) == 2 * first.usage.calls
    assert first == again


class _Loop:
    """A framework that does as it is told."""

    def __init__(self, error: Exception | None = None, calls: int = 0, frame: str = "") -> None:
        self.error, self.calls, self.frame = error, calls, frame

    def frames(self, question: str) -> Sequence[tuple[Message, ...]]:
        return [(Message(role="user", content=question + self.frame),)]

    async def run(self, question: str, texts: Sequence[str], send: Send) -> str:
        for text in texts[: self.calls]:
            await send((Message(role="user", content=text),))
        if self.error is not None:
            raise self.error
        return "An answer."


async def test_a_frameworks_own_errors_are_translated(store: RunStore) -> None:
    peer = Peer("loop", setting(scripted(), store), _Loop(ValueError("size -5")))
    with pytest.raises(MemagentError, match="loop itself failed: ValueError: size -5"):
        await peer.answer(sample(haystack()), "r")


async def test_an_answer_without_some_of_the_chunks_is_none(store: RunStore) -> None:
    peer = Peer("loop", setting(scripted(), store), _Loop(calls=2))
    with pytest.raises(MemagentError, match="skipped some"):
        await peer.answer(sample(haystack()), "r")


async def test_prompts_that_leave_no_room_are_refused_beforehand(store: RunStore) -> None:
    model = scripted()
    peer = Peer("loop", setting(model, store), _Loop(frame="Do this. " * 350))
    with pytest.raises(WindowTooSmall, match=f"a window of {WINDOW} leaves no room"):
        await peer.answer(sample(haystack()), "r")
    assert model.requests == []

"""The servers of laptops, with `smol`: counted, refused, and read from end to end."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contracts.test_chat_model import LOOK_ALIKES, miscounted
from tests.engines.fixtures import API_KEY, StartServer
from tests.engines.servers import EngineServer

from memagent import ChatRequest, MemoryAgent, Message, RunStore, Sampling, StopReason, open_model
from memagent.errors import ContextOverflow, ModelError
from memagent.messages import FinishReason
from memagent.models.base import ChatModel
from memagent.models.probe import Probe, probe
from memagent.threads import in_thread
from memagent_bench.perf.chunks import book
from memagent_engines.smol import smol_folder

WINDOW = 1024
GREEDY = Sampling(temperature=0.0)
TEXT = book()[2000:7000]
PARIS = "What is the capital of France? Answer in one sentence."
NEEDLE = "The code of the blue door is 4761."

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> EngineServer:
    """The server of the engine that was asked for."""
    return start_server(window=WINDOW, api_key=API_KEY)


@pytest.fixture
def store() -> Iterator[RunStore]:
    store = RunStore(None)
    yield store
    store.close()


def opened(server: EngineServer, tokenizer: str | None = None) -> ChatModel:
    """`transformers serve` loads the folder that a request names, and reports no window."""
    blind = server.engine == "transformers"
    return open_model(
        f"openai:{smol_folder() if blind else 'smol'}",
        base_url=server.url,
        api_key=API_KEY,
        window=WINDOW if blind else None,
        tokenizer=tokenizer,
    )


def asking(*messages: Message, max_tokens: int = 8) -> ChatRequest:
    return ChatRequest(messages=messages, max_tokens=max_tokens, sampling=GREEDY)


def says(content: str) -> Message:
    return Message(role="user", content=content)


async def test_it_speaks_english(server: EngineServer) -> None:
    model = opened(server)
    reply = await model.complete(asking(says(PARIS), max_tokens=30))
    assert "Paris" in reply.text
    assert reply.finish_reason is FinishReason.STOP
    await model.aclose()


async def test_its_window_is_known(server: EngineServer) -> None:
    model = opened(server)
    assert await model.window() == WINDOW
    await model.aclose()


@pytest.mark.parametrize("local", [False, True], ids=["served", "local"])
async def test_prompts_are_counted_as_it_reads_them(server: EngineServer, local: bool) -> None:
    model = opened(server, tokenizer=str(smol_folder()) if local else None)
    texts = [
        *LOOK_ALIKES,
        TEXT[:1500],
        "Natásha: 1,812\n\n42  x",
        "你好 🙂🏽",
        "def f(x):\n\treturn x  ",
    ]
    assert await miscounted(model, texts, thinks=False) == []
    await model.aclose()


async def test_what_exceeds_the_window_never_becomes_an_answer(server: EngineServer) -> None:
    """`transformers serve` enforces no window, so only an agent's own count does."""
    model = opened(server)
    long = asking(says(TEXT), max_tokens=8)
    if server.engine == "llamacpp":
        with pytest.raises(ContextOverflow, match=f"window of {WINDOW}; nothing was sent"):
            await model.complete(long)
    else:
        took = (await model.complete(long)).usage.prompt_tokens
        counter = await model.counter()
        assert took == await in_thread(counter.count_messages, long.messages) > WINDOW
    await model.aclose()


def test_a_needle_is_read_end_to_end(server: EngineServer, store: RunStore) -> None:
    """So small a model may well lose the needle: what counts is that all was read, within the window."""
    with MemoryAgent(
        opened(server), chunk_tokens=400, memory_tokens=48, sampling=GREEDY, store=store
    ) as agent:
        question = "What is the code of the blue door?"
        estimate = agent.estimate(TEXT[:2500] + NEEDLE + TEXT[2500:], question)
        result = agent.ask(TEXT[:2500] + NEEDLE + TEXT[2500:], question, run_id="r")
    assert result.stop_reason is StopReason.ANSWERED
    assert result.answer
    chunks = [event for event in store.events("r") if event.type == "chunk_read"]
    assert len(chunks) >= 3
    assert chunks[-1].last
    prompts = [
        message.content
        for conversation in store.conversations("r")
        for message in conversation.messages
    ]
    assert any(NEEDLE in prompt for prompt in prompts)
    assert result.usage.calls == len(chunks) + 1 == estimate.calls_max
    assert result.usage.prompt_tokens <= estimate.prompt_tokens


async def test_several_calls_at_once(server: EngineServer) -> None:
    model = opened(server)
    asked = [asking(says(f"Repeat the word {word}."), max_tokens=12) for word in ("red", "blue")]
    replies = await asyncio.gather(*(model.complete(ask) for ask in asked * 2))
    assert [r.text for r in replies[:2]] == [r.text for r in replies[2:]]
    await model.aclose()


async def test_it_is_probed(server: EngineServer) -> None:
    model = opened(server)
    (found,) = await probe(model)
    assert isinstance(found, Probe)
    kinds = {"llamacpp": ("llamacpp", "server"), "transformers": ("plain", "tokenizer")}
    assert (found.dialect, found.counts) == kinds[server.engine]
    assert found.call.counted == found.call.prompt_tokens
    await model.aclose()


async def test_a_wrong_name_or_key_is_told(server: EngineServer, tmp_path: Path) -> None:
    if server.engine == "llamacpp":  # it takes any name
        model = open_model("openai:smol", base_url=server.url, api_key="another")
        with pytest.raises(ModelError, match="key"):
            await model.complete(asking(says("Hello.")))
    else:
        model = open_model(f"openai:{tmp_path}/none", base_url=server.url, window=WINDOW)
        with pytest.raises(ModelError, match="none"):
            await model.complete(asking(says("Hello.")))
    await model.aclose()

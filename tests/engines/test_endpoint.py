"""The endpoint in front of a real server and a language model: what fits, and a document larger than its window."""

from collections.abc import Iterator

import httpx
import pytest
from filelock import FileLock
from openai import OpenAI
from tests.engines import commands
from tests.engines.fixtures import API_KEY, StartServer
from tests.engines.servers import EngineServer
from tests.serve.conftest import listening_with

from memagent import RunStore, Sampling, open_model
from memagent_bench.perf.chunks import book
from memagent_engines.smol import smol_folder

WINDOW = 2048
NEEDLE = "The code of the blue door is 4761."
QUESTION = "What is the code of the blue door?"
TEXT = book()[2000:16000]
"""About 3,500 tokens."""
DOCUMENT = f"{TEXT[:7000]}\n{NEEDLE}\n{TEXT[7000:]}"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def smol(start_server: StartServer, request: pytest.FixtureRequest) -> Iterator[EngineServer]:
    """With a small window, so that a small document exceeds it."""
    engine = str(request.config.getoption("--engine"))
    flags = (*commands.REPORTING[engine], *commands.smol(engine))
    folder = smol_folder()
    with FileLock(folder.with_name(f"{folder.name}.served.lock")):
        server = start_server(window=WINDOW, api_key=API_KEY, flags=flags)
        yield server
        server.stop()


@pytest.fixture
def client(smol: EngineServer, store: RunStore) -> Iterator[OpenAI]:
    """Speaks to an endpoint in front of the server."""
    model = open_model(f"{smol.engine}:{smol.model}", base_url=smol.url, api_key=API_KEY)
    reading = {"chunk_tokens": 900, "memory_tokens": 64, "sampling": Sampling(temperature=0)}
    with (
        listening_with(model, store, reading=reading) as url,
        OpenAI(base_url=url, api_key="none", max_retries=0, timeout=600) as client,
    ):
        yield client


def test_what_fits_is_answered_as_the_server_does(smol: EngineServer, client: OpenAI) -> None:
    body = {
        "model": smol.model,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 16,
        "temperature": 0,
        "logprobs": True,
        "return_token_ids": True,  # vLLM's own
    }
    headers = {"Authorization": f"Bearer {API_KEY}"}
    url = f"{smol.url}/chat/completions"
    # Twice, since an answer says how much of its prompt the server had in its cache.
    _, direct = (
        httpx.post(url, json=body, headers=headers, timeout=300, trust_env=False).json()
        for _ in range(2)
    )
    through = httpx.post(
        f"{client.base_url}chat/completions", json=body, timeout=300, trust_env=False
    )
    for answer in (direct, passed := through.json()):
        answer.pop("id")
        answer.pop("created")
        # In a batch of another size the last digits of a log-probability may differ.
        answer["choices"][0].pop("logprobs")
    assert passed == direct
    given = body | {"stream": True, "stream_options": {"include_usage": True}}
    del given["return_token_ids"]
    pieces = list(client.chat.completions.create(**given))  # pyright: ignore[reportCallIssue, reportArgumentType]
    said = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    assert said == direct["choices"][0]["message"]["content"]
    assert pieces[-1].usage.total_tokens == direct["usage"]["total_tokens"]


def test_a_document_larger_than_the_window_is_read(
    smol: EngineServer, client: OpenAI, store: RunStore
) -> None:
    """So small a model may well lose the needle: what matters is that all of it was read, within the window."""
    before = smol.requests()
    parts = [{"type": "text", "text": text} for text in (DOCUMENT, QUESTION)]
    raw = client.chat.completions.with_raw_response.create(
        model=smol.model,
        messages=[{"role": "user", "content": parts}],  # pyright: ignore[reportArgumentType]
    )
    reply = raw.parse()
    run = raw.headers["x-memagent-run"]
    assert reply.choices[0].message.content
    assert reply.usage
    usage = store.usage(run)
    chunks = [event for event in store.events(run) if event.type == "chunk_read"]
    assert chunks[-1].last
    assert sum(chunk.tokens for chunk in chunks) > WINDOW
    assert raw.headers["x-memagent-tokens"] == str(sum(chunk.tokens for chunk in chunks))
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (
        usage.prompt_tokens,
        usage.completion_tokens,
    )
    assert usage.calls == len(chunks) + 1 == smol.requests() - before - usage.retries
    shown = [
        message.content
        for conversation in store.conversations(run)
        for message in conversation.messages
    ]
    assert any(NEEDLE in text for text in shown)


def test_a_long_history_fits(smol: EngineServer, client: OpenAI) -> None:
    """Summaries of so small a model are worth little; the server would refuse a prompt that is too long."""
    turns: list[dict[str, str]] = []
    for n in range(12):
        text = TEXT[n * 900 : (n + 1) * 900]
        turns += [{"role": "user", "content": text}, {"role": "assistant", "content": "I see."}]
    turns.append({"role": "user", "content": "Say hello."})
    reply = client.chat.completions.create(
        model=smol.model,
        messages=turns,  # pyright: ignore[reportArgumentType]
        max_tokens=16,
    )
    assert reply.choices[0].message.content
    assert reply.usage
    assert reply.model_extra
    assert reply.model_extra["memagent"]["summaries"] >= 1

"""What an engine in this process promises beside the contract; `tests/engines/test_in_process.py` runs it."""

import asyncio
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.models.in_process.engine import (
    ENGINE,
    MODEL,
    SETTINGS,
    SIZE,
    WINDOW,
    open_tiny,
    unfinished,
)
from tests.models.transformers.variants import write_adapter, write_weights

from memagent.errors import ConfigError, EngineFailed, ModelError
from memagent.messages import ChatRequest, Message, Sampling
from memagent.threads import in_thread
from memagent_engines.in_process import EngineModel
from memagent_engines.transformers.model import TransformersModel

WARM = Sampling(temperature=1.0, top_p=1.0)
LONG = "The prince rode on to the village by the wood, and nobody spoke to him. " * 20


def request(text: str = "Where was the old prince?", **fields: Any) -> ChatRequest:
    message = Message(role="user", content=text)
    fields = {"max_tokens": 12, "sampling": Sampling(temperature=0), **fields}
    return ChatRequest(messages=(message,), **fields)


def processes() -> list[int]:
    return [child.pid or 0 for child in multiprocessing.active_children()]


def computing(process: int) -> int:
    """The process in which the weights are: SGLang's is a child of the engine's."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return int(children[0]) if ENGINE == "sglang" else process


async def until_requests(model: EngineModel, count: int) -> None:
    """Waits until the engine works on so many requests."""
    running = (await model._open())[1][0]
    while unfinished(running) != count:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)


async def test_it_draws_what_transformers_draws() -> None:
    model, other = (
        open_tiny(tokens=True),
        TransformersModel(os.environ["MODEL_FOLDER"], tokens=True),
    )
    for text in ("Where was the old prince?", LONG):
        drawn, wanted = [(await m.complete(request(text))).tokens for m in (model, other)]
        assert drawn is not None
        assert wanted is not None
        assert drawn.prompt == wanted.prompt
        assert drawn.sampled == wanted.sampled
        assert drawn.logprobs == pytest.approx(wanted.logprobs, abs=1e-3)
    await other.aclose()
    await model.aclose()


@pytest.mark.skipif(
    ENGINE == "sglang", reason="it follows seeds with none of its attention backends for CPUs"
)
async def test_seeds() -> None:
    model = open_tiny()

    async def text(seed: int) -> str:
        return (await model.complete(request(seed=seed, sampling=WARM))).text

    assert await text(1) == await text(1) != await text(2)
    await model.aclose()


async def test_new_weights_are_drawn_with_by_all_models_and_forget_prefixes(tmp_path: Path) -> None:
    weights = write_weights(os.environ["MODEL_FOLDER"], tmp_path / "other", scale=0.5)
    # With a cache of another size, so that the engine of the other tests keeps its weights.
    options: dict[str, Any] = {SIZE: SETTINGS[SIZE] // 2, "tokens": True}
    model, second = (open_tiny(**options) for _ in range(2))
    other = TransformersModel(weights, tokens=True)
    before = (await second.complete(request(LONG))).tokens
    await model.load(weights)
    drawn, wanted = [(await m.complete(request(LONG))) for m in (second, other)]
    assert drawn.usage.cached_tokens == 0
    assert drawn.tokens is not None
    assert wanted.tokens is not None
    assert drawn.tokens.sampled == wanted.tokens.sampled
    assert drawn.tokens.logprobs == pytest.approx(wanted.tokens.logprobs, abs=1e-3)
    assert before is not None
    assert drawn.tokens.logprobs != pytest.approx(before.logprobs, abs=1e-3)
    with pytest.raises(ConfigError, match="no weights"):
        await model.load(tmp_path)
    assert (await second.complete(request(LONG))).text == drawn.text
    for one in (model, second, other):
        await one.aclose()


@pytest.mark.skipif(
    ENGINE == "sglang", reason="its adapters need a GPU: the next test sees them refused"
)
async def test_models_with_adapters_share_an_engine(tmp_path: Path) -> None:
    adapters = [
        write_adapter(os.environ["MODEL_FOLDER"], tmp_path / name, seed)
        for seed, name in enumerate("ab", 1)
    ]
    models = [open_tiny(adapter=adapter, tokens=True) for adapter in adapters]
    others = [
        TransformersModel(os.environ["MODEL_FOLDER"], adapter=adapter, tokens=True)
        for adapter in adapters
    ]
    before = len(processes())
    texts = []
    for model, other in zip(models * 2, others * 2, strict=True):
        drawn, wanted = [(await m.complete(request(LONG))).tokens for m in (model, other)]
        assert drawn is not None
        assert wanted is not None
        assert drawn.sampled == wanted.sampled
        assert drawn.logprobs == pytest.approx(wanted.logprobs, abs=1e-3)
        texts.append(drawn.sampled)
    assert texts[:2] == texts[2:]
    assert texts[0] != texts[1]
    assert len(processes()) == before + 1
    for model in (*models, *others):
        await model.aclose()


async def test_adapters_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    if ENGINE == "sglang":
        with pytest.raises(ConfigError, match="merge it into its model"):
            open_tiny(adapter=write_adapter(os.environ["MODEL_FOLDER"], tmp_path / "a", 1))
        return
    with pytest.raises(ConfigError, match="no readable adapter"):
        open_tiny(adapter=tmp_path)
    model = open_tiny(
        adapter=write_adapter(os.environ["MODEL_FOLDER"], tmp_path / "a", 1, bound="f" * 64)
    )
    with pytest.raises(ConfigError, match="was not trained on"):
        await model.complete(request())
    await model.aclose()


async def test_cached_prefixes() -> None:
    model = open_tiny()
    prompts = [LONG + end for end in ("Who?", "Where?")]
    cached = [(await model.complete(request(text))).usage.cached_tokens for text in prompts]
    assert cached[1] > 100
    await model.aclose()


async def test_a_cancelled_call_is_aborted_and_a_closed_model_fails_its_calls() -> None:
    model, other = open_tiny(), open_tiny()
    assert await other.window() == WINDOW
    ask = request(max_tokens=1500, sampling=WARM)
    calls = [asyncio.create_task(model.complete(ask)) for _ in range(2)]
    await until_requests(other, 2)
    calls[0].cancel()
    await until_requests(other, 1)
    await model.aclose()
    with pytest.raises(asyncio.CancelledError):
        await calls[0]
    for call in (calls[1], model.complete(ask)):
        with pytest.raises(ModelError, match="is closed"):
            await call
    await until_requests(other, 0)
    assert (await other.complete(request())).usage.completion_tokens == 12
    await other.aclose()


async def test_models_share_an_engine_which_ends_with_the_last_and_may_die() -> None:
    """Of other settings than the other tests' engine, so that its processes are known."""
    before = processes()

    def mine() -> list[int]:
        return [process for process in processes() if process not in before]

    options: dict[str, Any] = {SIZE: SETTINGS[SIZE] // 2}
    first, second = (open_tiny(window=512, **options) for _ in range(2))
    asks = [asyncio.create_task(m.complete(request())) for m in (first, second)]
    asks[0].cancel()  # which doesn't end what the other waits for
    reply = await asks[1]
    await first.complete(request())
    assert len(mine()) == 1
    await first.aclose()
    (process,) = mine()
    call = asyncio.create_task(second.complete(request(max_tokens=400, sampling=WARM)))
    await until_requests(second, 1)
    await in_thread(lambda: os.kill(computing(process), signal.SIGKILL))
    with pytest.raises(EngineFailed, match="died"):
        await call
    assert mine() == []
    again = await second.complete(request())
    assert again.text == reply.text
    assert len(mine()) == 1
    await second.aclose()
    await second.aclose()
    assert mine() == []


async def test_what_cannot_be_started_says_why(tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text("{}")
    cases: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (tmp_path, {}, ConfigError, "save_pretrained"),
        (os.environ["MODEL_FOLDER"], {"no_such_setting": 1}, ConfigError, "no_such_setting"),
        (os.environ["MODEL_FOLDER"], {"window": 10**6}, ConfigError, "1000000"),
        (
            os.environ["MODEL_FOLDER"],
            SETTINGS | {SIZE: 2**10 if ENGINE == "vllm" else 1},
            EngineFailed,
            "did not start",
        ),
    ]
    for source, options, kind, words in cases:
        model = MODEL(source, **options)
        for _ in range(2 if kind is ConfigError else 1):
            with pytest.raises(kind, match=words):
                await model.complete(request())
        await model.aclose()

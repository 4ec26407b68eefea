import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import torch
from tests.models.transformers.policies import PLAIN, forward_logprobs, policy, tokenizer
from transformers import PreTrainedModel
from transformers.generation.continuous_batching.continuous_api import ContinuousBatchingManager

from memagent.errors import ConfigError, ModelError, RequestRefused
from memagent.messages import Sampling
from memagent_engines.transformers.sampler import Sampled
from memagent_train.rollout import continuous
from memagent_train.rollout.continuous import ContinuousSampler


def test_many_requests_that_come_and_go_share_a_batch() -> None:
    model = policy()
    sampler = ContinuousSampler(model, tokenizer(), max_batch=16)
    shared = list(range(100, 400))  # more than a page

    async def talk(who: int) -> list[tuple[list[int], Sampled]]:
        turns = []
        prompt = [*shared, who]
        for turn in range(3):
            one = await sampler.sample(prompt, max_tokens=2 + who % 7, sampling=PLAIN, seed=None)
            turns.append((prompt, one))
            prompt = [*prompt, *one.ids, 1, turn + 3]
        return turns

    async def together() -> list[tuple[list[int], Sampled]]:
        talks = await asyncio.gather(*(talk(who) for who in range(40, 72)))
        return [turn for turns in talks for turn in turns]

    with sampler.generating():
        sampler.meter.read()
        turns = asyncio.run(together())
        reading = sampler.meter.read()
    assert len(turns) == 96
    assert 0 <= reading.idle_share < 1
    for prompt, one in turns[::8]:
        assert one.logprobs == pytest.approx(forward_logprobs(model, prompt, one.ids), abs=1e-4)


def test_an_interrupt_while_the_engine_stops_leaves_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = policy()
    no_end = torch.zeros(2000)
    no_end[2] = -1e9
    model.lm_head.bias = torch.nn.Parameter(no_end)  # pyright: ignore[reportAttributeAccessIssue]
    sampler = ContinuousSampler(model, tokenizer())
    stops: list[Callable[[], object]] = []
    began = threading.Event()

    async def outlive() -> Sampled:
        await sampler.sample([5, 6], max_tokens=1, sampling=PLAIN, seed=None)
        began.set()
        return await sampler.sample([5, 6], max_tokens=900, sampling=PLAIN, seed=None)

    def interrupted(manager: ContinuousBatchingManager, **options: Any) -> None:
        stops.append(partial(stop, manager, **options))
        raise KeyboardInterrupt

    stop = ContinuousBatchingManager.stop
    monkeypatch.setattr(ContinuousBatchingManager, "stop", interrupted)
    with ThreadPoolExecutor() as elsewhere:
        block = ExitStack()
        block.enter_context(sampler.generating())
        left = elsewhere.submit(asyncio.run, outlive())
        assert began.wait(60)
        time.sleep(0.1)
        with pytest.raises(KeyboardInterrupt):
            block.close()
        try:
            with pytest.raises(ModelError):
                left.result(timeout=10)
        finally:
            stops[0]()


def test_a_block_has_one_sampling_and_the_next_may_have_another() -> None:
    sampler = ContinuousSampler(policy(), tokenizer())
    cold = Sampling(temperature=0.0, top_p=1.0)

    async def two(first: Sampling, second: Sampling) -> None:
        await sampler.sample([5], max_tokens=1, sampling=first, seed=None)
        await sampler.sample([5], max_tokens=1, sampling=second, seed=None)

    with sampler.generating(), pytest.raises(RequestRefused, match="a block has one"):
        asyncio.run(two(PLAIN, cold))
    with sampler.generating():
        asyncio.run(two(cold, cold))


def test_a_block_starts_one_engine_though_its_first_caller_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampler = ContinuousSampler(policy(), tokenizer())
    engines: list[object] = []
    began, may = threading.Event(), threading.Event()

    class Late(continuous._Engine):
        def __init__(self, *args: Any) -> None:
            engines.append(self)
            began.set()
            may.wait()
            super().__init__(*args)

    monkeypatch.setattr(continuous, "_Engine", Late)

    async def draw() -> Sampled:
        return await sampler.sample([5], max_tokens=1, sampling=PLAIN, seed=None)

    async def two() -> None:
        first, second = (asyncio.create_task(draw()) for _ in range(2))
        await asyncio.to_thread(began.wait)
        first.cancel()
        asyncio.get_running_loop().call_soon(may.set)
        assert (await second).ids
        assert first.cancelled()

    with sampler.generating():
        asyncio.run(two())
    assert len(engines) == 1


def test_what_transformers_cannot_batch_so_is_refused() -> None:
    model = policy()
    model.set_attn_implementation("flex_attention")
    sampler = ContinuousSampler(model, tokenizer())
    with sampler.generating(), pytest.raises(ConfigError, match="engine='padded'"):
        asyncio.run(sampler.sample([5], max_tokens=1, sampling=PLAIN, seed=None))

    class Other:
        config = model.config
        generation_config = model.generation_config

    other: PreTrainedModel = Other()  # pyright: ignore[reportAssignmentType]
    with pytest.raises(ConfigError, match="engine='padded'"):
        ContinuousSampler(other, tokenizer())

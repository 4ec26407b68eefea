import asyncio
import gc
import threading
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from tests.models.transformers.policies import PLAIN, forward_logprobs, policy, tokenizer

from memagent.errors import ConfigError, DeviceFull
from memagent.messages import Sampling
from memagent_engines.transformers.padded import PaddedSampler
from memagent_engines.transformers.sampler import Sampled

PROMPTS = [list(range(10, 10 + length)) for length in (3, 60, 17, 1)]


def draw(sampler: PaddedSampler, seeds: list[int], **options: Any) -> list[Sampled]:
    async def together() -> list[Sampled]:
        calls = zip(PROMPTS, seeds, strict=False)
        options_ = {"max_tokens": 10, "sampling": PLAIN, **options}
        return await asyncio.gather(*(sampler.sample(p, seed=s, **options_) for p, s in calls))

    with sampler.generating():
        return asyncio.run(together())


def test_what_is_drawn_depends_on_prompt_and_seed_and_not_on_the_batch() -> None:
    together = PaddedSampler(policy(), tokenizer())
    alone = PaddedSampler(policy(), tokenizer(), max_batch=1)
    seeds = [1, 2, 3, 4]
    first = draw(together, seeds)
    assert [one.ids for one in first] == [one.ids for one in draw(alone, seeds)]
    assert [one.ids for one in first] != [one.ids for one in draw(together, [5, 6, 7, 8])]


def test_rows_of_one_batch_have_limits_of_their_own() -> None:
    sampler = PaddedSampler(policy(), tokenizer())

    async def different() -> list[Sampled]:
        limits = (1, 7, 30)
        calls = (sampler.sample([9], max_tokens=n, sampling=PLAIN, seed=n) for n in limits)
        return await asyncio.gather(*calls)

    with sampler.generating():
        assert [len(one.ids) for one in asyncio.run(different())] == [1, 7, 30]


def test_logprobs_with_top_p_are_of_the_whole_vocabulary() -> None:
    model = policy()
    drawn = draw(
        PaddedSampler(model, tokenizer()), [1, 2], sampling=Sampling(temperature=0.7, top_p=0.5)
    )
    for prompt, one in zip(PROMPTS, drawn, strict=False):
        plain = forward_logprobs(model, prompt, one.ids, temperature=0.7)
        assert one.logprobs == pytest.approx(plain, abs=1e-4)


class Small(PaddedSampler):
    """A sampler on a device with room for two rows."""

    rows: list[int]
    most = 2

    def serve(self, batch: Any) -> Any:
        self.rows.append(len(batch))
        if len(batch) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().serve(batch)


def test_out_of_memory_halves_the_batch_and_changes_no_reply() -> None:
    small = Small(policy(), tokenizer())
    small.rows = []
    drawn = draw(small, [1, 2, 3, 4])
    assert small.rows == [4, 2, 2]
    whole = draw(PaddedSampler(policy(), tokenizer()), [1, 2, 3, 4])
    assert [one.ids for one in drawn] == [one.ids for one in whole]


def test_out_of_memory_of_one_row_is_a_typed_error() -> None:
    small = Small(policy(), tokenizer())
    small.rows, small.most = [], 0
    with pytest.raises(DeviceFull, match="smaller window"):
        draw(small, [1])


def test_limits_below_one_are_refused() -> None:
    for limits in ({"max_batch": 0}, {"max_batch_tokens": 0}):
        with pytest.raises(ConfigError, match="must be at least 1"):
            PaddedSampler(policy(), tokenizer(), **limits)


async def test_one_that_is_dropped_ends_without_anybody_waiting_for_it() -> None:
    before = set(threading.enumerate())
    opened = ExitStack()
    opened.enter_context(PaddedSampler(policy(), tokenizer()).generating())
    (thread,) = set(threading.enumerate()) - before
    del opened  # as a model that nobody closes: joining a thread here would be a blocking call
    gc.collect()
    while thread.is_alive():  # noqa: ASYNC110 - a thread sets no event
        await asyncio.sleep(0.01)

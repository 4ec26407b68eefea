"""Padded against continuous batches on this machine: run it as a script, for two minutes."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from typing import Any

import torch
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging

from memagent.messages import Sampling
from memagent_engines.transformers.padded import PaddedSampler
from memagent_train.rollout.continuous import ContinuousSampler

SIZES = {
    # layers, width, vocabulary, conversations, prompt ids, sampled ids
    "(a) 2 x 64, V 100": (2, 64, 100, 64, 40, 10),
    "(b) 4 x 192, V 4096": (4, 192, 4096, 32, 500, 100),
}
ROUNDS = 3
CALLS = 3
"""One after the other in each conversation, in the uneven measurement: of a tenth to all of the sampled ids."""
PLAIN = Sampling(temperature=1.0, top_p=1.0)


class Names:
    """All that a sampler asks of a tokenizer; no reply ends by itself."""

    eos_token_id = 10**6
    pad_token_id = 0


def policy(layers: int, width: int, vocabulary: int) -> Any:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=640,
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig()
    return model


def measure(engine: Any, size: tuple[int, ...]) -> tuple[float, float, float]:
    """Sampled tokens a second in equal and in uneven calls, and seconds to close a block."""
    layers, width, vocabulary, conversations, prompt, sampled = size
    sampler = engine(policy(layers, width, vocabulary), Names(), max_batch=conversations)
    prompts = torch.randint(1, vocabulary, (conversations, prompt)).tolist()
    draw = random.Random(0)
    uneven = [[draw.randint(sampled // 10, sampled) for _ in range(CALLS)] for _ in prompts]

    async def talk(ids: list[int], lengths: list[int]) -> int:
        drawn = [
            await sampler.sample(ids, max_tokens=length, sampling=PLAIN, seed=None)
            for length in lengths
        ]
        return sum(len(one.ids) for one in drawn)

    async def together(calls: list[list[int]]) -> float:
        begun = time.perf_counter()
        drawn = await asyncio.gather(*map(talk, prompts, calls))
        assert sum(drawn) == sum(map(sum, calls))
        return sum(drawn) / (time.perf_counter() - begun)

    with sampler.generating():
        asyncio.run(together([[sampled]] * conversations))
        equal = [asyncio.run(together([[sampled]] * conversations)) for _ in range(ROUNDS)]
        mixed = asyncio.run(together(uneven))
        closing = time.perf_counter()
    return statistics.median(equal), mixed, time.perf_counter() - closing


def main() -> None:
    logging.set_verbosity_error()
    print("| model | engine | tokens/s, equal | tokens/s, uneven | closing a block, s |")
    print("|---|---|---|---|---|")
    for name, size in SIZES.items():
        for engine in (PaddedSampler, ContinuousSampler):
            equal, mixed, closing = measure(engine, size)
            print(f"| {name} | {engine.__name__} | {equal:,.0f} | {mixed:,.0f} | {closing:.2f} |")


if __name__ == "__main__":
    main()

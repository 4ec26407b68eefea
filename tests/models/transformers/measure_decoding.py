"""What `generate` costs beside the passes that it makes: run it as a script, for two minutes."""

# ruff: noqa: N806  (names of tensors end in their dimensions)

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import DynamicCache, GenerationConfig, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from memagent.messages import Sampling
from memagent_engines.transformers.batching import Request
from memagent_engines.transformers.drawing import generation_settings
from memagent_engines.transformers.padded import PaddedSampler

PROMPT, OUTPUT = 700, 40
GREEDY = Sampling(temperature=0)
NEVER = 10**6


class Names:
    """All that a sampler asks of a tokenizer; no reply ends by itself."""

    eos_token_id = NEVER
    pad_token_id = 0


def policy() -> Any:
    """1.25 million weights."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=2048,
        hidden_size=160,
        intermediate_size=320,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=40,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config).eval()
    model.generation_config = GenerationConfig()
    return model


@torch.no_grad()
def bare(model: Any, prompts: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """A loop with a cache and nothing else, for prompts of equal length."""
    fed_BT = torch.tensor(prompts)
    cache, steps = DynamicCache(config=model.config), list[torch.Tensor]()
    logprobs = list[torch.Tensor]()
    for _ in range(OUTPUT):
        out = model(input_ids=fed_BT, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logprobs_BV = torch.log_softmax(out.logits[:, -1].float(), dim=-1)
        fed_BT = logprobs_BV.argmax(-1, keepdim=True)
        logprobs.append(logprobs_BV.gather(-1, fed_BT))
        steps.append(fed_BT)
    return [tuple(row) for row in torch.cat(steps, dim=-1).tolist()]


def seconds(work: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """The fastest of some rounds, in seconds of the processor, and what came of it."""
    times: list[float] = []
    result = work()
    for _ in range(rounds):
        begun = time.process_time()
        result = work()
        times.append(time.process_time() - begun)
    return min(times), result


def main() -> None:
    """Prints a table."""
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    model = policy()
    sampler = PaddedSampler(model, Names())  # pyright: ignore[reportArgumentType]
    print("| batch | generate, s | bare loop, s | ratio |\n|---|---|---|---|")
    for batch in (1, 8, 64):
        prompts = torch.randint(1, 2048, (batch, PROMPT)).tolist()
        requests = [Request(prompt, OUTPUT, GREEDY, None) for prompt in prompts]
        with generation_settings(model, ends=[NEVER], pad=0):
            ours, drawn = seconds(lambda: sampler.serve(requests), 3)  # noqa: B023
        plain, wanted = seconds(lambda: bare(model, prompts), 3)  # noqa: B023
        assert [one.ids for one in drawn] == wanted
        print(f"| {batch} | {ours:.3f} | {plain:.3f} | {ours / plain:.2f} |", flush=True)


if __name__ == "__main__":
    main()

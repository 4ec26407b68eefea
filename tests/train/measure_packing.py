"""Times rows that share a prefix, each by itself or packed into one: `python -m tests.train.measure_packing`.

Forward and backward passes of a Qwen3 with random weights (sdpa, one thread of a CPU). The figures in docs/log.md come
from here.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

ROUNDS = 5
SIZES = (
    # width, layers, vocabulary, prefix, reply, branches, groups
    (64, 2, 128, 200, 30, 2, 8),
    (256, 4, 4096, 900, 100, 2, 2),
    (256, 4, 4096, 900, 100, 3, 2),
    (256, 4, 4096, 200, 60, 2, 8),
)


def model(width: int, layers: int, vocabulary: int) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=layers,
            num_attention_heads=width // 32,
            num_key_value_heads=width // 64,
            head_dim=32,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
        )
    )


def learn(policy: Any, ids: torch.Tensor, prefix: int, **options: Any) -> None:
    """Forward and backward over the log-probabilities behind a prefix."""
    hidden = policy.model(input_ids=ids, use_cache=False, **options).last_hidden_state
    logits = policy.lm_head(hidden[:, prefix - 1 : -1])
    logits.log_softmax(-1)[..., 0].sum().backward()
    policy.zero_grad()


def packed_options(prefix: int, reply: int, branches: int, groups: int) -> dict[str, Any]:
    """Mask and positions with which branches see their prefix and themselves only."""
    length = prefix + branches * reply
    mask = torch.full((length, length), float("-inf")).triu(1)
    positions = torch.arange(length)
    for start in range(prefix, length, reply):
        mask[start : start + reply, prefix:start] = float("-inf")
        positions[start : start + reply] = torch.arange(prefix, prefix + reply)
    return {
        "attention_mask": mask.expand(groups, 1, length, length),
        "position_ids": positions.expand(groups, length),
    }


def seconds(work: Callable[[], None]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    torch.set_num_threads(1)
    for width, layers, vocabulary, prefix, reply, branches, groups in SIZES:
        policy = model(width, layers, vocabulary)
        alone = torch.randint(0, vocabulary, (groups * branches, prefix + reply))
        together = torch.randint(0, vocabulary, (groups, prefix + branches * reply))
        options = packed_options(prefix, reply, branches, groups)
        ratios: list[float] = []
        for _ in range(1 + ROUNDS):
            apart = seconds(lambda: learn(policy, alone, prefix))  # noqa: B023
            ratios.append(apart / seconds(lambda: learn(policy, together, prefix, **options)))  # noqa: B023
        ratios = ratios[1:]  # the first warms up
        weights = sum(p.numel() for p in policy.parameters())
        print(
            f"{weights / 1e6:.1f}M weights, prefix {prefix}, {branches} replies of {reply}: "
            f"raw/unique tokens {alone.numel() / together.numel():.2f}, time ratio "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()

"""Policies for the tests: tiny models with random weights, a real tokenizer, and forward passes to compare with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from memagent.messages import ChatRequest, FinishReason, Message, Sampling
from memagent.tasks import Sample
from memagent_train.rollout.sampler import Sampled
from memagent_train.rollouts import Rollout, Status

FOLDER = Path(__file__).parents[2] / "data" / "tokenizer"
WINDOW = 1024
PLAIN = Sampling(temperature=1.0, top_p=1.0)


def tokenizer(**settings: Any) -> Any:
    """The tests' byte-level tokenizer of 2000 tokens, with its ChatML template."""
    return AutoTokenizer.from_pretrained(FOLDER, **settings)


def policy(seed: int = 0, *, window: int = WINDOW, dropout: float = 0.0) -> PreTrainedModel:
    """A Qwen2 of two layers, 32 wide, in training mode; its own settings of generation are to be ignored."""
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=2000,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=window,
            attention_dropout=dropout,
            initializer_range=0.3,  # logits that differ
        )
    )
    model.generation_config = GenerationConfig(
        eos_token_id=[2], repetition_penalty=1.7, do_sample=True, top_k=3, temperature=0.3
    )
    return model.train()


@torch.no_grad()
def forward_logprobs(
    model: PreTrainedModel, prompt: Sequence[int], sampled: Sequence[int], temperature: float = 1.0
) -> list[float]:
    """Log-probabilities of the sampled ids by one plain forward pass over the whole sequence."""
    training = model.training
    model.eval()
    whole: Any = model
    logits_TV = whole(torch.tensor([[*prompt, *sampled]])).logits[0, len(prompt) - 1 : -1]  # noqa: N806
    model.train(training)
    rows = torch.log_softmax(logits_TV / temperature, dim=-1)
    return rows.gather(-1, torch.tensor(sampled).unsqueeze(-1)).squeeze(-1).tolist()


def request(*texts: str, **fields: Any) -> ChatRequest:
    """User and assistant in turn."""
    roles = ("user", "assistant") * len(texts)
    messages = tuple(Message(role=r, content=t) for r, t in zip(roles, texts, strict=False))
    return ChatRequest.model_validate({"messages": messages, "max_tokens": 8, **fields})


def sample(index: int = 0, context: str = "", question: str = "Who came?") -> Sample:
    text = context or "The prince left for Moscow and nobody was sad about it. " * 30
    return Sample(
        task="test",
        index=index,
        length=4096,
        tokens=400,
        context=text,
        question=question,
        outputs=("the prince",),
        generate=8,
    )


class Echoes:
    """A sampler without a model: draws ids at random, after as many turns of the loop as it is told to."""

    window = WINDOW

    def __init__(self, *, ids: Sequence[int] = range(300, 1900), pause: float = 0.0) -> None:
        self.ids, self.pause = list(ids), pause
        self.prompts: list[tuple[int, ...]] = []
        self.seeds: list[int | None] = []
        self.drawn: list[tuple[int, ...]] = []
        self.samplings: list[Sampling] = []
        self._random = random.Random(7)

    async def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, sampling: Sampling, seed: int | None
    ) -> Sampled:
        import asyncio

        await asyncio.sleep(self.pause)
        self.prompts.append(tuple(prompt_ids))
        self.seeds.append(seed)
        self.samplings.append(sampling)
        length = self._random.randint(2, max(2, max_tokens))
        ids = tuple(self._random.choices(self.ids, k=length))[:max_tokens]
        ended = len(ids) < max_tokens
        ids = (*ids, 2) if ended else ids
        self.drawn.append(ids)
        logprobs = tuple(-self._random.random() for _ in ids)
        return Sampled(ids, logprobs, FinishReason.STOP if ended else FinishReason.LENGTH)

    def generating(self) -> Any:
        from contextlib import nullcontext

        return nullcontext()


class Paid:
    """A verifier that pays every rollout the same."""

    def __init__(self, reward: float = 1.0) -> None:
        self.reward = reward
        self.seen: list[Rollout] = []

    async def verify(self, rollout: Rollout) -> Rollout:
        self.seen.append(rollout)
        return replace(rollout, status=Status.SCORED, reward=self.reward)

"""Policies for the tests: tiny models with random weights, a real tokenizer, and forward passes to compare with."""

from __future__ import annotations

from collections.abc import Sequence
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

from memagent.messages import ChatRequest, Message, Sampling

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

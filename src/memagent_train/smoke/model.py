"""A model small enough to train on a CPU in minutes."""

from __future__ import annotations

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from memagent_train.smoke.tokenizer import END, PAD

WINDOW = 128
"""Maximum number of positions."""
INITIAL = 0.06
"""Initial standard deviation of the weights. With the usual 0.02, 64 dimensions learn to copy a word four times as
slowly."""


def tiny_model(
    tokenizer: PreTrainedTokenizerFast, *, seed: int, window: int = WINDOW
) -> Qwen3ForCausalLM:
    """Makes a Qwen3 with two layers and random weights (about 100,000).

    Args:
        tokenizer: defines the end and padding tokens, and the vocabulary size.
        seed: seed of the weights.
        window: maximum number of positions.
    """
    torch.manual_seed(seed)
    ids = tokenizer.get_vocab()
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=16,
            max_position_embeddings=window,
            tie_word_embeddings=True,
            eos_token_id=ids[END],
            pad_token_id=ids[PAD],
            bos_token_id=None,
            initializer_range=INITIAL,
        )
    )

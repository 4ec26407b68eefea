"""A model with random weights."""

from __future__ import annotations

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from memagent_nano.sizes import HEAD, Size
from memagent_nano.tokenizer import END, PAD

INITIAL = 0.06
"""Initial standard deviation of the weights; see the log: the usual 0.02 learns to copy several times more slowly."""


def new_model(size: Size, tokenizer: PreTrainedTokenizerFast, *, seed: int) -> Qwen3ForCausalLM:
    """Makes a Qwen3 of a size, which vLLM, SGLang and transformers can serve."""
    torch.manual_seed(seed)
    ids = tokenizer.get_vocab()
    heads = size.hidden // HEAD
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=size.hidden,
            intermediate_size=size.feed_forward,
            num_hidden_layers=size.layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            head_dim=HEAD,
            max_position_embeddings=size.window,
            tie_word_embeddings=True,
            eos_token_id=ids[END],
            pad_token_id=ids[PAD],
            bos_token_id=None,
            initializer_range=INITIAL,
        )
    )

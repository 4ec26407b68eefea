"""A model small enough to train on a CPU in minutes."""

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from memagent_train.smoke.tokenizer import END, PAD

WINDOW = 128
"""Maximum number of positions."""
INITIAL = 0.06
"""Initial standard deviation of the weights. With the usual 0.02, 64 dimensions take four times as long to learn to
copy a word."""


def tiny_model(
    tokenizer: PreTrainedTokenizerFast,
    *,
    seed: int,
    window: int = WINDOW,
    layers: int = 2,
    width: int = 64,
) -> Qwen3ForCausalLM:
    """Makes a small Qwen3 with random weights: about 100,000, unless a size is given.

    Args:
        tokenizer: defines the end and padding tokens, and the vocabulary size.
        seed: seed of the weights.
        window: maximum number of positions.
        layers: number of layers.
        width: dimensions of a layer, a multiple of 8.
    """
    torch.manual_seed(seed)
    ids = tokenizer.get_vocab()
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=width // 4,
            max_position_embeddings=window,
            tie_word_embeddings=True,
            eos_token_id=ids[END],
            pad_token_id=ids[PAD],
            bos_token_id=None,
            initializer_range=INITIAL,
        )
    )

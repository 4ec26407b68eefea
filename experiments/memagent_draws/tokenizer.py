"""The language of the draws: the smoke training's words, and those of a tool session."""

from __future__ import annotations

from transformers import PreTrainedTokenizerFast

from memagent_train.smoke.tokenizer import word_tokenizer

CALL = "draw()"
SESSION = (CALL, "->", "play", "read_archived(handle,", "start,", "end)", "1", "2", "3", "4", "5")


def draws_tokenizer() -> PreTrainedTokenizerFast:
    """Makes the tokenizer: one token per word."""
    return word_tokenizer(SESSION)

"""Counts as a tokenizer of transformers does."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from memagent.tokens import TokenizerFile

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def text_counter(tokenizer: PreTrainedTokenizerBase) -> TokenizerFile:
    """The tokenizer as memagent counts with it. Blocks for up to a second: it goes through a file.

    Raises:
        TokenizerError: memagent cannot use the tokenizer.
    """
    with tempfile.TemporaryDirectory(prefix="memagent-") as folder:
        tokenizer.save_pretrained(folder)
        return TokenizerFile(folder)

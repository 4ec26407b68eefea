"""Finds the tokenizer of a served model on this machine."""

from __future__ import annotations

import logging
from os import PathLike
from pathlib import Path

from memagent.errors import TokenizerError
from memagent.tokens import load_counter
from memagent.tokens.base import TokenCounter

logger = logging.getLogger("memagent")

TOKENIZER_FILE = "tokenizer.json"


def local_counter(
    model: str, tokenizer: str | PathLike[str] | TokenCounter | None
) -> TokenCounter | None:
    """The tokenizer that was asked for, else the model's own, else None. Blocks.

    The model's own is looked for where `model` is a folder, and in the local Hugging Face cache; nothing
    is downloaded.

    Args:
        model: the name under which the model is served.
        tokenizer: what `load_counter` takes, None to look for the model's own.

    Raises:
        TokenizerError: `tokenizer` cannot be had.
    """
    if tokenizer is not None:
        return load_counter(tokenizer)
    try:
        folder = Path(model)
        # Another file or folder that happens to have the name of a served model says nothing.
        if folder.exists() and not (folder / TOKENIZER_FILE).is_file():
            return None
        return load_counter(model)
    except (TokenizerError, OSError, ValueError) as error:  # OSError, ValueError: it can be no path
        logger.debug("no tokenizer of %r: %s", model, error)
        return None

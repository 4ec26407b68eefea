"""Finds the token counter of a served model on this machine."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from memagent.errors import TokenizerError
from memagent.tokens import load_counter
from memagent.tokens.base import TokenCounter
from memagent.tokens.byte_bound import ByteBound

logger = logging.getLogger("memagent")

TOKENIZER_FILE = "tokenizer.json"


async def local_counter(model: str, tokenizer: str | None) -> TokenCounter:
    """The tokenizer that was asked for, else the model's own, else a bound that needs none.

    The model's own is looked for where `model` is a folder, and in the local Hugging Face cache; nothing
    is downloaded.

    Args:
        model: the name under which the model is served.
        tokenizer: what `load_counter` takes, None to look for the model's own.

    Raises:
        TokenizerError: `tokenizer` cannot be had.
    """
    return await asyncio.to_thread(_find, model, tokenizer)


def _find(model: str, tokenizer: str | None) -> TokenCounter:
    if tokenizer is not None:
        return load_counter(tokenizer)
    found = _models_own(model)
    if found is not None:
        return found
    logger.warning(
        "no tokenizer of %r lies on this machine: UTF-8 bytes are counted as its tokens, which is safe but "
        "makes about 4x the calls; name its tokenizer (--tokenizer, tokenizer=) to avoid that",
        model,
    )
    return ByteBound()


def _models_own(model: str) -> TokenCounter | None:
    try:
        folder = Path(model)
        # Another file or folder that happens to have the name of a served model says nothing.
        if folder.exists() and not (folder / TOKENIZER_FILE).is_file():
            return None
        return load_counter(model)
    except (TokenizerError, OSError, ValueError) as error:  # OSError, ValueError: it can be no path
        logger.debug("no tokenizer of %r: %s", model, error)
        return None

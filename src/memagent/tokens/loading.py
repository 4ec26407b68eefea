"""Makes a token counter from a user's setting."""

import os
from contextlib import suppress
from os import PathLike, fspath

from memagent.errors import TokenizerError
from memagent.texts import expand
from memagent.tokens.base import TokenCounter
from memagent.tokens.byte_bound import ByteBound
from memagent.tokens.local import TokenizerFile
from memagent.tokens.tik import Tiktoken


def load_counter(spec: str | PathLike[str] | TokenCounter) -> TokenCounter:
    """Makes a token counter. Reads files, never the network.

    Args:
        spec: a path (tokenizer.json, gzipped or not, or a folder that has one), "tiktoken:NAME", "bytes", a model name
            whose tokenizer is in the local Hugging Face cache, or a counter, which is returned unchanged.

    Raises:
        TokenizerError: there is no such tokenizer; the message lists what was looked for.
    """
    if not isinstance(spec, (str, PathLike)):
        return spec
    if spec == "bytes":
        return ByteBound()
    if isinstance(spec, str) and spec.startswith("tiktoken:"):
        return Tiktoken(spec.removeprefix("tiktoken:"))
    path = expand(spec)
    if os.path.exists(path):  # noqa: PTH110 - Path's raises for what can't be a path
        return TokenizerFile(path)
    if isinstance(spec, str):
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        with suppress(HFValidationError):  # not a valid model name
            if isinstance(cached_file := try_to_load_from_cache(spec, "tokenizer.json"), str):
                return TokenizerFile(cached_file)
    raise TokenizerError(
        f"no tokenizer {fspath(spec)!r}: there is no such file or folder, and no tokenizer.json for a model "
        f"of that name in the local Hugging Face cache (nothing is downloaded). Name a tokenizer.json, its "
        f"folder, 'tiktoken:NAME', or 'bytes' for an upper bound that costs about 4x the calls"
    )

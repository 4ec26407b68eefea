"""Counting with tiktoken's encodings (extra `tiktoken`), from its local cache only."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memagent.errors import TokenizerError
from memagent.messages import Message
from memagent.tokens.base import MESSAGE_ALLOWANCE, REQUEST_ALLOWANCE
from memagent.tokens.locality import splits_at_stable_points
from memagent.tokens.measured import ByteMeasured, well_formed

if TYPE_CHECKING:
    from tiktoken import Encoding

_HOST = "https://openaipublic.blob.core.windows.net"
_R50K = f"{_HOST}/encodings/r50k_base.tiktoken"
_P50K = f"{_HOST}/encodings/p50k_base.tiktoken"
_O200K = f"{_HOST}/encodings/o200k_base.tiktoken"
_FILES: dict[str, tuple[str, ...]] = {
    "gpt2": (
        f"{_HOST}/gpt-2/encodings/main/vocab.bpe",
        f"{_HOST}/gpt-2/encodings/main/encoder.json",
    ),
    "r50k_base": (_R50K,),
    "p50k_base": (_P50K,),
    "p50k_edit": (_P50K,),
    "cl100k_base": (f"{_HOST}/encodings/cl100k_base.tiktoken",),
    "o200k_base": (_O200K,),
    "o200k_harmony": (_O200K,),
}
"""The files behind each encoding; tiktoken keeps them under the SHA-1 of their address."""


class Tiktoken:
    """One of tiktoken's encodings. Never downloads: its vocabulary has to be in tiktoken's cache.

    Special tokens in a text are counted as the plain text that they are to the API. Prompt counts are
    upper bounds, since the API's chat template is not published.

    Args:
        encoding: a name such as "o200k_base", or an Encoding that was made elsewhere.

    Raises:
        TokenizerError: tiktoken is not installed, the name is unknown, or its vocabulary is not at hand.
    """

    exact = True

    def __init__(self, encoding: str | Encoding) -> None:
        self._encoding = _load(encoding) if isinstance(encoding, str) else encoding
        self.name = f"tiktoken:{self._encoding.name}"
        self.control_tokens = frozenset(self._encoding.special_tokens_set)
        pattern = getattr(self._encoding, "_pat_str", "")
        # Special tokens are plain text here, so none can reach across a stable point.
        self._reach = 1 if splits_at_stable_points(pattern) else None
        self._lengths = _byte_lengths(self._encoding)

    def count(self, text: str) -> int:
        """Tokens of `text`. Lets other threads run meanwhile."""
        return len(self._encoding.encode_ordinary(well_formed(text)))

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of the contents, plus the allowances for a chat template that is not known."""
        contents = sum(self.count(message.content) + MESSAGE_ALLOWANCE for message in messages)
        return contents + REQUEST_ALLOWANCE

    def measure(self, text: str) -> ByteMeasured:
        """Tokenises `text` once, for cutting."""
        text = well_formed(text)
        ids = self._encoding.encode_ordinary(text)
        return ByteMeasured(
            text, list(map(self._lengths.__getitem__, ids)), self.count, self._reach
        )


def _load(name: str) -> Encoding:
    try:
        import tiktoken
    except ImportError as error:
        raise TokenizerError(
            f"'tiktoken:{name}' needs the tiktoken package: pip install 'memagent[tiktoken]'"
        ) from error
    if name not in _FILES:
        raise TokenizerError(
            f"tiktoken has no encoding {name!r} that is known here; known: {', '.join(_FILES)}"
        )
    folder = _cache_folder()
    for url in _FILES[name]:
        file = folder / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
        if not file.is_file():
            raise TokenizerError(
                f"the vocabulary of 'tiktoken:{name}' is not in {str(folder)!r}, and memagent downloads "
                f'nothing by itself; fetch it once with python -c "import tiktoken; '
                f"tiktoken.get_encoding('{name}')\", or save {url} as {file.name} in a folder that "
                f"TIKTOKEN_CACHE_DIR names"
            )
    try:
        return tiktoken.get_encoding(name)
    except Exception as error:  # a damaged file surfaces as whatever its parser raises
        raise TokenizerError(
            f"the vocabulary of 'tiktoken:{name}' in {str(folder)!r} cannot be read: {error}; "
            f"delete it and fetch it again"
        ) from error


def _cache_folder() -> Path:
    """Where tiktoken keeps its files, found as tiktoken finds it."""
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if os.environ.get(variable):
            return Path(os.environ[variable])
    return Path(tempfile.gettempdir()) / "data-gym-cache"


def _byte_lengths(encoding: Encoding) -> list[int]:
    """Bytes of each id; ids that the vocabulary leaves out never occur."""
    lengths = [0] * encoding.n_vocab
    for i in range(encoding.n_vocab):
        try:
            lengths[i] = len(encoding.decode_single_token_bytes(i))
        except KeyError:
            continue
    return lengths

"""Counts with tiktoken's encodings (extra `tiktoken`), from its local cache only."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from memagent.errors import TokenizerError
from memagent.texts import name_extra, repair_surrogates
from memagent.tokens.byte_bound import prompt_bound
from memagent.tokens.locality import splits_at_stable_points
from memagent.tokens.measured import MeasuredText

if TYPE_CHECKING:
    from tiktoken import Encoding

_HOST = "https://openaipublic.blob.core.windows.net"
_SHA256 = {
    "gpt-2/encodings/main/vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    "gpt-2/encodings/main/encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "encodings/r50k_base.tiktoken": "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
    "encodings/p50k_base.tiktoken": "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
    "encodings/cl100k_base.tiktoken": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "encodings/o200k_base.tiktoken": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}
"""The hashes that tiktoken expects. On a mismatch it would delete the file and download it again."""
_FILES = {
    "gpt2": ("gpt-2/encodings/main/vocab.bpe", "gpt-2/encodings/main/encoder.json"),
    "r50k_base": ("encodings/r50k_base.tiktoken",),
    "p50k_base": ("encodings/p50k_base.tiktoken",),
    "p50k_edit": ("encodings/p50k_base.tiktoken",),
    "cl100k_base": ("encodings/cl100k_base.tiktoken",),
    "o200k_base": ("encodings/o200k_base.tiktoken",),
    "o200k_harmony": ("encodings/o200k_base.tiktoken",),
}
"""The files of each encoding; tiktoken stores them under the SHA-1 of their URL."""


class Tiktoken:
    """One of tiktoken's encodings. Never downloads: its vocabulary must be in tiktoken's cache.

    Special tokens in a text are counted as plain text, as the API does. Prompt counts are
    upper bounds, since the API's chat template is not published.

    Args:
        encoding: a name such as "o200k_base", or an existing Encoding.

    Raises:
        TokenizerError: tiktoken is not installed, the name is unknown, or its vocabulary is not in the cache.
    """

    exact = False
    count_messages = prompt_bound

    def __init__(self, encoding: str | Encoding) -> None:
        self._encoding = _load(encoding) if isinstance(encoding, str) else encoding
        self.name = f"tiktoken:{self._encoding.name}"
        self.control_tokens = frozenset(self._encoding.special_tokens_set)
        # Special tokens are plain text here, so none can reach across a stable point.
        self._local = splits_at_stable_points(getattr(self._encoding, "_pat_str", ""))

    def count(self, text: str) -> int:
        """Counts the tokens of `text`. Lets other threads run meanwhile."""
        return len(self._encoding.encode_ordinary(repair_surrogates(text)))

    def measure(self, text: str) -> MeasuredText:
        """Measures a text, tokenising it only as far as cutting needs."""
        encode = self._encoding.encode_ordinary
        return MeasuredText(repair_surrogates(text), encode, self._cut, local=self._local)

    def _cut(self, text: str, ids: list[int], limit: int) -> int:
        # A character that the last token splits is left out.
        return len(self._encoding.decode(ids[:limit], errors="ignore"))


def _load(name: str) -> Encoding:
    try:
        import tiktoken
    except ImportError as error:
        raise TokenizerError(name_extra(f"'tiktoken:{name}'", "tiktoken")) from error
    if name not in _FILES:
        raise TokenizerError(f"tiktoken has no encoding {name!r}; known: {', '.join(_FILES)}")
    # Looked up the way tiktoken does, so that it doesn't download.
    cache = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    folder = Path(cache) if cache else Path(tempfile.gettempdir()) / "data-gym-cache"
    for part in _FILES[name]:
        url = f"{_HOST}/{part}"
        file = folder / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
        try:
            content = file.read_bytes()
        except OSError as error:
            raise TokenizerError(
                f"the vocabulary of 'tiktoken:{name}' is not in {str(folder)!r}, and memagent doesn't download "
                f'it; fetch it once with python -c "import tiktoken; '
                f"tiktoken.get_encoding('{name}')\", or save {url} as {file.name!r} in a folder that the "
                f"environment variable TIKTOKEN_CACHE_DIR names"
            ) from error
        if hashlib.sha256(content).hexdigest() != _SHA256[part]:
            raise TokenizerError(f"the vocabulary {str(file)!r} is damaged; fetch it again")
    try:
        return tiktoken.get_encoding(name)
    except Exception as error:  # whatever its parser raises
        raise TokenizerError(f"'tiktoken:{name}' cannot be loaded: {error}") from error

"""Counting with tiktoken's encodings (extra `tiktoken`), from its local cache only."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memagent.errors import TokenizerError
from memagent.messages import Message, ToolSpec
from memagent.tokens.bounds import prompt_bound
from memagent.tokens.locality import splits_at_stable_points
from memagent.tokens.measured import MeasuredText, chars_of_bytes, well_formed

if TYPE_CHECKING:
    from tiktoken import Encoding

_HOST = "https://openaipublic.blob.core.windows.net"
_GPT2_MERGES = "gpt-2/encodings/main/vocab.bpe"
_GPT2_NAMES = "gpt-2/encodings/main/encoder.json"
_R50K, _P50K = "encodings/r50k_base.tiktoken", "encodings/p50k_base.tiktoken"
_CL100K, _O200K = "encodings/cl100k_base.tiktoken", "encodings/o200k_base.tiktoken"
_FILES = {
    "gpt2": (_GPT2_MERGES, _GPT2_NAMES),
    "r50k_base": (_R50K,),
    "p50k_base": (_P50K,),
    "p50k_edit": (_P50K,),
    "cl100k_base": (_CL100K,),
    "o200k_base": (_O200K,),
    "o200k_harmony": (_O200K,),
}
"""The files behind each encoding; tiktoken keeps them under the SHA-1 of their address."""
_SHA256 = {
    _GPT2_MERGES: "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    _GPT2_NAMES: "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    _R50K: "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
    _P50K: "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
    _CL100K: "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    _O200K: "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}
"""What tiktoken expects of them. Where they differ it would delete the file and download it again."""


class Tiktoken:
    """One of tiktoken's encodings. Never downloads: its vocabulary has to be in tiktoken's cache.

    Special tokens in a text are counted as the plain text that they are to the API. Prompt counts are
    upper bounds, since the API's chat template is not published.

    Args:
        encoding: a name such as "o200k_base", or an Encoding that was made elsewhere.

    Raises:
        TokenizerError: tiktoken is not installed, the name is unknown, or its vocabulary is not at hand.
    """

    def __init__(self, encoding: str | Encoding) -> None:
        self._encoding = _load(encoding) if isinstance(encoding, str) else encoding
        self.name = f"tiktoken:{self._encoding.name}"
        self.control_tokens = frozenset(self._encoding.special_tokens_set)
        pattern = getattr(self._encoding, "_pat_str", "")
        # Special tokens are plain text here, so none can reach across a stable point.
        self._local = splits_at_stable_points(pattern)
        self._lengths = _byte_lengths(self._encoding)

    def count(self, text: str) -> int:
        """Tokens of `text`. Lets other threads run meanwhile."""
        return len(self._encoding.encode_ordinary(well_formed(text)))

    def count_messages(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> int:
        """Tokens of the contents, plus the allowances for a chat template that is not known."""
        return prompt_bound(self.count, messages, tools)

    def measure(self, text: str) -> MeasuredText:
        """The text, to be tokenised as far as it is cut."""
        encode = self._encoding.encode_ordinary
        return MeasuredText(well_formed(text), encode, self._cut, local=self._local)

    def _cut(self, text: str, ids: list[int], limit: int) -> int:
        return chars_of_bytes(text, sum(map(self._lengths.__getitem__, ids[:limit])))


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
    for part in _FILES[name]:
        _check(name, part)
    try:
        return tiktoken.get_encoding(name)
    except Exception as error:  # whatever its parser raises
        raise TokenizerError(f"'tiktoken:{name}' cannot be loaded: {error}") from error


def _check(name: str, part: str) -> None:
    """Makes sure that tiktoken will find a file, and not download it."""
    url, folder = f"{_HOST}/{part}", _cache_folder()
    file = folder / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
    try:
        content = file.read_bytes()
    except OSError as error:
        raise TokenizerError(
            f"the vocabulary of 'tiktoken:{name}' is not in {str(folder)!r}, and memagent downloads nothing "
            f'by itself; fetch it once with python -c "import tiktoken; '
            f"tiktoken.get_encoding('{name}')\", or save {url} as {file.name!r} in a folder that the "
            f"environment variable TIKTOKEN_CACHE_DIR names"
        ) from error
    if hashlib.sha256(content).hexdigest() != _SHA256[part]:
        raise TokenizerError(
            f"{str(file)!r}, the vocabulary of 'tiktoken:{name}', is damaged; fetch it again"
        )


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

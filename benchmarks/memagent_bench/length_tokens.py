"""The tokenizer that measures lengths: GPT-2's, from this package's files, unless another is given."""

from __future__ import annotations

import gzip
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from memagent.errors import ConfigError
from memagent.tokens import Tiktoken, TokenCounter, load_counter

if TYPE_CHECKING:
    from tiktoken import Encoding

_MERGES = "data/gpt2_merges.txt.gz"
# Published with GPT-2: contractions, then letters, digits or signs with one space before, then white space.
_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
_END_OF_TEXT = "<|endoftext|>"


def length_counter(spec: str | None) -> TokenCounter:
    """Returns the counter that sizes samples.

    Args:
        spec: what `memagent.tokens.load_counter` accepts; None for GPT-2's encoding, which needs no user
            file, cache or network.

    Raises:
        TokenizerError: the tokenizer doesn't exist.
        ConfigError: tiktoken is not installed.
    """
    return _load_shipped() if spec is None else load_counter(spec)


@cache
def _load_shipped() -> Tiktoken:
    return Tiktoken(gpt2())


@cache
def gpt2() -> Encoding:
    """Returns GPT-2's encoding, from the merges that this package ships.

    Raises:
        ConfigError: tiktoken is not installed.
    """
    try:
        from tiktoken import Encoding
    except ImportError as error:
        raise ConfigError(
            "lengths are counted with tiktoken: pip install 'memagent[bench]', or name your own tokenizer"
        ) from error
    packed = resources.files("memagent_bench").joinpath(_MERGES).read_bytes()
    merges = gzip.decompress(packed).decode().splitlines()
    alphabet = byte_alphabet()
    ranks = {bytes([byte]): rank for rank, byte in enumerate(alphabet.values())}
    for merge in merges:
        ranks[bytes(alphabet[sign] for sign in merge.replace(" ", ""))] = len(ranks)
    return Encoding(
        name="gpt2",
        pat_str=_PATTERN,
        mergeable_ranks=ranks,
        special_tokens={_END_OF_TEXT: len(ranks)},
    )


def byte_alphabet() -> dict[str, int]:
    """Returns the character for each byte in byte-level vocabularies, in the order of GPT-2's first 256 ids.

    Printable characters of Latin-1 stand for themselves and come first; the other bytes take the code
    points from 256 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}

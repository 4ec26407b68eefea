"""Lengths as people write them: `8k`, `1m`, `8k,16k,...,4m`."""

from __future__ import annotations

import re

from memagent.errors import ConfigError
from memagent.texts import show_length

K, M = 1024, 1024 * 1024
MAX_LENGTH = 1024 * M
"""Maximum length: samples are kept in memory, and this many tokens are about 4 GB of text."""
_UNITS = {"": 1, "k": K, "m": M}
_DOTS = ("...", "…")


def parse_length(text: str) -> int:
    """Parses a length in tokens: `8192`, `8k` (1024 each) or `4m` (1024 * 1024 each).

    Raises:
        ConfigError: it isn't a positive length, or is too large for a sample.
    """
    match = re.fullmatch(r"([0-9]{1,12})([km]?)", text.strip().lower())
    length = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 0 < length <= MAX_LENGTH:
        raise ConfigError(
            f"{text!r} is not a length in tokens: write a number such as 8192, 8k or 1m, at most "
            f"{show_length(MAX_LENGTH)}"
        )
    return length


def parse_lengths(text: str) -> tuple[int, ...]:
    """Parses comma-separated lengths; `...` doubles the one before it until the one after it.

    Raises:
        ConfigError: a part isn't a length, `...` isn't between a smaller and a larger length, or
            a length is repeated.
    """
    parts = [part.strip() for part in text.split(",")]
    lengths: list[int] = []
    for i, part in enumerate(parts):
        if part not in _DOTS:
            lengths.append(parse_length(part))
            continue
        end = parse_length(parts[i + 1]) if 0 < i < len(parts) - 1 else 0
        if not lengths or end <= lengths[-1]:
            raise ConfigError(
                f"'...' in {text!r} must stand between a length and a larger one, as in 8k,...,128k"
            )
        while lengths[-1] * 2 < end:
            lengths.append(lengths[-1] * 2)
    twice = [length for length in dict.fromkeys(lengths) if lengths.count(length) > 1]
    if twice:
        raise ConfigError(f"{text!r} names {show_length(twice[0])} more than once")
    return tuple(lengths)

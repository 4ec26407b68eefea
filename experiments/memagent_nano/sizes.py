"""The two sizes."""

from __future__ import annotations

from dataclasses import dataclass

from memagent.errors import ConfigError
from memagent_bench.notes.vocabulary import Vocabulary


@dataclass(frozen=True)
class Size:
    """A model, the window that it reads through, and the words of its documents."""

    name: str
    vocabulary: int
    """Number of tokens, including all bytes."""
    hidden: int
    feed_forward: int
    layers: int
    window: int
    """Tokens of prompt plus output."""
    chunk_tokens: int
    memory_tokens: int
    entries: int
    """Maximum entries of a memory: with more it might be cut."""
    kept: int
    """Maximum entries that an expert keeps: fewer than the notes in all but the shortest training documents, so that
        it matters what is worth keeping."""
    syllables: int
    digits: int
    lengths: tuple[int, ...]
    """Lengths of the training documents in GPT-2 tokens: `pico`'s have one to three chunks, `nano`'s three to six."""
    longer: tuple[int, ...]
    """Lengths in stage `shown-long`: up to eight chunks, `nano`'s up to 17."""
    every: int
    """GPT-2 tokens of document per note: about four notes in a chunk of `pico`'s, two in one of `nano`'s."""

    def words(self, *, held_out: bool = False) -> Vocabulary:
        """Returns names and numbers."""
        return Vocabulary(self.syllables, self.digits, held_out=held_out)


PICO = Size(
    name="pico",
    vocabulary=512,
    hidden=96,
    feed_forward=256,
    layers=4,
    window=256,
    chunk_tokens=104,
    memory_tokens=48,
    entries=5,
    kept=3,
    syllables=2,
    digits=2,
    lengths=(96, 112, 128, 160),
    longer=(224, 320, 448),
    every=20,
)
NANO = Size(
    name="nano",
    vocabulary=1024,
    hidden=128,
    feed_forward=384,
    layers=4,
    window=1024,
    chunk_tokens=256,
    memory_tokens=128,
    entries=8,
    kept=3,
    syllables=3,
    digits=4,
    lengths=(400, 500, 600, 800),
    longer=(800, 1600, 2400),
    every=100,
)
SIZES = {size.name: size for size in (PICO, NANO)}
"""Sizes by name."""
HEAD = 32
"""Dimensions of an attention head: the fewest that vLLM serves on a CPU."""


def size_of(name: str) -> Size:
    """Returns the size of that name.

    Raises:
        ConfigError: there is no such size.
    """
    if name not in SIZES:
        raise ConfigError(f"there is no size {name!r}: give one of {', '.join(SIZES)}")
    return SIZES[name]

"""The relay: a value occurs once, at the start of a document, and is asked for at its end."""

import random

from memagent.errors import ConfigError
from memagent.tasks import Evidence, Sample
from memagent_train.smoke.tokenizer import FILLER, KINDS

CHUNK_TOKENS = 32
"""The smallest chunk that `ContextBudget` allows."""
LENGTH = 5 * CHUNK_TOKENS
"""Length of a document, five chunks: a value from the first must be carried over the other four."""
OTHERS = 2
"""Values of other kinds in each chunk: a memory that picks one up has lost the right value."""


class Relay:
    """Documents of filler words and values, with a question about the only one of its kind.

    That value is among the first 32 words; values of other kinds are everywhere.

    Args:
        seed: seed of all samples.
        length: words of a document, a multiple of 32.

    Raises:
        ConfigError: the length is invalid.
    """

    name = "relay"
    scorer = "exact_match"

    def __init__(self, *, seed: int = 0, length: int = LENGTH) -> None:
        if length < CHUNK_TOKENS or length % CHUNK_TOKENS:
            raise ConfigError(f"length must be a multiple of {CHUNK_TOKENS} words, got {length!r}")
        self.seed, self.length = seed, length

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """What the samples depend on."""
        return {"seed": self.seed, "length": self.length, "others": OTHERS}

    def sample(self, index: int) -> Sample:
        """Returns the sample at `index`: the same for the same seed and length."""
        draw = random.Random(f"{self.name}:{self.seed}:{self.length}:{index}")
        kind = draw.choice(list(KINDS))
        value = draw.choice(KINDS[kind])
        words: list[str] = []
        for start in range(0, self.length, CHUNK_TOKENS):
            words += _part(draw, kind, [value] if start == 0 else [])
        context = " ".join(words)
        at = len("".join(f"{word} " for word in words[: words.index(value)]))
        evidence = Evidence(start=at, end=at + len(value), supports=(0,), notes=(value,))
        return Sample(
            task=self.name,
            index=index,
            length=self.length,
            tokens=self.length,
            context=context,
            question=kind,
            outputs=(value,),
            generate=2,
            evidence=(evidence,),
        )


def _part(draw: random.Random, kind: str, values: list[str]) -> list[str]:
    """Returns 32 words in random order: the value, if any, values of other kinds, and filler."""
    others = [word for other in KINDS if other != kind for word in KINDS[other]]
    words = values + draw.choices(others, k=OTHERS)
    words += draw.choices(FILLER, k=CHUNK_TOKENS - len(words))
    draw.shuffle(words)
    return words

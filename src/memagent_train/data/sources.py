"""Where samples come from: the protocol of a source, and what all kinds of them share."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from memagent.tasks import Sample
from memagent_train.data.samples import TrainingSample


class Source(Protocol):
    """Items, each of which makes a sample in every round of training through them. Used by one thread at a time."""

    name: str
    lengths: tuple[int, ...]
    """Tokens that its samples can have; empty where documents are as long as they are."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What its samples depend on, as plain data: the same facts, item and round give the same sample."""
        ...

    def __len__(self) -> int:
        """Items."""
        ...

    def sample(self, item: int, round_: int, length: int | None = None) -> TrainingSample:
        """An item's sample in a round. Blocks.

        Args:
            item: from 0 to before `len`.
            round_: how often the source was gone through before.
            length: tokens; None draws one of `lengths`.

        Raises:
            ConfigError: it cannot be made at that length, or the data have changed.
        """
        ...


@dataclass(frozen=True)
class Asked:
    """A question by itself, for a model that answers it without the document."""

    index: int
    """Place in the source's data."""
    question: str
    references: tuple[str, ...]


class QuestionSource(Source, Protocol):
    """A source of questions about the world."""

    scorer: str
    data: str
    """Digest of all its questions, whichever are left out as known."""

    def read_question(self, item: int) -> Asked:
        """An item's question. Blocks.

        Raises:
            ConfigError: the data have changed.
        """
        ...


def draw_length(lengths: tuple[int, ...], *key: object) -> int:
    """One of the lengths, by chance that is the same for the same key."""
    return Random(":".join(map(str, ("length", *key)))).choice(lengths)


def as_training(sample: Sample, scorer: str) -> TrainingSample:
    """A task's sample with its task's score."""
    if isinstance(sample, TrainingSample):
        return sample if sample.scorer else sample.model_copy(update={"scorer": scorer})
    return TrainingSample(**dict(sample), scorer=scorer)


def digest_of(sample: Sample) -> str:
    """First 16 hex digits of a SHA-256 of what a model sees of a sample, and of its references."""
    after = sample.after + sample.answer_prefix
    texts = [sample.context, sample.question, sample.before, after, *sample.outputs]
    running = hashlib.sha256()
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        running.update(f"{len(raw)}:".encode())
        running.update(raw)
    return running.hexdigest()[:16]

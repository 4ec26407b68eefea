"""Where samples come from: the protocol of a source, and helpers that all kinds share."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from memagent.tasks import Sample
from memagent_train.data.samples import TrainingSample


class Source(Protocol):
    """Items, each of which makes one sample per round of training. Used by one thread at a time."""

    name: str
    lengths: tuple[int, ...]
    """Possible lengths of samples in tokens; empty if documents have a fixed length."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the samples depend on, as plain data: the same facts, item and round give the same sample."""
        ...

    def __len__(self) -> int:
        """Returns the number of items."""
        ...

    def sample(self, item: int, round_: int, length: int | None = None) -> TrainingSample:
        """Returns an item's sample in a round. Blocks.

        Args:
            item: from 0 to `len` - 1.
            round_: number of completed passes through the source.
            length: tokens; None draws one of `lengths`.

        Raises:
            ConfigError: it can't be made at that length, or the data has changed.
        """
        ...


@dataclass(frozen=True)
class BareQuestion:
    """A question without its document."""

    index: int
    """Index in the source's data."""
    question: str
    references: tuple[str, ...]


class QuestionSource(Source, Protocol):
    """A source of questions about the world."""

    scorer: str
    data: str
    """Digest of all the source's questions, including those left out as known."""

    @property
    def digests(self) -> npt.NDArray[np.uint64]:
        """A digest per item: equal for equal questions, in any source. With the document, if it belongs to the item."""
        ...

    def read_question(self, item: int) -> BareQuestion:
        """Reads an item's question. Blocks.

        Raises:
            ConfigError: the data has changed.
        """
        ...


def draw_length(lengths: tuple[int, ...], *key: object) -> int:
    """Draws one of the lengths, pseudo-randomly by key."""
    return Random(":".join(map(str, ("length", *key)))).choice(lengths)


def as_training(sample: Sample, scorer: str) -> TrainingSample:
    """Returns a task's sample with the task's score."""
    if isinstance(sample, TrainingSample):
        return sample if sample.scorer else sample.model_copy(update={"scorer": scorer})
    return TrainingSample(**dict(sample), scorer=scorer)


def digest_of(sample: Sample) -> str:
    """Returns the first 16 hex digits of a SHA-256 of what a model sees of a sample, and of its references."""
    after = sample.after + sample.answer_prefix
    texts = [sample.context, sample.question, sample.before, after, *sample.outputs]
    running = hashlib.sha256()
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        running.update(f"{len(raw)}:".encode())
        running.update(raw)
    return running.hexdigest()[:16]

"""A training's data: sources, mixed by weights, split into training and held-out samples."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from memagent.tokens import TokenCounter
from memagent_bench.fitted import shuffle_range
from memagent_bench.length_tokens import length_counter
from memagent_train.data.games import open_games
from memagent_train.data.generated import open_own, open_ruler, open_tracking
from memagent_train.data.mixing import (
    Indexes,
    counts_of,
    epoch_size,
    order_of,
    weights_of,
    with_each,
)
from memagent_train.data.questions import PlacedQuestions, open_hotpotqa, open_squad
from memagent_train.data.rows import RowSource, open_hub, open_jsonl
from memagent_train.data.samples import TrainingSample
from memagent_train.data.settings import DataSettings
from memagent_train.data.sources import Source
from memagent_train.errors import DataError

logger = logging.getLogger("memagent.train.data")

OPENERS: dict[str, Callable[[Any, TokenCounter, int], Source]] = {
    "game": lambda settings, counter, seed: open_games(settings, seed),
    "ruler": open_ruler,
    "tracking": open_tracking,
    "hotpotqa": open_hotpotqa,
    "squad": open_squad,
    "jsonl": lambda settings, counter, seed: open_jsonl(settings, counter),
    "hub": lambda settings, counter, seed: open_hub(settings, counter),
    "task": lambda settings, counter, seed: open_own(settings, seed),
}
"""Functions that open a source, by its kind, from settings, counter and seed."""
GPT2 = "gpt2"
"""The length tokenizer that comes with the benchmarks."""


@dataclass(frozen=True, eq=False)
class Part:
    """Items of one source."""

    source: Source
    items: Indexes
    weight: float | None
    """The source's share of the samples; None: proportional to its number of items."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Lock of the source, since several parts may take items from it."""


class Data:
    """Samples by index, N per epoch. Thread-safe; each source makes one sample at a time.

    In the first epoch no item is repeated (unless the settings ask for more samples than there are); if an epoch
    takes only a part of a source, the next epoch continues with the rest. When a source is exhausted, a new round
    begins, in another order: generated samples are then new, and gold paragraphs are in other places.

    Args:
        parts: the items of each source.
        size: N; None: as many as there are without repetition.
        seed: seed of the order.
        length: length of all samples, in tokens; None: the sources' lengths.
        facts: what the sources depend on.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        size: int | None,
        seed: int,
        facts: Mapping[str, Any],
        length: int | None = None,
    ) -> None:
        self._parts, self._asked, self._seed, self._length = tuple(parts), size, seed, length
        self._facts = dict(facts)
        self._shares = _shares(parts)
        self._size = size or epoch_size([len(part.items) for part in parts], self._shares)
        self._counts = with_each(counts_of(self._size, self._shares))
        self._sources_N, self._numbers_N = order_of(self._counts, seed)
        self._round = lru_cache(maxsize=2 * len(parts))(self._shuffle)

    @property
    def name(self) -> str:
        """Names of all sources."""
        return ", ".join(part.source.name for part in self._parts)

    @property
    def facts(self) -> dict[str, Any]:
        """What the samples depend on, as JSON values: unchanged after being read back from a file."""
        facts = {**self._facts, "size": self._size, "length": self._length, "seed": self._seed}
        return json.loads(json.dumps(facts, default=str))

    def __len__(self) -> int:
        """Returns N."""
        return self._size

    def __repr__(self) -> str:
        return f"Data({self.name!r}, {len(self)} samples)"

    def sample(self, index: int, epoch: int = 0) -> TrainingSample:
        """Returns one sample: the same for an index and epoch, in any order and process. Blocks.

        Args:
            index: from 0 to N - 1.
            epoch: from 0.

        Raises:
            IndexError: there is no such index or epoch.
            ConfigError: the data has changed, or a length is too short for this sample.
        """
        if not 0 <= index < self._size or epoch < 0:
            raise IndexError(
                f"no sample {index!r} in epoch {epoch!r}: there are {self._size}, numbered from 0"
            )
        place = int(self._sources_N[index])
        part, start = self._parts[place], epoch * self._counts[place]
        round_, number = divmod(start + int(self._numbers_N[index]), len(part.items))
        with part.lock:
            item = int(self._round(place, round_)[number])
            return part.source.sample(item, round_, self._length if part.source.lengths else None)

    def split(self, held_out: int) -> tuple[Data, Data]:
        """Splits the items into training and held-out data.

        Args:
            held_out: number of held-out items, divided among the sources by their shares. Another number holds out
                other items: those trained on after one split may be held out by another.

        Returns:
            The data to train on, with the rest of the items except those that another source holds out, and the
            held-out ones, one epoch of `held_out` samples.

        Raises:
            DataError: there aren't that many, a source would be left with none, or two have the same questions.
        """
        if held_out < 1:
            raise DataError(f"held_out must be at least 1, got {held_out!r}")
        names: dict[object, str] = {}
        for part in self._parts:
            name, digest = part.source.name, part.source.facts.get("digest")
            if digest and names.setdefault(digest, name) != name:
                raise DataError(
                    f"the sources {names[digest]!r} and {name!r} have the same questions, so those held out of one "
                    f"would be trained on in the other: make them one (lengths that it lists twice are drawn twice as "
                    f"often)"
                )
        trained: list[Part] = []
        held: list[Part] = []
        for part, count in zip(self._parts, counts_of(held_out, self._shares), strict=True):
            if count >= len(part.items):
                raise DataError(
                    f"{count} samples of {part.source.name!r} would be held out, but it has only {len(part.items)}: "
                    f"hold out fewer than {held_out}, or give more data"
                )
            order = shuffle_range(
                len(part.items), Random(f"{self._seed}:held out:{part.source.name}")
            )
            trained.append(replace(part, items=part.items[order[count:]]))
            if count:  # each once, so that they already have the requested shares
                held.append(replace(part, items=part.items[order[:count]], weight=None))
        kept = _without(trained, held)
        removed = sum(len(part.items) for part in trained) - sum(len(part.items) for part in kept)
        facts = {"held_out_elsewhere": removed} if removed else {}
        return (
            self._of(kept, size=self._asked, part=f"all but {held_out}", **facts),
            self._of(held, size=None, part=f"{held_out} held out"),
        )

    def at(self, length: int) -> Data:
        """Returns the same items at another length, for evaluations, without sources of fixed-length documents.

        Args:
            length: tokens of every sample.

        Raises:
            ConfigError: no source can vary its length, or one can't reach this length.
            DocumentError: a file that this length needs is unusable.
        """
        parts = [part for part in self._parts if part.source.lengths]
        if not parts:
            raise DataError(
                f"the documents of {self.name!r} have fixed lengths: they are not available at {length!r} tokens"
            )
        for part in parts:
            with part.lock:
                part.source.sample(int(part.items[0]), 0, length)
        return self._of(parts, size=None, length=length)

    def _of(
        self,
        parts: Sequence[Part],
        *,
        size: int | None,
        length: int | None = None,
        **facts: str | int,
    ) -> Data:
        return Data(
            parts,
            size=size,
            seed=self._seed,
            length=length or self._length,
            facts={**self._facts, **facts},
        )

    def _shuffle(self, place: int, round_: int) -> Indexes:
        """Returns the items of a part in the order of one round."""
        part = self._parts[place]
        order = shuffle_range(len(part.items), Random(f"{self._seed}:{part.source.name}:{round_}"))
        return part.items[order]


def open_data(settings: DataSettings, *, counter: TokenCounter) -> Data:
    """Opens the sources of a training. Blocks: reads files and makes the first samples.

    Args:
        settings: the section `[data]`.
        counter: counts tokens as the policy does.

    Raises:
        ConfigError: a source's settings are wrong or incomplete; a `DataError` if its data is.
        DocumentError: a file of paragraphs or essays is unusable.
    """
    places = range(len(settings.source))
    sources = [open_source(settings, place, counter=counter) for place in places]
    described = [
        {"kind": section.kind, "name": source.name, "weight": section.weight, **source.facts}
        for section, source in zip(settings.source, sources, strict=True)
    ]
    parts = [
        Part(source, np.arange(len(source)), section.weight)
        for section, source in zip(settings.source, sources, strict=True)
    ]
    tokenizer = _lengths_by(settings, counter).name
    facts = {"sources": described, "length_tokenizer": tokenizer}
    return Data(parts, size=settings.size, seed=settings.seed, facts=facts)


def open_source(settings: DataSettings, place: int, *, counter: TokenCounter) -> Source:
    """Opens one source. Raises the errors of `open_data`.

    Args:
        settings: the section `[data]`.
        place: index of the source in it.
        counter: counts tokens as the policy does.
    """
    named = [source.name or source.kind for source in settings.source[: place + 1]]
    others = named.count(named[place]) - 1
    name = f"{named[place]}-{others + 1}" if others else named[place]
    source_settings = settings.source[place].model_copy(update={"name": name})
    # A seed per source that no benchmark uses: what is measured there must not have been seen in training.
    digest = hashlib.sha256(f"memagent-train:{settings.seed}:{name}".encode()).digest()
    return OPENERS[source_settings.kind](
        source_settings, _lengths_by(settings, counter), int.from_bytes(digest[:6])
    )


def _lengths_by(settings: DataSettings, counter: TokenCounter) -> TokenCounter:
    spec = settings.length_tokenizer
    if spec is None:
        return counter
    return length_counter(None if spec == GPT2 else spec)


def _without(trained: Sequence[Part], held: Sequence[Part]) -> list[Part]:
    """Returns the parts to train on without the questions that are held out, which may be in several sources.

    Raises:
        DataError: a source would be left with none.
    """
    if len(trained) == 1:
        return list(trained)
    hidden = np.concatenate([np.empty(0, np.uint64), *map(_digests_of, held)])
    parts: list[Part] = []
    for part in trained:
        digests = _digests_of(part)
        keeps = ~np.isin(digests, hidden) if len(digests) else np.full(len(part.items), True)
        if not keeps.any():
            raise DataError(
                f"all samples of {part.source.name!r} that could be trained on are held out of other sources: hold "
                f"out fewer, or leave this source out"
            )
        if removed := int((~keeps).sum()):
            logger.warning(
                "%s: %d samples are held out of another source and are left out of training",
                part.source.name,
                removed,
            )
        parts.append(replace(part, items=part.items[keeps]))
    return parts


def _digests_of(part: Part) -> npt.NDArray[np.uint64]:
    """Returns a digest per item; none for sources that generate their samples, which no other source has."""
    source = part.source
    known = isinstance(source, (RowSource, PlacedQuestions))
    return source.digests[part.items] if known else np.empty(0, np.uint64)


def _shares(parts: Sequence[Part]) -> list[float]:
    return weights_of(
        [part.source.name for part in parts],
        [len(part.items) for part in parts],
        [part.weight for part in parts],
    )

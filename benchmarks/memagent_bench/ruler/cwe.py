"""The most common words of a long numbered list: RULER's first aggregation task."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random

import numpy as np

from memagent.errors import ConfigError
from memagent.tasks import Sample
from memagent.texts import show_length
from memagent.tokens import TokenCounter
from memagent_bench.fitted import FittedTask, Order, objects, shuffle_range
from memagent_bench.numbered import Numbered
from memagent_bench.options import DataOptions
from memagent_bench.ruler.frames import Cwe, load_frames
from memagent_bench.ruler.vocabulary import Vocabulary, english, list_further, wonderwords

GENERATE = 120
"""Tokens that the published protocol allows for the reply."""
COMMON = 10
"""Number of words asked for."""
TIMES = (30, 3)
"""Occurrences of each word asked for, and of each other word."""
EXAMPLE_WORDS = 40
EXAMPLE_TIMES = (10, 3)
LISTS = {"wonderwords": wonderwords, "English": english, "further English": list_further}
"""Word lists by their name in records."""


def times(words: int, common: int, others: int) -> Order:
    """Returns how often each word occurs; the first `COMMON` are those asked for."""
    return np.repeat(np.array([common, others]), [COMMON, words - COMMON])


@dataclass(frozen=True)
class Part:
    """The words of one list in a sample."""

    words: str
    """Name in `LISTS`."""
    vocabulary: Vocabulary
    costs: Order
    """Tokens of each word, the same in all samples of a length."""


class CweTask(FittedTask):
    """Samples of the numbered list at one length.

    As in RULER, words come from wonderwords' 8,169 if these suffice, otherwise all from a list of English words.
    English words take more tokens, so in a range of lengths (around 128K) fewer of them would fit: there samples
    have all of wonderwords' words and are shorter than the length, as in RULER. Nested samples take English words
    only after wonderwords' are used up. Samples of a length differ in their words, but neither in the number of
    words nor in tokens.

    Raises:
        ConfigError: the wording is unusable, or wonderwords is not installed.
    """

    def __init__(self, length: int, options: DataOptions) -> None:
        super().__init__("cwe", "string_match_all", length, options)
        self._frames = load_frames(options.frames)
        self._frame = self._frames.table(Cwe)
        self._numbered = _number_items(self._frame.item, self._frame.between, options.counter)
        self._fits: dict[int, list[Part]] = {}

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """See `Task`."""
        parts = self._fit(self._length)
        return {
            **super().facts,
            "haystack": ", then ".join(
                f"{len(part.costs)} words of {part.words}" for part in parts
            ),
            "wording": self._frames.wording,
        }

    def _make(self, index: int, limit: int) -> Sample:
        parts = self._fit(limit)
        rng = self._rng("words", index)
        before = self._example(rng, index) + self._fill(self._frame.before)
        after, prefix = self._fill(self._frame.after), self._fill(self._frame.answer_prefix)
        drawn = [p.vocabulary.words[p.vocabulary.draw(p.costs, rng)] for p in parts]
        # Recreated, they are adjacent in memory: 2 to 3 ms less of 50 for a text of a million tokens.
        words = objects("\n".join(np.concatenate(drawn).tolist()).split("\n"))
        often = times(len(words), *TIMES)
        places = np.repeat(np.arange(len(words)), often)
        entries = words[places[self._arrangement(len(places), index)]]
        tokens = self._around(before, after + prefix) + GENERATE + self._numbered.more(len(entries))
        tokens += int(np.concatenate([part.costs for part in parts]) @ often)
        return Sample(
            task=self.name,
            index=index,
            length=self._length,
            tokens=tokens,
            context=self._numbered.text(entries),
            question=self._fill(self._frame.question),
            outputs=tuple(words[:COMMON].tolist()),
            generate=GENERATE,
            before=before,
            after=after,
            answer_prefix=prefix,
        )

    def _fit(self, limit: int) -> list[Part]:
        """Returns as many words as fit."""
        if limit not in self._fits:
            example = self._example(self._rng("words", 0), 0)
            before, after = self._fill(self._frame.before), self._fill(self._after)
            around = self._around(example + before, after) + GENERATE
            self._fits[limit] = self._search(limit - around)
        return self._fits[limit]

    def _search(self, room: int) -> list[Part]:
        beyond = ("wonderwords", "further English") if self._options.nested else ("English",)
        best: list[Part] = []
        for names in (("wonderwords",), beyond):
            rng = self._rng("pattern")
            parts: list[Part] = []
            for name in names:
                words = _vocabulary(name, self._numbered)
                parts.append(Part(name, words, words.costs[shuffle_range(len(words), rng)]))
            costs = np.concatenate([part.costs for part in parts])
            count = self._count_fitting(costs, room)
            if count <= sum(len(part.costs) for part in best):
                return best
            last = count - sum(len(part.costs) for part in parts[:-1])
            best = [*parts[:-1], replace(parts[-1], costs=parts[-1].costs[:last])]
            if count < len(costs):
                return best
        raise ConfigError(
            f"{show_length(self._length)} tokens of cwe would need more different words than there are "
            f"({len(english())} English ones): give a shorter length"
        )

    def _count_fitting(self, costs: Order, room: int) -> int:
        """Counts how many words fit, given the cost of each."""
        sums = np.cumsum(costs * times(len(costs), *TIMES))

        def tokens(words: int) -> int:
            entries = int(times(words, *TIMES).sum())
            return int(sums[words - 1]) + self._numbered.more(entries)

        if tokens(COMMON) > room:
            raise self._too_short(0, self._length - room + tokens(COMMON))
        count = int(np.searchsorted(sums, room, side="right"))
        return bisect_right(range(count + 1), room, lo=COMMON, key=tokens) - 1

    def _around(self, before: str, after: str) -> int:
        """Returns the tokens around the list, including where they meet it."""
        item = self._numbered.item(1, "word")
        return self._count(before + item + after) - self._numbered.cost("word")

    def _example(self, rng: Random, index: int) -> str:
        """Returns a whole prompt with its reply, to precede the sample's own; its tokens are the same in each."""
        vocabulary = _vocabulary("wonderwords", self._numbered)
        pattern = shuffle_range(len(vocabulary), self._rng("example pattern"))[:EXAMPLE_WORDS]
        words = vocabulary.words[vocabulary.draw(vocabulary.costs[pattern], rng)]
        entries = np.repeat(words, times(EXAMPLE_WORDS, *EXAMPLE_TIMES))
        entries = entries[shuffle_range(len(entries), self._places_rng("example order", index))]
        before, after = self._fill(self._frame.before), self._fill(self._after)
        reply = self._frame.answer.format(items=self._numbered.text(words[:COMMON]))
        return before + self._numbered.text(entries) + after + reply

    @property
    def _after(self) -> str:
        return self._frame.after + self._frame.answer_prefix

    def _fill(self, template: str) -> str:
        return template.format(count=COMMON)


@lru_cache(maxsize=2)
def _number_items(item: str, between: str, counter: TokenCounter) -> Numbered:
    if item.format(rank=1, word="\0").count("\0") != 1:
        raise ConfigError(
            f"an item of cwe must show {{word}} exactly once, got {item!r} in the wording"
        )
    return Numbered(lambda rank, word: item.format(rank=rank, word=word), between, counter)


@lru_cache(maxsize=3)
def _vocabulary(name: str, numbered: Numbered) -> Vocabulary:
    """Cached: counting English takes seconds, and all lengths share it."""
    return Vocabulary(LISTS[name](), numbered.cost)

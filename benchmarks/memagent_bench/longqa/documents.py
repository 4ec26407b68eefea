"""Paragraphs as numbered documents, each counted once."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache

import numpy as np

from memagent.tokens import TokenCounter
from memagent_bench.fitted import Order
from memagent_bench.longqa.data import Collection
from memagent_bench.numbered import Numbered

_ANY = "word"
MOST_NAMING = 0.01
"""Share of the tokens set aside for paragraphs that name a gold title. Of 300 HotpotQA questions among 16,827
paragraphs, none had more than 0.003."""


class Documents:
    """Paragraphs of a collection, then further ones; indexes are the collection's, and go on to the further ones.

    Args:
        collection: the collection whose questions are asked.
        further: paragraphs of other data; those in the collection too are left out.
        titled: documents show the title of their paragraph on a line of its own.
        form: template of a document, with `{number}` and `{text}`.
        between: separator of documents.
        counter: the counter of lengths.
    """

    def __init__(
        self,
        collection: Collection,
        further: Collection | None,
        titled: bool,
        form: str,
        between: str,
        counter: TokenCounter,
    ) -> None:
        texts = {" ".join(p.text.split()) for p in collection.paragraphs}
        others = further.paragraphs if further else ()
        new = [p for p in others if " ".join(p.text.split()) not in texts]
        paragraphs = [*collection.paragraphs, *new]
        self.own = len(collection.paragraphs)
        self.titles = [p.title for p in paragraphs]
        self.texts = [f"{p.title}\n{p.text}" if titled else p.text for p in paragraphs]
        self._form, self._between, self._count = form, between, counter.count
        self._numbered = Numbered(self._document, between, counter)
        self._any = self._document(1, _ANY)
        after = self._count(self._any)
        costs = (
            self._count(self._document(1, text) + between + self._any) - after
            for text in self.texts
        )
        self.costs = np.fromiter(costs, dtype=np.int64, count=len(paragraphs))

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def tokens(self) -> int:
        """Tokens of all documents together."""
        return self.tokens_of(np.arange(len(self)))

    @property
    def longest(self) -> int:
        """Tokens that every sample can have without repeated paragraphs, or any that has or names a gold title."""
        by_title: dict[str, int] = {}
        for title, cost in zip(self.titles, self.costs.tolist(), strict=True):
            by_title[title] = by_title.get(title, 0) + cost
        return int(self.tokens * (1 - MOST_NAMING)) - max(by_title.values())

    def tokens_of(self, order: Order) -> int:
        """Returns the tokens of these documents by themselves."""
        return int(self.costs[order].sum()) + self._numbered.more(len(order))

    def find_titled(self, title: str) -> list[int]:
        """Returns the documents of paragraphs with that title."""
        return [i for i, other in enumerate(self.titles) if other == title]

    def find_naming(self, phrase: str) -> list[int]:
        """Returns the documents that contain the phrase, as whole words."""
        candidates = [i for i, text in enumerate(self.texts) if phrase in text]
        pattern = re.compile(rf"(?<!\w){re.escape(phrase)}(?!\w)")
        return [i for i in candidates if pattern.search(self.texts[i])]

    def within(self, order: Order, room: int) -> int:
        """Returns how many of these documents, from the first on, fit in `room` tokens."""
        sums = np.cumsum(self.costs[order])
        count = int(np.searchsorted(sums, room, side="right"))
        return bisect_right(
            range(1, count + 1), room, key=lambda n: int(sums[n - 1]) + self._numbered.more(n)
        )

    def prompt_tokens(self, before: str, order: Order, after: str) -> int:
        """Returns the tokens of these documents (at least one) with the text around them."""
        last = int(order[-1])
        start = self._count(before + self._any) - self._count(self._any)
        end = self._count(self._document(1, self.texts[last]) + after) - int(self.costs[last])
        return start + self.tokens_of(order) + end

    def text(self, order: Order, gold: AbstractSet[int]) -> tuple[str, dict[int, tuple[int, int]]]:
        """Returns the documents, numbered from 1, and the spans of the paragraphs of `gold` in them."""
        parts: list[str] = []
        spans: dict[int, tuple[int, int]] = {}
        chars = 0
        indexes: list[int] = order.tolist()
        for number, i in enumerate(indexes, start=1):
            part = self._document(number, self.texts[i])
            if i in gold:
                start = chars + part.index(self.texts[i])
                spans[i] = (start, start + len(self.texts[i]))
            parts.append(part)
            chars += len(part) + len(self._between)
        return self._between.join(parts), spans

    def _document(self, number: int, text: str) -> str:
        return self._form.format(number=number, text=text)


documents = lru_cache(maxsize=4)(Documents)
"""Cached, since counting takes a second per million tokens and all lengths share it."""


def rounds(tokens: int, documents: Documents) -> int:
    """Returns how often a text of this length goes through the documents; 1 if none is repeated."""
    return max(1, -(-tokens // documents.tokens))


def places(shares: Mapping[int, float], gold: Order, others: Order) -> Order:
    """Returns the order of all documents: those that have a share stand after that share of the rest.

    Args:
        shares: shares of all gold documents, and of others that may be missing from `others`.
        gold: documents that are not among the others.
        others: the other documents; those without a share stand in this order.
    """
    positions = {i: np.flatnonzero(others == i)[:1] for i in shares.keys() - set(gold.tolist())}
    remainder = np.delete(
        others, np.concatenate([*positions.values(), np.empty(0, dtype=np.int64)])
    )
    placed = [i for i in shares if i not in positions or len(positions[i])]
    pairs = [(int(shares[i] * (len(remainder) + 1)), i) for i in placed]
    pairs.sort(key=lambda pair: pair[0])
    return np.insert(remainder, [place for place, _ in pairs], [i for _, i in pairs])

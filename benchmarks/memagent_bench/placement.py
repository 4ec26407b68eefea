"""Texts placed among units of filler, before they are joined into one document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """Where each text goes. At least one text and one unit."""

    units: Sequence[str]
    texts: Sequence[str]
    cuts: Sequence[int]
    """For each text, the number of units before it, ascending."""

    @property
    def first(self) -> str:
        """The document's first unit or text."""
        return self.units[0] if self.cuts[0] > 0 else self.texts[0]

    @property
    def last(self) -> str:
        """The document's last unit or text."""
        return self.units[-1] if self.cuts[-1] < len(self.units) else self.texts[-1]

    def join(self, joiner: str) -> tuple[str, list[tuple[int, int]]]:
        """Returns the document, and the span of each text (first character, one past the last)."""
        parts: list[str] = []
        spans: list[tuple[int, int]] = []
        start = at = 0
        for cut, text in zip(self.cuts, self.texts, strict=True):
            if start < cut:
                parts.append(joiner.join(self.units[start:cut]))
                at += len(parts[-1]) + len(joiner)
                start = cut
            spans.append((at, at + len(text)))
            parts.append(text)
            at += len(text) + len(joiner)
        if start < len(self.units):
            parts.append(joiner.join(self.units[start:]))
        return joiner.join(parts), spans

"""A book of a few sentences, and what counts its words."""

from collections.abc import Sequence
from pathlib import Path

from memagent.messages import Message
from memagent.tasks import Sample
from memagent_bench.options import DataOptions

SENTENCES = [
    f"The prince rode on, for the {number} time, towards a house that nobody else could see."
    for number in ("first", "second", "third", "fourth", "fifth")
]
"""Round and round: the solvers see nothing of it, and no sentence has a digit."""


class Words:
    """Counts words: exact for sums of sentences."""

    name = "words"
    control_tokens: frozenset[str] = frozenset()

    def count(self, text: str) -> int:
        return len(text.split())

    def count_messages(
        self, messages: Sequence[Message], *, thinking: bool | None = None, tools: object = ()
    ) -> int:
        raise NotImplementedError

    def measure(self, text: str) -> "Words":
        raise NotImplementedError


def book_options(folder: Path) -> DataOptions:
    """Samples with the book as their filler, in words."""
    book = folder / "book.txt"
    book.write_text("\n\n".join(" ".join(SENTENCES) for _ in range(40)), encoding="utf-8")
    return DataOptions(counter=Words(), essays=(book,))  # pyright: ignore[reportArgumentType]


def own(sample: Sample) -> str:
    """The facts of a sample, without the filler, in their order."""
    text = sample.context
    for sentence in SENTENCES:
        text = text.replace(sentence, "")
    return " ".join(text.split())

"""How well quotes find the sentences that an answer rests on: HotpotQA's supporting sentences, reworded.

Usage: python -m memagent_bench.quoting FILE [--questions N] [--write docs/benchmarks.md]

FILE is in HotpotQA's distractor form, with supporting facts. The paragraphs of N questions are one document. The notes
are its supporting sentences, with a share of their words replaced by words of other sentences, and as many sentences of
paragraphs that aren't in the document.
"""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path
from typing import Any

from memagent.documents import open_document
from memagent.quotes import Quote, align, split
from memagent.tasks.origin import machine
from memagent.threads import run_sync
from memagent_bench.longqa.forms import content
from memagent_bench.perf.measure import markdown, page_parser, show

SHARES = (0.0, 0.2, 0.4)
"""Shares of the words that are replaced."""
SEED = 0


def supporting(questions: list[dict[str, Any]]) -> list[str]:
    """Returns the distinct supporting sentences."""
    texts: list[str] = []
    for question in questions:
        paragraphs: dict[str, list[str]] = dict(question["context"])
        for title, number in question["supporting_facts"]:
            sentences: list[str] = paragraphs.get(title) or []
            texts += sentences[number : number + 1]  # some facts don't point to a sentence
    return [sentence for sentence in dict.fromkeys(map(str.strip, texts)) if sentence]


def document(questions: list[dict[str, Any]]) -> str:
    """Returns all their paragraphs, each once."""
    texts = ("".join(sentences) for question in questions for _, sentences in question["context"])
    return "\n\n".join(dict.fromkeys(texts))


def reword(sentence: str, share: float, words: list[str], draw: random.Random) -> str:
    """Returns the sentence with a share of its words replaced."""
    return " ".join(
        draw.choice(words) if draw.random() < share else word for word in sentence.split()
    )


def is_right(quote: Quote, wanted: str) -> bool:
    """Returns whether a quote and the sentence it should find contain one another: splitters differ at `Mr.`"""
    passage, wanted = (" ".join(text.split()) for text in (quote.text, wanted))
    return bool(passage) and (passage in wanted or wanted in passage)


def measure(questions: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Returns the table's lines, for the first half of the questions; the second half provides absent sentences."""
    half = len(questions) // 2
    text = document(questions[:half])
    wanted = supporting(questions[:half])
    absent = [sentence for sentence in supporting(questions[half:]) if sentence not in text]
    words, lines = text.split(), list[tuple[str, ...]]()
    for share in SHARES:
        draw = random.Random(f"{SEED}-{share}")
        quotes, others = (
            _quote(text, [reword(sentence, share, words, draw) for sentence in sentences])
            for sentences in (wanted, absent)
        )
        pairs = [(q, s) for q, s in zip(quotes, wanted, strict=True) if q.text]
        right, false = sum(is_right(*pair) for pair in pairs), sum(bool(q.text) for q in others)
        lines.append(
            (
                f"{share:.0%}",
                f"{right / max(1, len(pairs)):.3f}",
                f"{right / len(wanted):.3f}",
                f"{false / len(absent):.3f}",
                f"{len(wanted)} + {len(absent)}",
            )
        )
    return lines


def _quote(text: str, notes: list[str]) -> list[Quote]:
    """Returns the best quote of each note, which may be split into several sentences."""
    quotes = iter(run_sync(align(open_document(text, name="paragraphs"), notes)))
    sizes = [len({part.strip() for part in split(note)} - {""}) for note in notes]
    groups = [list(islice(quotes, size)) for size in sizes]
    return [max(group, key=lambda quote: (quote.score, len(quote.sentence))) for group in groups]


def main() -> None:
    """Measures, prints the table, and writes it into a page if one is given."""
    parser = page_parser(__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--questions", type=int, default=200)
    arguments = parser.parse_args()
    questions = json.loads(content(arguments.file))
    head = ("words replaced", "precision", "recall", "found, but not there", "n")
    table = markdown([head, *measure(questions[: arguments.questions])])
    show(f"{machine()}\n\n{table}\n", "python -m memagent_bench.quoting", arguments.write)


if __name__ == "__main__":
    main()

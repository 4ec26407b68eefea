"""Keeps translated phrases out of documentation, docstrings and messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PHRASES = {
    r"\bso many\b": "N, or as many as needed",
    r"\b(goes|going|gone) on\b(?! to\b)|\bgo on with\b": "continues, resumes",
    r"\b(is|are|was|were) through\b": "is finished",
    r"\bone's own\b": "your own, custom",
    r"(?<!there )\b(is|are) no (?!longer\b|more\b|less\b|fewer\b)\w": "is not a, must be a",
    r"\bas (it|they) (was|were)\b(?! (\w+ed|sent|made|written|drawn)\b)": "unchanged",
    r"\bsays? nothing\b(?! about\b)": "doesn't report it",
    r"\bwhat counts\b": "what matters",
    r"\bwhat people use instead\b": "the usual alternatives",
    r"\bthe price is that\b": "the trade-off:",
    r"\bof any length with a language model whose window\b": "lets a small-context model read",
    r"\bonce more without a call\b": "prints the stored answer",
    r"\bhas 0\.\d+ of the \w+ right\b": "raised accuracy from A to B",
    r"\bhalf (a|of a) surrogate pair\b": "a lone surrogate",
    r"\bcannot be had\b": "can't be loaded, isn't available",
}
"""What a translator would write, and what to write instead."""
HISTORY = ("docs/adr/", "docs/log.md")
SHOWN_TO_MODELS = (
    "benchmarks/memagent_bench/games/",
    "experiments/memagent_smol/vocabulary.py",
    "experiments/memagent_smol/lessons.py",
    "experiments/memagent_smol/facts.py",
    "src/memagent/session/step.py",
    "src/memagent/tools/protocol.py",
)
"""Texts that models were trained with, or that transcripts repeat."""


def _pages() -> Iterator[tuple[str, str]]:
    for page in [*sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("*.md"))]:
        name = page.relative_to(ROOT).as_posix()
        if not name.startswith(HISTORY):
            yield name, page.read_text(encoding="utf-8")


def _strings() -> Iterator[tuple[str, str]]:
    """The docstrings and string literals of all packages; the parts of an f-string are joined."""
    for folder in ("src", "benchmarks", "experiments"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            name = file.relative_to(ROOT).as_posix()
            if name.startswith(SHOWN_TO_MODELS):
                continue
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
                    yield f"{name}:{node.lineno}", "".join(map(str, parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield f"{name}:{node.lineno}", node.value


def find(text: str) -> list[str]:
    """Each phrase to avoid in a text, with its replacement."""
    words = " ".join(text.split())
    return [
        f"{found[0]!r} in {words[max(0, found.start() - 40) : found.end() + 40]!r}: write {instead!r}"
        for phrase, instead in PHRASES.items()
        for found in re.finditer(phrase, words, re.IGNORECASE)
    ]


def test_texts_are_plain_english() -> None:
    found = [f"{where}: {what}" for where, text in [*_pages(), *_strings()] for what in find(text)]
    assert not found, "\n".join(found)


def test_no_word_stands_twice() -> None:
    twice = re.compile(r"(?<![\w-])([A-Za-z]+)(?:(?: +|\n *)\1)+(?![\w-])")
    prose = [(where, text) for where, text in _strings() if text.count(" ") > 4]
    found = [
        f"{where}: {match[0]!r}"
        for where, text in prose
        for match in twice.finditer(text)
        if match[1] not in ("had", "that")
    ]
    assert not found, "\n".join(found)


def test_phrases_of_a_translator_are_found() -> None:
    for text in (
        "0 is no number of tokens",
        "these are no runs",
        "takes so many tokens",
        "goes on with the run",
        "until it is through",
        "an agent of one's own",
        "the memory stays as it was.",
        "None where the server says nothing",
    ):
        assert find(text), text


def test_plain_sentences_are_not() -> None:
    for text in (
        "there is no file of that name",
        "it is no longer in flight",
        "exactly as it was sent",
        "read through a memory",
    ):
        assert not find(text), text

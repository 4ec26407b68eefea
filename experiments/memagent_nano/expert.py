"""The expert that shows how to write a memory: it reads a chunk's notes as a person would, and keeps some of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Literal

from memagent.errors import ConfigError
from memagent.messages import ChatRequest
from memagent_bench.notes.families import TAUGHT
from memagent_bench.notes.vocabulary import COINS, MASTER, TRAINED
from memagent_bench.tracking.names import CONSONANTS, VOWELS

Keep = Literal["relevant", "random"]
Entry = tuple[str, str]
"""A person, and a number or a master."""
NOTHING = "none"
"""An empty memory, and the answer if a memory doesn't contain it."""


class Expert:
    """Replies to a memory agent's calls; `ScriptedModel` makes a model of it.

    Args:
        keep: `relevant`: what the question asks for, without what is outdated; `random`: whatever the question,
            everything in the order in which it was said, or some of it if that exceeds `entries`.
        entries: maximum entries of a memory.
        syllables: of names.
        seed: seed of what is dropped.
    """

    def __init__(self, keep: Keep, *, entries: int, syllables: int, seed: int = 0) -> None:
        self._keep, self._entries, self._seed = keep, entries, seed
        name = f"[{CONSONANTS.upper()}][{VOWELS}](?:[{CONSONANTS}][{VOWELS}]){{{syllables - 1}}}"
        self._notes = [
            *_patterns(TRAINED.notes[COINS], name, r"\d+"),
            *_patterns(TRAINED.notes[MASTER], name, name),
        ]
        self._questions = {
            kind: _patterns(TRAINED.questions[kind], name) for kind in (COINS, MASTER)
        }

    def __call__(self, request: ChatRequest) -> str:
        """Returns the new memory, or the answer.

        Raises:
            ConfigError: the question belongs to none of the trained families.
        """
        question, memory = request.parts["question"], read_memory(request.parts["memory"])
        if request.kind == "answer":
            return self.answer(question, memory)
        return self.update(question, memory, request.parts["chunk"])

    def update(self, question: str, memory: Sequence[Entry], chunk: str) -> str:
        """Returns the memory after a chunk."""
        entries = list(memory)
        for note in self.notes(chunk):
            if self._keep == "random":
                entries.append(note)
            elif note in self.list_needed(question, [*entries, note]):
                entries = with_entry(entries, note)
        rng = Random(f"{self._seed}:{question}:{chunk}")
        while len(entries) > self._entries:
            entries.pop(rng.randrange(len(entries)))
        return write_memory(entries)

    def answer(self, question: str, memory: Sequence[Entry]) -> str:
        """Returns whose number it is, via whom, and the number, from the memory; or `none`.

        The words of the question come first, so that each word of the answer follows from the one before it.
        """
        kind, who = self._parse_question(question)
        numbers = {name: what for name, what in memory if what.isdigit()}
        masters = {name: what for name, what in memory if not what.isdigit()}
        chain = [who, masters.get(who, "")] if kind == MASTER else [who]
        number = numbers.get(chain[-1])
        return NOTHING if number is None else " ".join([*chain, number])

    def list_needed(self, question: str, entries: Sequence[Entry]) -> list[Entry]:
        """Returns the entries that the answer may depend on, as far as all entries together tell."""
        kind, who = self._parse_question(question)
        if kind == COINS:
            return [entry for entry in entries if entry[0] == who and entry[1].isdigit()]
        masters = [what for name, what in entries if name == who and not what.isdigit()]
        return [
            entry
            for entry in entries
            if (entry[0] == who and not entry[1].isdigit())
            or (entry[0] in masters and entry[1].isdigit())
        ]

    def notes(self, chunk: str) -> list[Entry]:
        """Returns the notes of a chunk in order."""
        matches = [
            (match.start(), (match["who"], match["what"]))
            for pattern in self._notes
            for match in pattern.finditer(chunk)
        ]
        return [note for _, note in sorted(matches)]

    def _parse_question(self, question: str) -> tuple[str, str]:
        """Returns the kind of the question, and the person that it names."""
        for kind, patterns in self._questions.items():
            for pattern in patterns:
                if match := pattern.fullmatch(question):
                    return kind, match["who"]
        raise ConfigError(
            f"{question!r} is not a question that an expert knows: ask one of {', '.join(TAUGHT)} in "
            f"the words of training"
        )


def _patterns(sentences: Sequence[str], who: str, what: str = "") -> list[re.Pattern[str]]:
    """Returns patterns that match the sentences, with the groups `who` and, if present, `what`."""
    patterns: list[re.Pattern[str]] = []
    for sentence in sentences:
        text = re.escape(sentence).replace(r"\{who\}", f"(?P<who>{who})")
        patterns.append(re.compile(text.replace(r"\{what\}", f"(?P<what>{what})")))
    return patterns


def with_entry(entries: Sequence[Entry], new: Entry) -> list[Entry]:
    """Returns the entries with a new one at the end, without those that it makes outdated."""
    who, what = new
    others = [entry for entry in entries if (entry[0], entry[1].isdigit()) != (who, what.isdigit())]
    return [*others, new]


def read_memory(memory: str) -> list[Entry]:
    """Parses the entries of a memory: adjacent words. A line of three, which rewards may teach, has two entries."""
    lines = [line.removeprefix("- ").split() for line in memory.splitlines()]
    return [entry for words in lines for entry in pairwise(words)]


def write_memory(entries: Sequence[Entry]) -> str:
    """Formats a memory: one line per entry."""
    return "\n".join(f"- {who} {what}" for who, what in entries) or NOTHING

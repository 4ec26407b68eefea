"""The notes tasks by name, and how their samples are made."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random

from memagent.errors import ConfigError
from memagent.tasks import Sample
from memagent_bench.notes.families import FAMILIES, TAUGHT, Place, World
from memagent_bench.notes.vocabulary import HELD_OUT, TRAINED, Vocabulary, Wording
from memagent_bench.options import DataOptions, MakeTask
from memagent_bench.tracking.puzzle import Fact, Layout, Puzzle
from memagent_bench.tracking.scattered import ScatteredTask

OTHERS = 8
"""Number of people who are mentioned but not asked about."""
EVERY = 100
"""Tokens of document per note."""
SPARSE = 2000
"""Tokens of document per note, if notes are far apart."""
FEW = 8
"""Notes in a document, if their number doesn't depend on the length."""
GENERATE = 24
"""Tokens allowed for a reply: a number or two, and some words."""
TRIES = 256
"""If the first sentence is too long for a short document, it begins with one of this many sentences after it."""
ROOM = 32
"""Tokens by which the shortest sentence of another sample may be longer."""
MOST = 0.75
"""Share of a document that notes may take on average; the rest is for sentences."""
WORDS = Vocabulary(syllables=3, digits=4)


class NotesTask(ScatteredTask):
    """Notes of people, their coins and masters, among the sentences of books.

    A document has about one note per `every` tokens, so a longer one has more distractors; or `many` notes whatever
    its length, so a longer one only has more sentences of books. If samples are nested, the notes that matter are the
    same in documents of all lengths of an index, at the same relative places, and the other notes of a shorter one are
    among those of a longer one.

    Args:
        family: one of `FAMILIES`.
        length: tokens of a sample, reply included.
        options: the essays are the filler.
        words: names and numbers.
        wording: sentences.
        every: tokens of document per note; a note takes about 15 of GPT-2's.
        many: notes in a document, always including those that an answer needs; 0: as `every` says.
        name: of the task; default the family's. Another name gives other samples.

    Raises:
        ConfigError: there is no such family, `every` is not positive or `many` is negative; and see `essays`.
        DocumentError: see `essays`.
    """

    def __init__(
        self,
        family: str,
        length: int,
        options: DataOptions,
        *,
        words: Vocabulary = WORDS,
        wording: Wording = TRAINED,
        every: int = EVERY,
        many: int = 0,
        name: str | None = None,
    ) -> None:
        if family not in FAMILIES:
            raise ConfigError(f"there is no family {family!r} (known: {', '.join(FAMILIES)})")
        if every < 1:
            raise ConfigError(f"every must be at least 1 ({EVERY} is recommended), got {every!r}")
        if many < 0:
            raise ConfigError(f"many must be at least 0 (0 means every= decides), got {many!r}")
        self._family = FAMILIES[family]
        super().__init__(name or family, self._family.scorer, GENERATE, length, options)
        self._words, self._wording, self._every, self._many = words, wording, every, many

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """See `Task`."""
        words = self._words
        return {
            **super().facts,
            "kind": self._family.label,
            **({"many": self._many} if self._many else {"every": self._every}),
            "syllables": words.syllables,
            "digits": words.digits,
            "names": "held out" if words.held_out else "as in training",
            "sentences": self._wording.label,
        }

    def _make(self, index: int, limit: int) -> Sample:
        seed = f"{self._options.seed} notes {self.name} {index}"
        rng = Random(seed if self._options.nested else f"{seed} {self._length}")
        first, second, *others = self._words.names(2 + OTHERS, rng)
        world = World(self._words, self._wording, (first, second), tuple(others))
        needed, outputs = self._family.make(world, rng)
        question = world.ask(self._family.asks, rng)
        start = 1 + rng.randrange(len(self._filler))
        more = max(0, (self._many or self._length // self._every) - len(needed))
        passing = sorted(self._passing(world, more, rng), key=_share)
        notes = list(heapq.merge(needed, passing, key=_share))
        puzzle = Puzzle([fact for _, fact in notes], "", question, outputs)
        places = tuple(place for place, _ in notes)
        around = ("", f"\n\n{question}\nAnswer:")
        fewest: list[int] = []
        for further in range(TRIES):
            layout = Layout(start + further, places)
            sample = self._scatter(index, limit, puzzle, layout, around)
            if sample.tokens <= limit:
                return sample
            fewest.append(sample.tokens)
        raise self._explain_refusal(index, puzzle.facts, min(fewest))

    def _passing(self, world: World, many: int, rng: Random) -> list[Place]:
        """Draws distractor notes: the first ones are the same whatever their number."""
        return [(rng.random(), world.passing(self._family.asks, rng)) for _ in range(many)]

    def _explain_refusal(self, index: int, facts: Sequence[Fact], tokens: int) -> ConfigError:
        """Explains the remedy if notes and a sentence take this many tokens: a longer document has more notes."""
        if self._many:
            return self._too_short(index, tokens + 2 * ROOM)
        notes = sum(self._filler.cost(fact.text) for fact in facts)
        share = notes / len(facts) / self._every
        if share > MOST:
            least = math.ceil(share * self._every / MOST)
            return ConfigError(
                f"every={self._every!r} leaves no room for sentences: give at least {least}"
            )
        needed = math.ceil((tokens - notes + ROOM) / (1 - share))
        return self._too_short(index, max(tokens + ROOM, needed))


def _share(place: Place) -> float:
    return place[0]


TASKS: dict[str, MakeTask] = {
    **{name: partial(NotesTask, name) for name in FAMILIES},
    **{
        f"{name}_names": partial(
            NotesTask, name, words=replace(WORDS, held_out=True), name=f"{name}_names"
        )
        for name in TAUGHT
    },
    **{
        f"{name}_wording": partial(NotesTask, name, wording=HELD_OUT, name=f"{name}_wording")
        for name in TAUGHT
    },
    **{
        f"{name}_sparse": partial(NotesTask, name, every=SPARSE, name=f"{name}_sparse")
        for name in TAUGHT
    },
    **{f"{name}_few": partial(NotesTask, name, many=FEW, name=f"{name}_few") for name in TAUGHT},
}
"""Tasks by name: the families; the trained ones with held-out names and numbers, or held-out sentences; with notes far
apart; and with equally few notes at every length."""

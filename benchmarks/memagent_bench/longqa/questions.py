"""Questions whose gold paragraphs are hidden among other paragraphs, as numbered documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from memagent.errors import ConfigError
from memagent.tasks import Evidence, Sample
from memagent.texts import show_length
from memagent_bench.fitted import FittedTask, Order, shuffle_range
from memagent_bench.longqa.data import Collection, Question
from memagent_bench.longqa.documents import Documents, documents, places, rounds
from memagent_bench.longqa.sources import find_further
from memagent_bench.options import DataOptions
from memagent_bench.ruler.frames import Qa, load_frames

GENERATE = 32
"""Tokens that RULER allows for the reply to a question."""
NUMBER = 8
"""Upper bound of the extra tokens of a document's number, compared with a 1."""
NO_NOTE = {"yes", "no", "noanswer"}
"""Answers that a paragraph doesn't state literally."""


@dataclass(frozen=True)
class Manner:
    """Differences between RULER's questions and the long ones."""

    scorer: str
    titled: bool
    """Documents show titles."""
    clean: bool
    """Other documents neither have nor name a gold document's title."""
    fresh: bool
    """The places of gold documents are drawn for each sample, whatever the options say."""
    further: bool
    """Further paragraphs are used where the question's own data set runs out."""
    repeats: bool
    """Paragraphs are repeated when all run out."""


class QuestionTask(FittedTask):
    """The questions of a collection, in order, at one length.

    A sample takes the gold paragraphs, then those that the data give with the question, then others of the same data,
    then further ones, as many as fit, and puts them in random order.
    RULER puts the paragraphs that come with a question at places
    that are the same in each sample of a length, whichever of them are gold: of ten for HotpotQA, of SQuAD's one.
    Here these places are shares of the documents, since how many documents fit differs by question.

    Raises:
        ConfigError: there are too few data to avoid repeating paragraphs.
        DocumentError: a file of further paragraphs is unusable.
    """

    def __init__(
        self, name: str, length: int, options: DataOptions, collection: Collection, manner: Manner
    ) -> None:
        super().__init__(name, manner.scorer, length, options)
        self._manner, self._collection = manner, collection
        self._frames = load_frames(options.frames)
        self._frame = self._frames.table(Qa)
        self._further: Collection | None = None
        self._documents = self._count_documents()
        if manner.further and length > self._documents.longest:
            self._further = find_further(options)
            self._documents = self._count_documents()
        if not manner.repeats and length > self._documents.longest:
            raise self._too_long()

    def __len__(self) -> int:
        """Returns the number of samples."""
        return len(self._collection.questions)

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """See `Task`."""
        return {
            **super().facts,
            "data": self._collection.name,
            "further": self._further.name if self._further else "",
            "questions": len(self),
            "left_out": self._collection.left_out,
            "paragraphs": len(self._documents),
            "rounds": rounds(self._length, self._documents),
            "wording": self._frames.wording,
            "positions": "shuffled" if self._manner.fresh else self._options.positions,
        }

    def _make(self, index: int, limit: int) -> Sample:
        if not 0 <= index < len(self):
            raise ConfigError(
                f"{self.name} has no sample {index}: its data has {len(self)} questions, numbered from 0"
            )
        question = self._collection.questions[index]
        before = self._frame.before.format(question=question.text)
        after = self._frame.after.format(question=question.text)
        prefix = self._frame.answer_prefix.format(question=question.text)
        order, tokens = self._order(question, index, limit - GENERATE, before, after + prefix)
        context, spans = self._documents.text(order, set(question.gold))
        return Sample(
            task=self.name,
            index=index,
            length=self._length,
            tokens=tokens + GENERATE,
            context=context,
            question=self._frame.question.format(question=question.text),
            outputs=question.answers,
            generate=GENERATE,
            before=before,
            after=after,
            answer_prefix=prefix,
            evidence=tuple(
                Evidence(
                    start=start,
                    end=end,
                    supports=tuple(range(len(question.answers))),
                    notes=self._notes(question, i),
                )
                for i, (start, end) in sorted(spans.items(), key=lambda span: span[1])
            ),
        )

    def _order(
        self, question: Question, index: int, limit: int, before: str, after: str
    ) -> tuple[Order, int]:
        """Returns the documents in their order, and the tokens of the prompt."""
        docs, gold = self._documents, np.array(question.needed, dtype=np.int64)
        ends = docs.prompt_tokens(before, gold, after) - docs.tokens_of(gold)
        others = self._others(question, index, limit)
        fresh = self._manner.fresh or self._options.positions != "published"
        at = self._rng("gold", index) if fresh else self._places_rng("gold", index)
        fixed = question.needed if fresh else question.given
        shares = {i: at.random() for i in fixed}
        room = limit - ends
        while (most := docs.within(np.concatenate([gold, others]), room) - len(gold)) >= 0:
            chosen = self._fill(gold, others, most, room)
            order = places(shares, gold, self._mix(chosen, index))
            tokens = docs.prompt_tokens(before, order, after)
            if tokens <= limit:
                return order, tokens
            room -= tokens - limit
        raise self._too_short(index, docs.prompt_tokens(before, gold, after) + GENERATE)

    def _fill(self, gold: Order, others: Order, most: int, room: int) -> Order:
        """Takes the first `most` of the others, and the one of the rest that best fills the room (not if nested)."""
        chosen = others[:most]
        gap = room - self._documents.tokens_of(np.concatenate([gold, chosen])) - NUMBER
        costs = self._documents.costs[others[most:]]
        if self._options.nested or not len(costs) or costs.min() > gap:
            return chosen
        best = int(np.argmax(np.where(costs <= gap, costs, -1)))
        return np.append(chosen, others[most + best])

    def _others(self, question: Question, index: int, limit: int) -> Order:
        """Returns documents that aren't gold, in the order of use; if they repeat, as many as the limit needs."""
        rng = self._rng("others", index)
        left_out = np.zeros(len(self._documents), dtype=bool)
        left_out[list(question.needed)] = True
        if self._manner.clean:
            for title in {self._documents.titles[i] for i in question.gold}:
                left_out[self._documents.find_titled(title)] = True
                left_out[self._documents.find_naming(title)] = True
        order = self._round(rng, question.near)
        others = order[~left_out[order]]
        while self._manner.repeats and len(others) and self._documents.tokens_of(others) < limit:
            order = self._round(rng, ())
            others = np.concatenate([others, order[~left_out[order]]])
        return others

    def _round(self, rng: Random, near: Sequence[int]) -> Order:
        """Returns each document once: the near ones, others of the collection, further ones; each part shuffled."""
        members = shuffle_range(self._documents.own, rng)
        near_first = np.ones(self._documents.own, dtype=np.uint8)
        near_first[list(near)] = 0
        members = members[np.argsort(near_first[members], kind="stable")]
        further = shuffle_range(len(self._documents) - self._documents.own, rng)
        return np.concatenate([members, further + self._documents.own])

    def _mix(self, chosen: Order, index: int) -> Order:
        """Shuffles documents; adding documents doesn't change the order of the others."""
        keys = np.frombuffer(self._rng("mix", index).randbytes(4 * len(chosen)), dtype="<u4")
        return chosen[np.argsort(keys, kind="stable")]

    def _notes(self, question: Question, paragraph: int) -> tuple[str, ...]:
        """Returns the forms of the answer that a gold paragraph contains, else the other gold titles that it names."""
        text = self._documents.texts[paragraph]
        others = (self._documents.titles[i] for i in question.gold if i != paragraph)
        answers = [a for a in question.answers if a.lower() not in NO_NOTE and _says(text, a)]
        return tuple(answers or [title for title in others if _says(text, title)])

    def _count_documents(self) -> Documents:
        return documents(
            self._collection,
            self._further,
            self._manner.titled,
            self._frame.document,
            self._frame.between,
            self._options.counter,
        )

    def _too_long(self) -> ConfigError:
        longest = self._documents.longest
        return ConfigError(
            f"the {len(self._documents)} available paragraphs suffice for samples of {self.name} of up to {longest} "
            f"tokens, not of {show_length(self._length)}: give more with --paragraphs FILE, or repeat them with "
            f"--allow-repeats"
        )


def _says(text: str, phrase: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text) is not None

"""What `smol` imitates before it is rewarded: conversations of an expert, one JSON line each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random

from memagent import MemoryAgent
from memagent.messages import Sampling
from memagent.models.scripted import ScriptedModel
from memagent.replacing import replacing
from memagent.tokens import TokenCounter
from memagent.trajectory import Conversation
from memagent_bench.length_tokens import length_counter
from memagent_bench.options import DataOptions
from memagent_engines import smol
from memagent_smol.expert import KEEP, Expert
from memagent_smol.facts import MANY, NEAR, facts
from memagent_smol.questions import HotpotQuestions, SquadQuestions
from memagent_smol.sources import SEEN_HOTPOT, SEEN_SQUAD
from memagent_smol.story import UNKNOWN, Lesson, lesson_of

UNANSWERED = 0.1
"""Share of documents without the answer."""
LENGTHS = (4, 8)
"""Minimum and maximum chunks of a document."""
STEP = 128
"""Document lengths are multiples of this, so that few of them need preparing."""
WHOLE = 1536
"""Minimum length at which paragraphs stay whole: SQuAD's longest takes 800 tokens."""
KEEPS = 2
"""Maximum chunks per document with nothing to write down that become lessons."""
WINDOW, MEMORY = 1024, 128
PROMPTS = smol.TRAINED / "prompts.toml"
TRAINED = 10**6
"""Added to the imitation's seed, so that reinforcement learning has other documents."""


@dataclass(frozen=True)
class Level:
    """The difficulty of lessons."""

    shares: Mapping[str, int]
    """Documents of each kind out of a hundred."""
    chunks: tuple[int, ...]
    """Choices for the tokens of a chunk, drawn for each document."""
    apart: Mapping[str, int]
    """Minimum tokens of document per competing fact. An entry of two UUIDs takes 60."""
    near: float
    """Share of competing facts that resemble those asked for."""
    same_article: bool
    """Whether every other SQuAD document has paragraphs from the article of the question."""


EASY = Level(
    shares={"changes": 30, "squad": 50, "needles": 20},
    chunks=(160,),
    apart={"changes": 150, "needles": 150},
    near=0.0,
    same_article=False,
)
"""First lessons: nothing resembles what is asked for, so that the gate is learnt soonest."""
FULL = Level(
    shares={"changes": 35, "squad": 20, "hotpotqa": 20, "needles": 15, "trace": 10},
    chunks=(160, 160, 256, 256, 512),
    apart={"changes": 40, "needles": 110, "trace": 40},
    near=NEAR,
    same_article=True,
)
"""Most chunks are shorter than those read later: lessons cost per token, and short ones teach the same."""
LEVELS = {"easy": EASY, "full": FULL}
Messages = list[dict[str, str]]
Make = Callable[[int], Lesson]


class Teacher:
    """Makes lessons.

    Args:
        sources: the folder that `memagent_smol.sources.divide` wrote.
        counter: the tokenizer of `smol`.
        seed: seed of all lessons.
        level: their difficulty.
    """

    def __init__(
        self, sources: Path, counter: TokenCounter, seed: int, level: Level = FULL
    ) -> None:
        self._sources, self._counter, self._seed = sources, counter, TRAINED + seed
        self._level = level
        self._make = lru_cache(maxsize=None)(self._maker)

    def lessons(self, documents: int, *, first: int = 0) -> Iterator[Messages]:
        """Yields the lessons of `documents` documents, each a prompt and its reply. Skips any that can't be noted."""
        level = self._level
        kinds, weights = list(level.shares), list(level.shares.values())
        for index in range(first, first + documents):
            rng = Random(f"{self._seed} lessons {index}")
            kind = rng.choices(kinds, weights)[0]
            chunk = rng.choice(level.chunks)
            length = -(-chunk * rng.randint(*LENGTHS) // STEP) * STEP
            if kind in ("squad", "hotpotqa"):
                length = max(length, WHOLE)
            lesson = self._make(kind, length)(index)
            if rng.random() < UNANSWERED:
                other = self._make(kind, length)(index + 1)
                lesson = Lesson(lesson.context, other.question, UNKNOWN, ())
                if other.answer.lower() in lesson.context.lower():
                    continue
            elif not lesson.notes:
                continue
            yield from self._read(lesson, chunk, rng)

    def _read(self, lesson: Lesson, chunk: int, rng: Random) -> Iterator[Messages]:
        """Yields the messages of agent and expert about a document, without most of those that keep the memory."""
        expert = Expert(lesson)
        model = ScriptedModel(expert, window=WINDOW, counter=self._counter)
        with MemoryAgent(
            model,
            prompts=PROMPTS,
            window=WINDOW,
            chunk_tokens=chunk,
            memory_tokens=MEMORY,
            gate="update",
            sampling=Sampling(temperature=0.0),
            store=None,
        ) as agent:
            result = agent.ask(lesson.context, lesson.question)
        chats = [_messages(chat) for chat in result.trajectory.conversations]
        if expert.missed or any(
            self._counter.count(chat[-1]["content"]) > MEMORY for chat in chats
        ):
            return
        keeps = [chat for chat in chats if chat[-1]["content"] == KEEP]
        chosen = rng.sample(keeps, min(KEEPS, len(keeps)))
        yield from (chat for chat in chats if chat not in keeps or chat in chosen)

    def _maker(self, kind: str, length: int) -> Make:
        options = DataOptions(counter=length_counter(None), seed=self._seed)
        match kind:
            case "squad":
                return self._squad(length, options)
            case "hotpotqa":
                hotpot = HotpotQuestions(self._sources / SEEN_HOTPOT, length, options)
                return lambda index: _make_asked(hotpot, self._turn(index, len(hotpot.task)))
            case _:
                return lambda index: self._make_told(kind, length, index)

    def _squad(self, length: int, options: DataOptions) -> Make:
        """Asks every other question among paragraphs of the same article, if the level says so."""
        file = self._sources / SEEN_SQUAD
        far = SquadQuestions(file, length, options, near=False)
        if not self._level.same_article:
            return lambda index: _make_asked(far, self._turn(index, len(far.task)))
        near = SquadQuestions(file, length, options, near=True)
        return lambda index: _make_asked(
            (near, far)[index % 2], self._turn(index // 2, len(near.task))
        )

    def _make_told(self, family: str, length: int, index: int) -> Lesson:
        level = self._level
        limit = max(MANY[0], min(MANY[1], length // level.apart[family]))
        many = Random(f"{self._seed} many {index}").randint(MANY[0], limit)
        task = facts(family=family, length=length, seed=self._seed, many=many, near=level.near)
        return lesson_of(task.sample(index), task.story(index).notes)

    def _turn(self, index: int, count: int) -> int:
        """Returns a question's index; all come once before one is repeated."""
        epoch, place = divmod(index, count)
        order = list(range(count))
        Random(f"{self._seed} order {epoch}").shuffle(order)
        return order[place]


def write(lessons: Iterator[Messages], file: Path) -> int:
    """Writes them in the form that `memagent-train sft` reads. Returns their number."""
    count = 0
    with replacing(file) as new, new.open("w", encoding="utf-8") as opened:
        for messages in lessons:
            opened.write(json.dumps({"messages": messages}) + "\n")
            count += 1
    return count


def _make_asked(questions: SquadQuestions | HotpotQuestions, index: int) -> Lesson:
    sample = questions.task.sample(index)
    return lesson_of(sample, questions.notes(sample))


def _messages(conversation: Conversation) -> Messages:
    return [{"role": message.role, "content": message.content} for message in conversation.messages]

"""What a policy imitates before it is rewarded: conversations, one JSON line each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from random import Random

from memagent import MemoryAgent, Result
from memagent.messages import Sampling
from memagent.models.base import ChatModel
from memagent.models.scripted import ScriptedModel
from memagent.prompts import PromptSet
from memagent.replacing import replacing
from memagent.tasks import Sample
from memagent.tokens import load_counter
from memagent.trajectory import Conversation
from memagent_bench.notes.vocabulary import COINS, MASTER, TRAINED
from memagent_nano.books import TRAINING, sentences_of
from memagent_nano.expert import Entry, Expert, Keep, write_memory
from memagent_nano.sizes import Size
from memagent_nano.task import FAMILIES, UNTRAINED, notes

PROMPTS = Path(__file__).with_name("prompts.toml")
GREEDY = Sampling(temperature=0.0)
Lesson = tuple[str, str]
"""The prompt, and the reply that the policy should give."""


PEOPLE = 7
"""People in a copy."""
AT_ONCE = 64
"""Documents that are read concurrently."""
LONG = 100
"""Maximum characters of a book's sentence in a copy."""
ANSWERS = 0.3
"""Share of answers among the copies."""
ANSWERABLE = 0.9
"""Share of these answers that the memory contains."""
MASTERS = 1 / 3
"""Share of masters among the entries of copies; the others are numbers."""
SPREAD = (1, 10)
"""Spacing of notes in longer documents: every other document has few."""
CLOSE = (0.25, 10)
"""Likewise, with every other document having many."""


def echoes(size: Size, tokens: Sequence[str], count: int, seed: int) -> Iterator[Lesson]:
    """Yields texts of random tokens to repeat: the fastest way to learn copying.

    Args:
        size: the size whose memories are as long.
        tokens: the vocabulary of the texts.
        count: number of texts; the few that are only white space are left out.
        seed: seed of all texts.
    """
    rng = Random(f"{seed} echoes")
    for _ in range(count):
        drawn = rng.choices(tokens, k=rng.randint(size.memory_tokens // 2, size.memory_tokens))
        if text := "".join(drawn).strip():
            yield text, text


def copies(size: Size, count: int, seed: int) -> Iterator[Lesson]:
    """Yields arbitrary memories with texts, mostly notes, all to be kept: most of a reply is copied.

    Texts leave out what wouldn't fit a memory, so that exactly one reply is right.

    Args:
        size: of memories, names and numbers.
        count: number of lessons.
        seed: seed of all of them.
    """
    rng, words = Random(f"{seed} copies"), size.words()
    expert = teacher(size, "random", seed)
    for _ in range(count):
        people = words.names(PEOPLE, rng)
        question = _question(rng, people[0])
        memory = [_entry(rng, people, size) for _ in range(rng.randint(0, size.entries))]
        if rng.random() < ANSWERS:
            yield _make_answer(rng, people, memory, size, expert)
        else:
            yield _make_update(rng, people, memory, size, question)


def traces(
    size: Size,
    keep: Keep,
    tokenizer: Path,
    count: int,
    seed: int,
    *,
    lengths: Sequence[int] = (),
    spread: Sequence[float] = (1,),
) -> Iterator[Lesson]:
    """Yields the conversations of an expert that reads documents.

    Args:
        size: of documents and memories.
        keep: what the expert keeps.
        tokenizer: file or folder of the tokenizer that measures chunks.
        count: number of documents.
        seed: seed of documents, and of what the expert drops.
        lengths: see `documents`.
        spread: likewise.
    """
    samples = documents(size, count, UNTRAINED + seed, lengths=lengths, spread=spread)
    counter = load_counter(tokenizer)
    expert = ScriptedModel(teacher(size, keep, seed), window=size.window, counter=counter)
    with reader(size, expert) as agent:
        for conversation in conversations(agent, samples):
            prompt, reply = conversation.messages
            yield prompt.content, reply.content


def conversations(agent: MemoryAgent, samples: Iterator[Sample]) -> Iterator[Conversation]:
    """Returns the conversations of an agent and its model about documents, some read concurrently. Blocks."""
    while batch := list(islice(samples, AT_ONCE)):
        for result in asyncio.run(_read(agent, batch)):
            yield from result.trajectory.conversations


def memory_of(said: str) -> str:
    """Returns the memory in the prompt of an update."""
    return said.split("Memory:\n", 1)[1].split("\nText:", 1)[0]


def documents(
    size: Size,
    count: int,
    seed: int,
    *,
    lengths: Sequence[int] = (),
    spread: Sequence[float] = (1,),
) -> Iterator[Sample]:
    """Yields documents of all kinds and lengths in turn.

    Args:
        size: of names and numbers.
        count: of documents.
        seed: of all of them.
        lengths: in GPT-2 tokens; default: those of the training.
        spread: factors of the distance between notes in the training, used in turn.
    """
    tasks = [
        notes(family=family, size=size.name, length=length, seed=seed, every=int(far * size.every))
        for family in FAMILIES
        for length in lengths or size.lengths
        for far in spread
    ]
    return (tasks[index % len(tasks)].sample(index) for index in range(count))


def reader(size: Size, model: ChatModel) -> MemoryAgent:
    """Returns a memory agent that reads as in the training, greedily. Close it."""
    return MemoryAgent(
        model,
        prompts=PROMPTS,
        window=size.window,
        chunk_tokens=size.chunk_tokens,
        memory_tokens=size.memory_tokens,
        sampling=GREEDY,
        store=None,
    )


def teacher(size: Size, keep: Keep, seed: int) -> Expert:
    """Returns the expert of a size."""
    return Expert(keep, entries=size.kept, syllables=size.syllables, seed=seed)


def write(lessons: Iterable[Lesson], file: Path) -> None:
    """Writes lessons in the form that `memagent-train sft` reads, all or nothing."""
    with replacing(file) as new, new.open("w", encoding="utf-8") as opened:
        for prompt, reply in lessons:
            messages = [
                {"role": "user", "content": prompt},
                {"role": "assistant", "content": reply},
            ]
            opened.write(json.dumps({"messages": messages}) + "\n")


@lru_cache(maxsize=1)
def _prompts() -> PromptSet:
    return PromptSet.load(PROMPTS)


async def _read(agent: MemoryAgent, samples: Sequence[Sample]) -> list[Result]:
    return await asyncio.gather(
        *(agent.aask(sample.context, sample.question) for sample in samples)
    )


def _make_answer(
    rng: Random, people: Sequence[str], memory: Sequence[Entry], size: Size, expert: Expert
) -> Lesson:
    """Makes a question about the first of the people, and its answer from a memory that mostly contains it."""
    kind, entries = _answerable(rng, people, memory, size)
    question = rng.choice(TRAINED.questions[kind]).format(who=people[0])
    message = _prompts().render("answer", question=question, memory=write_memory(entries))[0]
    return message.content, expert.answer(question, entries)


def _make_update(
    rng: Random, people: Sequence[str], memory: Sequence[Entry], size: Size, question: str
) -> Lesson:
    """Makes a text of notes that fit the memory, or of a book's sentence, and the memory after it."""
    entries = [_entry(rng, people, size) for _ in range(rng.randint(0, size.entries))]
    entries = entries[: size.entries - len(memory)]
    parts = [_say(rng, note) for note in entries]
    for _ in range(rng.choice((0, 1)) if parts else 1):
        parts.insert(rng.randint(0, len(parts)), rng.choice(sentences_of(TRAINING))[:LONG])
    text, chunk = write_memory(memory), " ".join(parts)
    message = _prompts().render("update", question=question, memory=text, chunk=chunk)[0]
    return message.content, write_memory([*memory, *entries])


def _answerable(
    rng: Random, people: Sequence[str], memory: Sequence[Entry], size: Size
) -> tuple[str, list[Entry]]:
    """Returns a kind of question about the first of the people, and a memory that mostly contains its answer."""
    kind, (who, master) = rng.choice((COINS, MASTER)), people[:2]
    if rng.random() < ANSWERABLE:
        number = size.words().number(rng)
        needed = [(who, master), (master, number)] if kind == MASTER else [(who, number)]
        memory = [*memory[: size.entries - len(needed)], *needed]
        rng.shuffle(memory)
    return kind, list(memory)


def _say(rng: Random, note: Entry) -> str:
    who, what = note
    kind = COINS if what.isdigit() else MASTER
    return rng.choice(TRAINED.notes[kind]).format(who=who, what=what)


def _entry(rng: Random, people: Sequence[str], size: Size) -> Entry:
    who, master = rng.sample(people, 2)
    return (who, master if rng.random() < MASTERS else size.words().number(rng))


def _question(rng: Random, who: str) -> str:
    kind = rng.choice((COINS, MASTER))
    return rng.choice(TRAINED.questions[kind]).format(who=who)

import asyncio
from pathlib import Path

import pytest

from memagent import ScriptedModel
from memagent.errors import ConfigError
from memagent.messages import ChatRequest, Message
from memagent.tasks import SCORERS
from memagent.tokens import load_counter
from memagent_nano.expert import NOTHING, Expert, Keep, read_memory, with_entry, write_memory
from memagent_nano.lessons import reader, teacher
from memagent_nano.sizes import PICO, SIZES, Size
from memagent_nano.task import FAMILIES, notes

SEED = 77


def rewards(size: Size, keep: Keep, tokenizer: Path, each: int) -> list[float]:
    """Of documents as training has them: of each family and length some."""
    tasks = [
        notes(family=family, size=size.name, length=length, seed=SEED)
        for family in FAMILIES
        for length in size.lengths
    ]

    async def read() -> list[float]:
        found: list[float] = []
        for task in tasks:
            for sample in map(task.sample, range(each)):
                result = await agent.aask(sample.context, sample.question)
                found.append(SCORERS[task.scorer](result.answer or "", sample.outputs))
        return found

    expert, counter = teacher(size, keep, SEED), load_counter(tokenizer)
    with reader(size, ScriptedModel(expert, window=size.window, counter=counter)) as agent:
        return asyncio.run(read())


@pytest.mark.parametrize("name", SIZES)
def test_one_who_keeps_what_is_asked_for_is_always_right(
    tokenizers: dict[str, Path], name: str
) -> None:
    right = rewards(SIZES[name], "relevant", tokenizers[name], 4)
    assert len(right) == 4 * len(FAMILIES) * len(SIZES[name].lengths)
    assert set(right) == {1.0}


def test_one_who_keeps_anything_leaves_something_to_learn(tokenizers: dict[str, Path]) -> None:
    right = rewards(PICO, "random", tokenizers["pico"], 14)
    assert 0.2 < sum(right) / len(right) < 0.5


EXPERT = Expert("random", entries=2, syllables=2)
WANTS = Expert("relevant", entries=2, syllables=2)
COINS, MASTER = "How many coins has Tolu?", "How many coins has the master of Tolu?"


def test_notes_are_read_in_order_and_the_last_one_counts() -> None:
    chunk = "Sonya wept. Tolu has 12 coins. It rained. The purse of Tolu holds 34 coins."
    assert WANTS.update(COINS, [], chunk) == "- Tolu 34"
    assert (
        WANTS.update(COINS, [("Tolu", "99"), ("Tolu", "Bemi")], chunk) == "- Tolu Bemi\n- Tolu 34"
    )
    assert WANTS.update(COINS, [], "Bemi has 12 coins. Nothing else.") == NOTHING


def test_a_masters_purse_is_wanted_once_the_master_is_known() -> None:
    assert WANTS.update(MASTER, [], "Bemi has 12 coins. Tolu has 3 coins.") == NOTHING
    assert (
        WANTS.update(MASTER, [("Tolu", "Bemi")], "Bemi has 12 coins.") == "- Tolu Bemi\n- Bemi 12"
    )
    assert (
        WANTS.update(
            MASTER, [], "Tolu works for Bemi. Now. There are 12 coins in the purse of Bemi."
        )
        == "- Tolu Bemi\n- Bemi 12"
    )


def test_a_full_memory_loses_something_and_always_the_same() -> None:
    chunk = "Bemi has 12 coins. Tolu has 34 coins. The master of Tolu is Bemi."
    kept = read_memory(EXPERT.update(COINS, [], chunk))
    assert len(kept) == 2
    assert EXPERT.update(COINS, [], chunk) == write_memory(kept)
    others = {
        Expert("random", entries=2, syllables=2, seed=s).update(COINS, [], chunk) for s in range(20)
    }
    assert len(others) == 3


@pytest.mark.parametrize(
    ("question", "memory", "answer"),
    [
        (COINS, [("Tolu", "12")], "Tolu 12"),
        (COINS, [("Tolu", "Bemi"), ("Bemi", "34")], NOTHING),
        (MASTER, [("Tolu", "Bemi"), ("Bemi", "34"), ("Tolu", "12")], "Tolu Bemi 34"),
        (MASTER, [("Tolu", "Bemi"), ("Tolu", "12")], NOTHING),
        (MASTER, [], NOTHING),
    ],
)
def test_answers_are_what_the_memory_says(
    question: str, memory: list[tuple[str, str]], answer: str
) -> None:
    assert WANTS.answer(question, memory) == answer
    request = ChatRequest(
        messages=(Message(role="user", content="ask"),),
        max_tokens=8,
        kind="answer",
        parts={"question": question, "memory": write_memory(memory)},
    )
    assert WANTS(request) == answer


def test_an_entry_makes_one_about_the_same_thing_outdated() -> None:
    entries = [("Tolu", "12"), ("Tolu", "Bemi")]
    assert with_entry(entries, ("Tolu", "34")) == [("Tolu", "Bemi"), ("Tolu", "34")]
    assert with_entry(entries, ("Bemi", "34")) == [*entries, ("Bemi", "34")]


def test_of_two_entries_the_later_one_counts() -> None:
    memory = [("Tolu", "12"), ("Bemi", "56"), ("Tolu", "34")]
    assert EXPERT.answer(COINS, memory) == "Tolu 34"
    keeps_all = Expert("random", entries=5, syllables=2)
    assert read_memory(keeps_all.update(COINS, memory, "Tolu now holds 78 coins.")) == [
        *memory,
        ("Tolu", "78"),
    ]


@pytest.mark.parametrize("memory", ["", NOTHING, "- Tolu", "???\n\n- a"])
def test_what_is_no_memory_has_no_entries(memory: str) -> None:
    assert read_memory(memory) == []


def test_a_question_that_no_training_asks_is_refused() -> None:
    with pytest.raises(ConfigError, match="What is love"):
        WANTS.answer("What is love?", [("Tolu", "12")])

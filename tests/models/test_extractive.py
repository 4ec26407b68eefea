import time
from collections.abc import Iterator
from typing import Any

import pytest

from memagent.errors import RequestRefused
from memagent.messages import ChatRequest, Message
from memagent_engines.extractive import NOTHING_FOUND, ExtractiveModel

QUESTION = "When did Natasha marry?"
FACT = "Natásha had married in the early spring of 1813."
KEEP = "[keep]"


async def run(kind: Any, max_tokens: int = 1000, **parts: str) -> str:
    request = ChatRequest(
        messages=(Message(role="user", content="ignored"),),
        max_tokens=max_tokens,
        kind=kind,
        parts={"question": QUESTION, "keep": KEEP, "empty_memory": "(none)", **parts},
    )
    first, again = [await ExtractiveModel().complete(request) for _ in range(2)]
    assert first == again
    assert len(first.text.encode()) <= max(max_tokens, len(KEEP), len(NOTHING_FOUND))
    assert first.usage.completion_tokens == len(first.text.encode())
    return first.text


async def test_keeps_matching_sentences_in_order_on_a_line_each() -> None:
    chunk = f"Snow fell. Natasha\nlaughed. The war went on. {FACT} Night came."
    assert await run("update", memory="(none)", chunk=chunk) == f"Natasha laughed.\n{FACT}"


async def test_better_sentences_push_out_worse_ones() -> None:
    memory = "Natasha laughed.\nNatasha sang."
    new = await run("update", len(FACT.encode()) + 17, memory=memory, chunk=FACT)
    assert new == f"Natasha laughed.\n{FACT}"


async def test_nothing_new_is_the_keep_literal() -> None:
    assert await run("update", memory=FACT, chunk="Snow fell. The war went on.") == KEEP
    assert await run("update", memory=FACT, chunk=f"{FACT}") == KEEP
    assert await run("update", memory="(none)", chunk="Snow fell.") == KEEP
    assert await run("update", memory="(none)", chunk="Snow fell.", keep="") == "(none)"
    assert await run("update", memory=FACT, chunk="Snow fell.", keep="") == FACT


async def test_a_sentence_over_the_budget_is_clipped_at_a_word() -> None:
    assert await run("update", 20, memory="(none)", chunk=FACT) == "Natásha had married"


async def test_answers_with_the_best_sentence() -> None:
    memory = f"Natasha laughed.\n{FACT}\nShe never would marry, Natasha said."
    assert await run("answer", memory=memory) == FACT
    assert await run("answer", memory=memory, answer_form="plain") == FACT
    assert await run("answer", memory=memory, answer_form="boxed") == f"\\boxed{{{FACT}}}"
    sentence = f"Therefore, the answer is ({FACT})."
    assert await run("answer", memory=memory, answer_form="sentence") == sentence
    assert (
        await run("answer", 30, memory=memory, answer_form="boxed")
        == "\\boxed{Natásha had married}"
    )


@pytest.mark.parametrize("memory", ["(none)", "", " \n ", "Snow fell."])
async def test_no_answer_without_a_memory(memory: str) -> None:
    assert await run("answer", memory=memory) == NOTHING_FOUND


async def test_other_calls_are_refused() -> None:
    with pytest.raises(RequestRefused, match="only reads documents") as caught:
        await run("other")
    assert not caught.value.retryable


async def test_counter_and_window() -> None:
    model = ExtractiveModel()
    counter = await model.counter()
    assert (counter.name, counter.count("é")) == ("utf8-bytes", 2)
    assert await model.window() == 8192
    assert await ExtractiveModel(window=100).window() == 100
    assert (model.name, repr(model)) == ("extractive", "ExtractiveModel()")
    await model.aclose()


def book() -> Iterator[str]:
    """700 chunks of filler with one fact in the middle."""
    people = ["Pierre", "Natasha", "Andrew", "Sonya", "Nicholas"]
    for chunk in range(700):
        lines = [
            f"{people[(chunk + line) % 5]} spoke of marriage with {people[line % 5]} for {line} hours."
            for line in range(70)
        ]
        yield " ".join([*lines, FACT] if chunk == 350 else lines)


async def test_reads_a_whole_book_in_seconds() -> None:
    memory, start = "(none)", time.process_time()
    for chunk in book():
        reply = await run("update", memory=memory, chunk=chunk)
        memory = memory if reply == KEEP else reply
    assert time.process_time() - start < 20
    assert await run("answer", memory=memory) == FACT

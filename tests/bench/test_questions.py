"""`make bench-questions`: cached tokens of several questions, from the server's counters or from its replies."""

from __future__ import annotations

import asyncio

from memagent import ChatRequest, Completion, Message, Usage
from memagent.models.base import SimpleModel
from memagent_bench.perf.loop import Quarter
from memagent_bench.perf.measure import Row
from memagent_bench.server.questions import METRICS, OneAhead, measure

BLOCK = 256
"""Characters: a cache holds whole blocks."""


class Cached(SimpleModel):
    """A model with a prefix cache, whose tokens are four characters."""

    name = "cached"

    def __init__(self) -> None:
        super().__init__(Quarter(), 2048)
        self.hits = self.queries = 0
        self.log = list[str]()
        self._blocks = set[str]()

    async def complete(self, request: ChatRequest) -> Completion:
        self.log.append("sent")
        prompt = "".join(message.content for message in request.messages)
        blocks = [prompt[:end] for end in range(BLOCK, len(prompt), BLOCK)]
        cached = sum(block in self._blocks for block in blocks) * BLOCK // 4
        self._blocks.update(blocks)
        await asyncio.sleep(0)
        self.log.append("replied")
        self.hits, self.queries = self.hits + cached, self.queries + len(prompt) // 4
        usage = Usage(
            calls=1,
            prompt_tokens=len(prompt) // 4,
            completion_tokens=2,
            cached_tokens=cached,
        )
        return Completion(text=f"Noted {request.parts['question']}", usage=usage)

    def counters(self) -> dict[str, float]:
        return {"hits": self.hits, "queries": self.queries}


def shares(rows: list[Row]) -> dict[str, list[float]]:
    """Cached shares of the prompt tokens, by what was measured."""
    cached = {row.what.removesuffix(": cached tokens"): row for row in rows if "cached" in row.what}
    return {
        what: [value / int(row.unit.removeprefix("of ").replace(",", "")) for value in row.values]
        for what, row in cached.items()
    }


async def test_questions_share_what_a_chunk_first_puts_at_the_beginning() -> None:
    model = Cached()
    rows = await measure(model, model.counters, (1, 4), 2)
    found = shares(rows)
    assert set(found) == {
        "1 question, question first",
        "1 question, chunk first",
        "4 questions, question first",
        "4 questions, chunk first",
        "4 questions, chunk first, one question ahead",
    }
    assert all(len(values) == 2 for values in found.values())
    assert max(found["4 questions, question first"]) < 0.2
    for what in ("4 questions, chunk first", "4 questions, chunk first, one question ahead"):
        assert 0.5 < min(found[what]) < 0.75
    assert sum("wall time" in row.what for row in rows) == 5


async def test_without_counters_the_replies_are_counted() -> None:
    model, other = Cached(), Cached()
    said = await measure(model, lambda: dict.fromkeys(METRICS, 0.0), (4,), 1)
    assert shares(said) == shares(await measure(other, other.counters, (4,), 1))


async def test_one_question_goes_ahead_of_the_others() -> None:
    message = Message(role="user", content="What?")
    parts = {"question": "What?", "chunk": "A chunk."}
    request = ChatRequest(messages=(message,), max_tokens=8, kind="update", parts=parts)
    model = Cached()
    ahead = OneAhead(model)
    await asyncio.gather(*(ahead.complete(request) for _ in range(3)))
    assert model.log == ["sent", "replied", "sent", "sent", "replied", "replied"]

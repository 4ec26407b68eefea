"""`make bench-speculation`: how much faster a real vLLM server rewrites with n-gram speculation.

Usage: python -m memagent_bench.server.speculation [--rounds N] [--write PAGE]

What `tests.engines.serve vllm --smol --speculate` sets: MEMAGENT_BASE_URL names two servers of one model, the second
with speculation. They take turns, with one request under way at a time.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from memagent.memory.agent import MemoryAgent
from memagent.messages import ChatRequest, Completion, Message, Sampling
from memagent.models.base import ChatModel, Wrapper
from memagent.models.openai import OpenAIModel
from memagent.tasks.origin import machine
from memagent_bench.perf.chunks import book
from memagent_bench.perf.measure import Row, page_parser, publish
from memagent_bench.server.vllm import VLLM

GREEDY = Sampling(temperature=0.0)
NOTES, REQUESTS, OUTPUT = 8, 4, 256
"""Notes that a reply repeats, such requests per round, and tokens of a reply."""
COPY = """\
Write down all of these notes again, word for word, and add the new note at the end.

Notes:
{}

New note:
{}"""
DOCUMENTS, CHARS = 2, 3_000
QUESTION = "Whom does Natasha marry?"
WINDOW, CHUNK, MEMORY = 2048, 512, 128
METRICS = {
    "drafted": "vllm:spec_decode_num_draft_tokens_total",
    "accepted": "vllm:spec_decode_num_accepted_tokens_total",
}

Work = Callable[[ChatModel], Awaitable[None]]


@dataclass
class Pass:
    """One server's results for one kind of work."""

    replies: dict[str, str] = field(default_factory=dict[str, str])
    """Replies by prompt."""
    tokens: int = 0
    seconds: float = 0.0
    drafted: float = 0.0
    accepted: float = 0.0


class Log(Wrapper):
    """Records replies, and how many tokens they took."""

    def __init__(self, inner: ChatModel, log: Pass) -> None:
        super().__init__(inner)
        self._log = log

    async def complete(self, request: ChatRequest) -> Completion:
        """Passes the request on."""
        completion = await self.inner.complete(request)
        self._log.replies[str(request.messages)] = completion.text
        self._log.tokens += completion.usage.completion_tokens
        return completion


async def copy(model: ChatModel) -> None:
    """Has the model repeat notes plus one more. Notes are sentences of the shipped novel."""
    sentences = re.findall(r"(?<=[.!?] )[A-Z][^.!?]{40,120}\.", book().replace("\n", " "))
    for start in range(0, REQUESTS * (NOTES + 1), NOTES + 1):
        *notes, new = [f"- {sentence}" for sentence in sentences[start : start + NOTES + 1]]
        ask = Message(role="user", content=COPY.format("\n".join(notes), new))
        await model.complete(ChatRequest(messages=(ask,), max_tokens=OUTPUT, sampling=GREEDY))


async def read(model: ChatModel) -> None:
    """Reads two documents, one after the other."""
    agent = MemoryAgent(
        model,
        window=WINDOW,
        chunk_tokens=CHUNK,
        memory_tokens=MEMORY,
        sampling=GREEDY,
        degenerate="take",  # a retry wouldn't be greedy
        store=None,
    )
    text = book()[CHARS:]
    for number in range(DOCUMENTS):
        await agent.aask(text[CHARS * number : CHARS * (number + 1)], QUESTION)


async def time_pass(work: Work, base_url: str, name: str, tokenizer: str) -> Pass:
    """Times one pass, from an empty prefix cache."""
    result, server = Pass(), VLLM(base_url)
    model = Log(OpenAIModel(name, base_url=base_url, tokenizer=tokenizer, dialect="vllm"), result)
    await model.counter()
    server.reset()
    before = server.metrics(METRICS)
    start = time.perf_counter()
    await work(model)
    result.seconds = time.perf_counter() - start
    after = server.metrics(METRICS)
    result.drafted, result.accepted = (after[key] - before[key] for key in METRICS)
    await model.aclose()
    return result


def rows(what: str, pairs: list[tuple[Pass, Pass]]) -> list[Row]:
    """Returns the rows of one kind of work; each pair is of the same round, without and with speculation."""
    speeds = [[result.tokens / result.seconds for result in pair] for pair in pairs]
    same = [
        [
            off.replies[prompt] == reply
            for prompt, reply in on.replies.items()
            if prompt in off.replies
        ]
        for off, on in pairs
    ]
    replies = sum(map(len, same)) // len(same)
    return [
        Row(f"{what}: tokens a second without", [off for off, _ in speeds]),
        Row(f"{what}: tokens a second with n-gram speculation", [on for _, on in speeds]),
        Row(f"{what}: speed-up", [on / off for off, on in speeds], "times"),
        Row(
            f"{what}: drafts accepted",
            [on.accepted / on.drafted for _, on in pairs],
            "of drafted tokens",
        ),
        Row(
            f"{what}: same reply to the same prompt",
            [sum(matches) for matches in same],
            f"of {replies}",
        ),
    ]


async def measure(base_urls: list[str], name: str, tokenizer: str, rounds: int) -> list[Row]:
    """Measures all rows."""
    kinds: dict[str, Work] = {"notes repeated, one added": copy, "reading": read}
    table: list[Row] = []
    for what, work in kinds.items():
        pairs: list[tuple[Pass, Pass]] = []
        for _ in range(rounds):
            off, on = [await time_pass(work, url, name, tokenizer) for url in base_urls]
            pairs.append((off, on))
            print(f"{what}: {off.seconds:.0f} s without, {on.seconds:.0f} s with", flush=True)
        table += rows(what, pairs)
    return table


def main() -> int:
    """Measures, prints the table, and writes it into a page if one is given."""
    parser = page_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    base_urls = os.environ["MEMAGENT_BASE_URL"].split(",")
    name = os.environ["MEMAGENT_MODEL"].partition(":")[2]
    where = f"{machine()}, vLLM {VLLM(base_urls[0]).version()} on the same machine"
    table = asyncio.run(measure(base_urls, name, os.environ["MODEL_FOLDER"], arguments.rounds))
    return publish(table, "make bench-speculation", arguments.write, where)


if __name__ == "__main__":
    sys.exit(main())

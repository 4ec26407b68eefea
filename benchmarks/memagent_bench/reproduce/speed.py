"""How fast a server is at a benchmark's calls."""

from __future__ import annotations

import asyncio
import time

from memagent.memory.plan import MemoryPlan
from memagent.messages import ChatRequest, Usage
from memagent.models.base import ChatModel
from memagent.threads import in_thread
from memagent_bench.perf.chunks import book

CHARS_PER_TOKEN = 8
"""More characters per token than English has with any tokenizer."""


async def tokens_per_second(model: ChatModel, plan: MemoryPlan, calls: int) -> float:
    """Measures prompt and completion tokens per second of concurrent update calls, each with a chunk of a book.

    Raises:
        ModelError: a call failed.
    """
    requests = await in_thread(_requests, plan, calls)
    begun = time.monotonic()
    completions = await asyncio.gather(*map(model.complete, requests))
    usage = sum((completion.usage for completion in completions), Usage())
    return (usage.prompt_tokens + usage.completion_tokens) / (time.monotonic() - begun)


def _requests(plan: MemoryPlan, calls: int) -> list[ChatRequest]:
    """Returns requests with different chunks, so that a server doesn't find them in its cache."""
    text, budget = book(), plan.budget
    share = len(text) // calls
    requests: list[ChatRequest] = []
    for n in range(calls):
        part = text[n * share :][: CHARS_PER_TOKEN * budget.chunk]
        chunk = part[: plan.counter.measure(part).chars_within(budget.chunk)]
        parts = {"question": plan.questions[0], "memory": "", "chunk": chunk}
        requests.append(
            ChatRequest(
                messages=plan.render("update", 0, "", chunk),
                max_tokens=budget.output,
                sampling=plan.settings.sampling,
                seed=n,
                kind="update",
                parts=parts | {"empty_memory": plan.prompts.empty_memory},
            )
        )
    return requests

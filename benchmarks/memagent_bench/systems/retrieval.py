"""Retrieval: the sentences that match the question, as the answer or as context for the model."""

from __future__ import annotations

import asyncio

from memagent.memory.plan import MemoryPlan
from memagent.tasks import Sample
from memagent_bench.length_tokens import length_counter
from memagent_bench.systems.asking import agent_of, text_of
from memagent_bench.systems.base import Outcome, Setting
from memagent_bench.systems.fitting import Excerpt, Span, ask_once, excerpt, find_largest
from memagent_bench.systems.ranking import Rank

GUESS = 40
"""Guess of the number of sentences that fit: they have some 25 tokens each."""


class Retrieval:
    """Answers with the best sentences themselves, in the order of the document. No model is called.

    The reply has as many of GPT-2's tokens as the task allows. Not the model's tokens: the model isn't involved, and
    if it counts bytes, a reply would be a quarter as long. If no sentence matches, the reply is empty.

    Args:
        name: name in `--systems`.
        setting: the benchmark's.
        rank: finds the sentences.
    """

    def __init__(self, name: str, setting: Setting, rank: Rank) -> None:
        self.name = name
        self._rank = rank

    async def answer(self, sample: Sample, run_id: str) -> Outcome:
        """See `System.answer`."""
        text = await text_of(sample)
        # In its own thread: the few shared ones aren't meant for seconds of work.
        best = await asyncio.to_thread(self._rank, text, sample.question, sample.generate)
        reply, chars = await asyncio.to_thread(_reply, text, best, sample.generate)
        return Outcome(answer=reply, predicted_calls=0, predicted_tokens=0, shown=chars / len(text))


class RetrievalModel:
    """Asks the model once, with the best sentences in the memory field, as many as fit the window.

    Args:
        name: name in `--systems`.
        setting: the benchmark's.
        rank: finds the sentences.
    """

    def __init__(self, name: str, setting: Setting, rank: Rank) -> None:
        self.name = name
        self._model, self._rank = setting.model, rank
        self._agent = agent_of(setting, gate="off")

    async def answer(self, sample: Sample, run_id: str) -> Outcome:
        """See `System.answer`."""
        plan = await self._agent.plan((sample.question,))
        text = await text_of(sample)
        best = await asyncio.to_thread(self._rank, text, sample.question, plan.budget.window)
        part = await plan.counting(_within_window, plan, text, best)
        return await ask_once(plan, self._model, part)


def _within_window(plan: MemoryPlan, text: str, best: list[Span]) -> Excerpt:
    return excerpt(plan, text, lambda n: sorted(best[:n]), most=len(best), guess=GUESS, gap="\n")


def _reply(text: str, best: list[Span], limit: int) -> tuple[str, int]:
    """Returns the best sentences within a number of tokens, and their number of characters."""
    counter = length_counter(None)

    def tokens(n: int) -> int:
        return counter.count(_join(text, best[:n]))

    n, _ = find_largest(tokens, limit, most=len(best), guess=GUESS)
    spans = best[:n]
    if best and not spans:  # not even one fits: use its beginning
        start, end = best[0]
        chars, _ = find_largest(
            lambda n: counter.count(text[start : start + n]), limit, most=end - start, guess=limit
        )
        spans = [(start, start + chars)]
    return _join(text, spans), sum(end - start for start, end in spans)


def _join(text: str, spans: list[Span]) -> str:
    return "\n".join(text[start:end] for start, end in sorted(spans))

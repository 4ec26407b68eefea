"""The document itself in the answer prompt, cut to fit the window."""

from __future__ import annotations

from collections.abc import Callable

from memagent.chunking.chunker import FIRST_CHARS_PER_TOKEN, MAX_CHARS_PER_TOKEN
from memagent.chunking.cuts import grapheme_floor, next_grapheme
from memagent.memory.plan import MemoryPlan
from memagent.tasks import Sample
from memagent_bench.systems.asking import agent_of, text_of
from memagent_bench.systems.base import Outcome, Setting
from memagent_bench.systems.fitting import Excerpt, Span, ask_once, excerpt

GAP = "\n[...]\n"
"""Replaces the middle: without it the two halves of a number or a name could meet."""


class Direct:
    """Asks once, with as much of the document as fits the window.

    The document goes into the memory field of the answer prompt, neutralised like a memory, and the output may be
    as long as the memory agent's.

    Args:
        name: name in `--systems`.
        setting: the benchmark's.
        keep: returns the spans of a text to show, given the text and a number of characters.
    """

    def __init__(self, name: str, setting: Setting, keep: Callable[[str, int], list[Span]]) -> None:
        self.name = name
        self._model, self._keep = setting.model, keep
        self._agent = agent_of(setting, gate="off")

    async def answer(self, sample: Sample, run_id: str) -> Outcome:
        """See `System.answer`."""
        plan = await self._agent.plan((sample.question,))
        part = await plan.counting(self._cut, plan, await text_of(sample))
        return await ask_once(plan, self._model, part)

    def _cut(self, plan: MemoryPlan, text: str) -> Excerpt:
        window = plan.budget.window
        return excerpt(
            plan,
            text,
            lambda n: self._keep(text, n),
            most=min(len(text), window * MAX_CHARS_PER_TOKEN),
            guess=int(window * FIRST_CHARS_PER_TOKEN),
            gap=GAP,
        )


def beginning(text: str, n: int) -> list[Span]:
    """Returns the first `n` characters at most: the right side is dropped."""
    return [(0, grapheme_floor(text, n))]


def ending(text: str, n: int) -> list[Span]:
    """Returns the last `n` characters at most: the left side is dropped."""
    start = max(0, len(text) - n)
    floor = grapheme_floor(text, start)
    return [(start if floor == start else next_grapheme(text, floor), len(text))]


def both_ends(text: str, n: int) -> list[Span]:
    """Returns the first and last half of `n` characters: the middle is dropped."""
    if n >= len(text):
        return [(0, len(text))]
    return beginning(text, (n + 1) // 2) + ending(text, n // 2)

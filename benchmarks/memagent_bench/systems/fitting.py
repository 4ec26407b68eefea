"""Fits as much of a document as possible into one prompt; counts tokens only of candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memagent.memory.plan import MemoryPlan
from memagent.models.base import ChatModel
from memagent_bench.systems.asking import Asker
from memagent_bench.systems.base import Outcome

Span = tuple[int, int]
"""First character, and one past the last."""
SLACK = 1000
"""The search ends when at most a thousandth of the limit is unused: the last few tokens would take
more counts than all others together."""
ROUNDS = 60
"""Maximum rounds, far more than needed: about ten for prose, and every third halves the range."""


@dataclass(frozen=True)
class Excerpt:
    """The part of a document in a prompt."""

    text: str
    shown: float
    """Share of the document's characters."""
    prompt: int
    """Tokens of the whole prompt."""


async def ask_once(plan: MemoryPlan, model: ChatModel, part: Excerpt) -> Outcome:
    """Asks for the answer to an excerpt in the memory field.

    Raises:
        MemagentError: the call failed.
    """
    asker = Asker(plan, model)
    outcome = Outcome(
        answer=None,
        predicted_calls=1,
        predicted_tokens=part.prompt + plan.budget.output,
        shown=part.shown,
    )
    return await asker.conclude(asker.answer(part.text), outcome)


def excerpt(
    plan: MemoryPlan,
    text: str,
    choose: Callable[[int], Sequence[Span]],
    *,
    most: int,
    guess: int,
    gap: str,
) -> Excerpt:
    """Returns as much of a document as fits the memory field of the answer prompt. Blocks: it counts tokens.

    Args:
        plan: has the window, the output to leave free, and the counter.
        text: the document.
        choose: returns the spans to show, more of them for a larger number.
        most: the largest number.
        guess: a number that may fit.
        gap: text between two spans.
    """

    def show(n: int) -> str:
        return gap.join(text[start:end] for start, end in choose(n))

    def prompt(n: int) -> int:
        safe = plan.neutraliser.safe(show(n))
        return plan.counter.count_messages(plan.render("answer", 0, safe))

    limit = plan.budget.window - plan.budget.output
    n, tokens = find_largest(prompt, limit, most=most, guess=guess)
    chars = sum(end - start for start, end in choose(n))
    return Excerpt(show(n), chars / len(text), tokens)


def find_largest(
    tokens: Callable[[int], int], limit: int, *, most: int, guess: int
) -> tuple[int, int]:
    """Finds the largest number whose tokens are within a limit, to a thousandth of it.

    The guess grows at most fourfold until it is too large, so nothing far beyond the limit is ever counted.
    Then the search interpolates linearly between the ends of the range.

    Args:
        tokens: tokens of a number; roughly increasing.
        limit: maximum tokens.
        most: the largest possible number.
        guess: the number to start with.

    Returns:
        A number whose tokens were counted, and its tokens; the number is 0 if even 1 has too many.
    """
    low, used = 0, tokens(0)
    high, over = most + 1, 0
    n = min(max(guess, 1), most)
    for turn in range(ROUNDS):
        if low >= most or high - low <= 1:
            break
        size = tokens(n)
        if size <= limit:
            low, used = n, size
        else:
            high, over = n, size
        if 0 <= limit - used <= limit // SLACK:
            break
        if not over:
            n = min(4 * low, most)
        elif turn % 3 == 2:
            n = (low + high) // 2
        else:
            n = low + (high - low) * (limit - used) // max(over - used, 1)
        n = min(max(n, low + 1), high - 1)
    return low, used

"""A game of draws: one of them shows the value asked for, and draws don't come back."""

from __future__ import annotations

import random

from memagent.errors import ToolError
from memagent.tools import Tool, tool
from memagent_train.smoke.tokenizer import FILLER, KINDS

WORDS = 50
"""Words per draw: with a window of 256 tokens the context holds four draws."""
OTHERS = 3
"""Values of other kinds in each draw."""
LAST = "answer"
"""The last word of the last draw."""


class Draws:
    """Draw all cards, and then say which value of the asked kind was among them.

    Args:
        seed: seed of the deal.
        difficulty: number of draws.
    """

    def __init__(self, *, seed: int, difficulty: int) -> None:
        chance = random.Random(f"draws:{seed}:{difficulty}")
        kind = chance.choice(list(KINDS))
        self.value = chance.choice(KINDS[kind])
        others = [word for other in KINDS if other != kind for word in KINDS[other]]
        place = chance.randrange(difficulty)
        self._cards: list[str] = []
        for number in range(difficulty):
            words = [self.value] if number == place else []
            words += chance.choices(others, k=OTHERS)
            words += chance.choices(FILLER, k=WORDS - len(words))
            chance.shuffle(words)
            self._cards.append(" ".join([*words, LAST] if number == difficulty - 1 else words))
        self.task = f"ask {kind}"
        self.tools: tuple[Tool, ...] = (tool(self.draw),)
        self.steps = 0
        self._right: bool | None = None

    def draw(self) -> str:
        """Draws the next card."""
        self.steps += 1
        if self.steps > len(self._cards):
            raise ToolError(LAST)
        return self._cards[self.steps - 1]

    @property
    def over(self) -> bool:
        """Whether an answer was submitted."""
        return self._right is not None

    def finish(self, answer: str) -> bool:
        """Submits an answer; only the first one counts, and it is wrong before the last draw.

        Otherwise a policy could answer as soon as it sees the value, and remember nothing.
        """
        if self._right is None:
            self._right = self.steps >= len(self._cards) and answer.strip() == self.value
        return self._right

    def verdict(self) -> float:
        """Returns 1 for the right answer, else 0."""
        return float(self._right is True)

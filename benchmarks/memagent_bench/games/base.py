"""`Game`: an environment dealt from a seed."""

from __future__ import annotations

import random
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, TypeVar, final

from memagent.errors import ConfigError, ToolError
from memagent.messages import ToolSpec
from memagent.tasks.scores import equivalent
from memagent.texts import quote
from memagent.tools.base import Environment, Tool
from memagent.tools.signature import Signature, summary

EASIEST, HARDEST = 10, 10_000
"""Difficulties that every shipped game can be dealt at."""

OVER = "the game is over, an answer was handed in; this call did nothing"
ENDING = (
    "When you know the answer, reply with it alone, without other words, or hand it to the tool `done`. "
    "Only the first answer counts."
)
COMMA = re.compile(r"\s*,\s*")
IDEMPOTENT = "__idempotent__"

Method = TypeVar("Method", bound=Callable[..., str])


def query(method: Method) -> Method:
    """Offers a method as a read-only tool."""
    setattr(method, IDEMPOTENT, True)
    return method


def act(method: Method) -> Method:
    """Offers a method as a tool that changes the game; its results are numbered."""
    setattr(method, IDEMPOTENT, False)
    return method


class Deal(NamedTuple):
    """The start of a game, apart from its hidden state."""

    task: str
    answer: str
    """The right answer. Several values are separated by a comma and a space."""


class Game(Environment):
    """One game. The same name, seed and difficulty give the same game, in any process.

    A tool's result is one line that repeats the call and ends with a full stop, so different calls never
    have the same result. Results of non-idempotent tools are numbered. A tool raises `ToolError` for an impossible
    action, which also counts as a step.

    Args:
        seed: any integer.
        difficulty: approximate number of tool calls that an expert with perfect memory needs; `easiest` to 10,000.

    Raises:
        ConfigError: a setting has a bad value, or no method is marked as a tool.
    """

    name: ClassVar[str]
    easiest: ClassVar[int] = EASIEST
    """The lowest difficulty; your own game may set a lower one."""

    def __init__(self, *, seed: int, difficulty: int) -> None:
        if type(seed) is not int:
            raise ConfigError(f"seed must be an integer, got {seed!r}")
        if type(difficulty) is not int or not self.easiest <= difficulty <= HARDEST:
            raise ConfigError(
                f"difficulty must be an integer from {self.easiest} to {HARDEST}, got {difficulty!r}"
            )
        self.steps = 0
        """Calls made before the end, including impossible ones, without `done`."""
        self._right: bool | None = None
        # A string seed is hashed the same way in every process.
        rng = random.Random(f"{self.name} {seed} {difficulty}")
        deal = self._deal(rng, difficulty)
        self._answer = deal.answer
        self.task = f"{deal.task}\n\n{ENDING}"
        """The task that the model is given."""
        self.tools: tuple[Tool, ...] = tuple(self._offers())

    @abstractmethod
    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        """Sets the hidden state."""

    @property
    def over(self) -> bool:
        """Whether an answer was submitted."""
        return self._right is not None

    def verdict(self) -> float:
        """Returns 1.0 if the first answer was right, 0.0 if it was wrong or there is none yet."""
        return float(self._right is True)

    def finish(self, answer: str) -> bool:
        """Submits an answer, which ends the game.

        Returns:
            Whether the first answer was right; later ones change nothing.
        """
        if self._right is None:
            self._right = self._judge(answer)
        return self._right

    def _judge(self, answer: str) -> bool:
        """Judges an answer: numbers are compared by value, words case-insensitively."""
        if ", " in self._answer:
            answer = COMMA.sub(", ", answer)
        return equivalent(answer, [self._answer]) == 1

    @final
    def _offers(self) -> list[Tool]:
        marked = {
            name: getattr(method, IDEMPOTENT)
            for kind in reversed(type(self).__mro__)
            for name, method in vars(kind).items()
            if hasattr(method, IDEMPOTENT)
        }
        if not marked:
            raise ConfigError(
                f"the game {self.name!r} offers no tool of its own: mark its methods with @query or @act (of "
                f"memagent_bench.games.base)"
            )
        offered = [self._offer(getattr(self, name), marked[name]) for name in marked]
        # Only the first answer counts, so submitting twice has no further effect.
        return [*offered, replace(self._offer(self.done, idempotent=True), final=True)]

    def _offer(self, method: Callable[..., str], idempotent: bool) -> Tool:
        signature = Signature.of(method)

        async def run(arguments: Mapping[str, Any]) -> str:
            if self.over:
                raise ToolError(OVER)
            self.steps += method != self.done
            return signature.bind(arguments)()

        spec = ToolSpec(
            name=method.__name__, description=summary(method), parameters=signature.schema
        )
        return Tool(spec, run, idempotent, read_only=idempotent and method != self.done)

    def done(self, answer: str) -> str:
        """Hands in the answer and ends the game. Only the first answer counts."""
        if not answer.strip():
            raise ToolError("the answer is empty; the game goes on")
        self.finish(answer)
        return answer


def within(what: str, number: int, count: int) -> int:
    """Converts a number from 1 to `count` to an index.

    Raises:
        ToolError: the number is out of range.
    """
    if not 1 <= number <= count:
        raise ToolError(f"there is no {what} {quote(number)}; they are numbered 1 to {count}")
    return number - 1

"""Games with everything that they are played with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memagent.messages import ChatRequest
from memagent.models.scripted import ScriptedModel
from memagent.prompts.session import SessionPrompts
from memagent.tokens import ByteBound
from memagent_bench.games import expert, make
from memagent_bench.sessions.counter import ChatCounter
from memagent_bench.sessions.expert import ExpertOver
from memagent_bench.sessions.seat import Seat

PROMPTS = SessionPrompts.load()


def nothing(request: ChatRequest) -> str:
    return "nothing"


class Seated:
    """A seat, and the requests that left it."""

    def __init__(
        self,
        game: str = "heaviest",
        difficulty: int = 20,
        *,
        window: int | None = None,
        protocol: Any = "native",
        max_steps: int = 100,
        replies: Callable[[ChatRequest], Any] | None = None,
    ) -> None:
        counter = ChatCounter(ByteBound())
        self.paid = ScriptedModel(replies or nothing, window=window, counter=counter)
        model = (
            ExpertOver(self.paid, expert(game), native=protocol == "native")
            if replies is None
            else self.paid
        )
        self.seat = Seat(
            make(game, seed=1, difficulty=difficulty), model, protocol, PROMPTS, max_steps, 1
        )
        self.counter = counter

    @property
    def prompts(self) -> list[int]:
        """Tokens of each prompt that was sent."""
        return [
            self.counter.count_messages(request.messages, tools=request.tools)
            for request in self.paid.requests
        ]

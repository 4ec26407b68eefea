"""A game with its player, and how it may end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memagent.messages import Leaf
from memagent.models.base import ChatModel
from memagent.prompts.session import SessionPrompts
from memagent.session.plan import Protocol
from memagent.tools import Environment
from memagent_bench.sessions.record import Reason


class SessionEnd(Leaf):
    """How a session ended."""

    answer: str | None = None
    reason: Reason = Reason.ANSWERED
    detail: str = ""
    """Why there is no answer."""
    summaries: int = 0


@dataclass(frozen=True)
class Seat:
    """A game with everything needed to play it."""

    environment: Environment
    model: ChatModel
    """The player."""
    protocol: Protocol
    prompts: SessionPrompts
    max_steps: int
    seed: int
    follow: Callable[[], str | None] = lambda: None
    """Returns what the user says after an answer; None if that was the last one."""

"""The tool agent without summaries: the oldest draws leave the context when it is full."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources

from memagent.messages import ChatRequest, Completion
from memagent.models.base import ChatModel, Wrapper
from memagent.tasks import Sample
from memagent.threads import in_thread
from memagent_draws.material import GRPO, WIDE, WINDOW
from memagent_train.rollouts import Outcome
from memagent_train.sessions import SessionFunction, SessionSettings

HEAD = 2
"""Messages that always stay: the system prompt and the task."""


class Sliding(Wrapper):
    """Accepts prompts of a whole game, and shows the policy what fits: the task and the newest draws."""

    async def window(self) -> int:
        """Returns the tokens of a whole game."""
        return WIDE

    async def complete(self, request: ChatRequest) -> Completion:
        """Returns the wrapped model's reply to the request without its oldest calls and results."""
        counter = await self.inner.counter()
        messages = request.messages
        room = WINDOW - request.max_tokens
        while counter.count_messages(messages, tools=request.tools) > room:
            messages = (*messages[:HEAD], *messages[HEAD + 2 :])
        return await self.inner.complete(request.model_copy(update={"messages": messages}))


async def play(model: ChatModel, sample: Sample) -> Outcome:
    """Plays a game as the tool agent of grpo.toml does, but drops the oldest draws instead of summarising them.

    Raises:
        ConfigError: the sample isn't a game.
    """
    agent = await in_thread(_agent)
    return await agent(Sliding(model), sample)


@cache
def _agent() -> SessionFunction:
    folder = resources.files("memagent_draws")
    settings = tomllib.loads(folder.joinpath(GRPO).read_text(encoding="utf-8"))["agent"]["tools"]
    settings |= {"prompts": str(folder.joinpath(settings["prompts"])), "max_summaries": 0}
    return SessionFunction(SessionSettings(**{**settings, "working_context": WIDE}), None, None)

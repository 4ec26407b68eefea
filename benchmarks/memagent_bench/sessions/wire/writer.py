"""A language model that writes the summaries instead of the rules; everything else is still played by rules."""

from __future__ import annotations

from collections.abc import Sequence

from memagent.budget import JOINT_SLACK
from memagent.chunking.fitting import ends
from memagent.errors import ConfigError
from memagent.messages import ChatRequest, Message, Sampling
from memagent.models.base import ChatModel
from memagent.models.retry import count_in_thread
from memagent.threads import run_sync
from memagent.tokens import TokenCounter

REPLY_SHARE = 4
"""Divisor of the model's window: a summary takes at most a quarter of it."""
GAP = "\n[...]\n"


class Writer:
    """Writes summaries with a model; if its window is smaller than the prompts, it reads their two ends.

    The messages become one text, since small models don't know tools and their results.

    Args:
        model: the model that writes.
    """

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    def __call__(self, messages: Sequence[Message], most: int) -> str:
        """Writes the summary. Waits for the model.

        Raises:
            ConfigError: the model doesn't report its window.
            ModelError: the model failed.
        """
        return run_sync(self._write(messages, most))

    async def _write(self, messages: Sequence[Message], limit: int) -> str:
        window = await self._model.window()
        if window is None:
            raise ConfigError(f"{self._model.name!r} doesn't report its window, so it can't write")
        room = min(limit, window // REPLY_SHARE)
        fitted = (fit, _flatten(messages), window - room, await self._model.counter())
        text = await count_in_thread(self._model, *fitted)
        request = ChatRequest(
            messages=(Message(role="user", content=text),),
            max_tokens=room,
            sampling=Sampling(temperature=0),
            kind="summary",
        )
        return (await self._model.complete(request)).text


def fit(text: str, limit: int, counter: TokenCounter) -> str:
    """Returns the text, or its two ends, so that a prompt with it fits a limit of tokens. Blocks."""
    room = limit - counter.count_messages((Message(role="user", content=""),)) - JOINT_SLACK
    if counter.count(text) <= room:
        return text
    first, last = ends(text, room - counter.count(GAP), counter)
    return text[:first] + GAP + text[last:]


def _flatten(messages: Sequence[Message]) -> str:
    return "\n\n".join(
        "\n".join(
            (message.content, *(f"{c.name}({c.arguments})" for c in message.tool_calls))
        ).strip()
        for message in messages
    )

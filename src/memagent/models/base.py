"""The one seam: everything above sees a model as a `ChatModel`, everything below implements it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from memagent.errors import ConfigError, ContextOverflow
from memagent.messages import ChatRequest, Completion
from memagent.models.policy import Policy, policy_of
from memagent.tokens.base import TokenCounter
from memagent.tokens.template import TEXT_PROTOCOL


class ChatModel(Protocol):
    """A chat model, wherever it runs. Implementations are safe to call from several tasks and event loops."""

    @property
    def name(self) -> str:
        """Names the model in records and binds runs to it (`vllm:Qwen/Qwen3-4B`)."""
        ...

    async def complete(self, request: ChatRequest) -> Completion:
        """Sends one request.

        Raises:
            ContextOverflow: prompt and `max_tokens` do not fit the window together; nothing was sent, where the
                prompt can be counted.
            ModelError: the call failed; never an empty `Completion` in its place.
            LimitReached: a usage limit would be passed; nothing was sent.
        """
        ...

    async def counter(self) -> TokenCounter:
        """The model's own token counter, or the best bound there is; a `ModelError` where its server is silent."""
        ...

    async def window(self) -> int | None:
        """Most tokens of prompt plus output, None where nobody says; a `ModelError` where its server is silent."""
        ...

    async def aclose(self) -> None:
        """Frees connections; the model may not be used after it."""
        ...


def refuse_overflow(who: str, prompt: int, output: int, window: int | None) -> None:
    """Raises a `ContextOverflow` where the tokens of prompt and output do not fit the window together."""
    if window is not None and prompt + output > window:
        raise ContextOverflow(
            f"{who}: the prompt takes {prompt} tokens, with {output} for the output that is over its "
            f"window of {window}; nothing was sent. Use a smaller window (--window), a shorter prompt or fewer "
            f"max_tokens",
            attempts=0,
        )


def refuse_tools(who: str, request: ChatRequest) -> None:
    """Raises a `ConfigError` where a request has tools: what a model in this process says is not read for calls."""
    if request.tools:
        names = [tool.name for tool in request.tools]
        raise ConfigError(
            f"the model {who!r} runs in this process and its replies are not read for calls of the tools {names!r}; "
            f"{TEXT_PROTOCOL}, or serve it (vllm:, sglang:)"
        )


class Unserved:
    """Base of models without a server, which know their counter and window and hold nothing."""

    name = ""

    def __init__(self, counter: TokenCounter, window: int | None) -> None:
        self._counter, self._window = counter, window

    def count_prompt(self, request: ChatRequest) -> int:
        """Tokens of a prompt; a `ContextOverflow` where it does not fit the window with its output."""
        messages, thinking, tools = request.messages, request.thinking, request.tools
        prompt = self._counter.count_messages(messages, thinking=thinking, tools=tools)
        refuse_overflow(self.name, prompt, request.max_tokens, self._window)
        return prompt

    async def counter(self) -> TokenCounter:
        """The model's counter."""
        return self._counter

    async def window(self) -> int | None:
        """The window that it was made with."""
        return self._window

    async def aclose(self) -> None:
        """Nothing is held."""


class Wrapper:
    """A model around another model: passes everything on. Subclasses override `complete`."""

    opened_with: Mapping[str, Any] | None = None
    """Arguments of `open_model` that are no secret, if it made this wrapper."""

    def __init__(self, inner: ChatModel) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        """The wrapped model's name: wrapping does not change what a model is."""
        return self.inner.name

    @property
    def policy(self) -> Policy:
        """What the wrapped model says of how it wants to read."""
        return policy_of(self.inner)

    @property
    def recipe(self) -> dict[str, Any]:
        """What `open_model` needs to open the wrapped model again, without secrets."""
        if self.opened_with is not None:
            return {"model": self.name, **self.opened_with}
        return getattr(self.inner, "recipe", {"model": self.name})

    async def complete(self, request: ChatRequest) -> Completion:
        """Passes the request on."""
        return await self.inner.complete(request)

    async def counter(self) -> TokenCounter:
        """The wrapped model's counter."""
        return await self.inner.counter()

    async def window(self) -> int | None:
        """The wrapped model's window."""
        return await self.inner.window()

    async def aclose(self) -> None:
        """Closes the wrapped model."""
        await self.inner.aclose()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

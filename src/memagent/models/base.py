"""The `ChatModel` protocol: agents see every model through it, and every model implements it."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any, Protocol

from memagent.errors import ConfigError, ContextOverflow
from memagent.messages import ChatRequest, Completion
from memagent.models.policy import Policy, policy_of
from memagent.tokens.base import TokenCounter


class ChatModel(Protocol):
    """A chat model, wherever it runs. Implementations are safe to call from several tasks and event loops."""

    @property
    def name(self) -> str:
        """Names the model in records and binds runs to it (`vllm:Qwen/Qwen3-4B`)."""
        ...

    async def complete(self, request: ChatRequest) -> Completion:
        """Sends one request.

        Raises:
            ContextOverflow: prompt plus `max_tokens` do not fit the window; nothing was sent, if the
                prompt can be counted.
            ModelError: the call failed; an empty `Completion` is never returned instead.
            LimitReached: a usage limit would be exceeded; nothing was sent.
        """
        ...

    async def counter(self) -> TokenCounter:
        """Returns the model's token counter, or the best bound. Raises a `ModelError` if its server doesn't answer."""
        ...

    async def window(self) -> int | None:
        """Returns the most tokens of prompt plus output, None if unknown. Raises `ModelError` if no server answers."""
        ...

    async def aclose(self) -> None:
        """Releases connections; the model can't be used afterwards."""
        ...


def check_window(window: int | None) -> None:
    """Raises a `ConfigError` unless a window is a number of tokens, or unknown (None)."""
    if window is not None and not (isinstance(window, Integral) and window >= 1):
        raise ConfigError(f"window must be a whole number of at least 1 token, got {window!r}")


def refuse_overflow(who: str, prompt: int, output: int, window: int | None) -> None:
    """Raises a `ContextOverflow` if the tokens of prompt plus output do not fit the window."""
    if window is not None and prompt + output > window:
        raise ContextOverflow(
            f"{who}: a prompt of {prompt} tokens plus {output} for the output exceeds its "
            f"window of {window}; nothing was sent. Use a smaller window (--window), a shorter prompt or fewer "
            f"max_tokens",
            attempts=0,
        )


class SimpleModel:
    """Base of models without a server, which know their counter and window and hold no resources."""

    name = ""

    def __init__(self, counter: TokenCounter, window: int | None) -> None:
        check_window(window)
        self._counter, self._window = counter, window

    def count_prompt(self, request: ChatRequest) -> int:
        """Counts a prompt's tokens. Raises a `ContextOverflow` if prompt plus output do not fit the window."""
        messages, thinking, tools = request.messages, request.thinking, request.tools
        prompt = self._counter.count_messages(messages, thinking=thinking, tools=tools)
        refuse_overflow(self.name, prompt, request.max_tokens, self._window)
        return prompt

    async def counter(self) -> TokenCounter:
        """Returns the model's counter."""
        return self._counter

    async def window(self) -> int | None:
        """Returns the window that it was created with."""
        return self._window

    async def aclose(self) -> None:
        """Does nothing: there are no resources."""


class Wrapper:
    """Wraps another model and passes everything on. Subclasses override `complete`."""

    opened_with: Mapping[str, Any] | None = None
    """Non-secret arguments of `open_model`, if it made this wrapper."""

    def __init__(self, inner: ChatModel) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        """The wrapped model's name: wrapping does not change what a model is."""
        return self.inner.name

    @property
    def policy(self) -> Policy:
        """The wrapped model's reading settings."""
        return policy_of(self.inner)

    @property
    def recipe(self) -> dict[str, Any]:
        """What `open_model` needs to reopen the wrapped model, without secrets."""
        if self.opened_with is not None:
            return {"model": self.name, **self.opened_with}
        return getattr(self.inner, "recipe", {"model": self.name})

    async def complete(self, request: ChatRequest) -> Completion:
        """Passes the request on."""
        return await self.inner.complete(request)

    async def counter(self) -> TokenCounter:
        """Returns the wrapped model's counter."""
        return await self.inner.counter()

    async def window(self) -> int | None:
        """Returns the wrapped model's window."""
        return await self.inner.window()

    async def aclose(self) -> None:
        """Closes the wrapped model."""
        await self.inner.aclose()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"


def innermost(model: ChatModel) -> ChatModel:
    """Returns the model without its wrappers."""
    return innermost(model.inner) if isinstance(model, Wrapper) else model

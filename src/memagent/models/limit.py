"""What calls take, and limits around a model: how many at once, and how much in all."""

from __future__ import annotations

import asyncio
import copy
import math
import threading
import time
from functools import partial
from typing import Self

from pydantic import model_validator

from memagent.errors import ConfigError, LimitReached, ModelError, TokenizerError
from memagent.messages import ChatRequest, Completion, Options, Usage
from memagent.models.base import ChatModel, Wrapper
from memagent.models.sharing import PerLoop
from memagent.threads import in_thread
from memagent.tokens.base import TokenCounter
from memagent.tokens.byte_bound import ByteBound

PRICE_UNIT = 1_000_000
"""Prices are for a million tokens, as providers list them."""


class ConcurrencyLimit(Wrapper):
    """Lets at most `n` calls run at once; the others wait their turn. Each event loop has its own `n`.

    Put it outside of a `UsageLimit`: a call is then checked when its turn comes, not when it queues.

    Raises:
        ConfigError: `n` is below 1.
    """

    def __init__(self, inner: ChatModel, n: int) -> None:
        super().__init__(inner)
        if n < 1:
            raise ConfigError(f"concurrency {n!r} would let no call through; give 1 or more")
        self._turns = PerLoop(partial(asyncio.Semaphore, n))

    async def complete(self, request: ChatRequest) -> Completion:
        """Sends the request when it is its turn."""
        async with self._turns.get():
            return await self.inner.complete(request)

    def around(self, inner: ChatModel) -> ConcurrencyLimit:
        """The same turns around another model: both together have at most `n` calls running."""
        shared = copy.copy(self)
        shared.inner = inner
        return shared


class Limits(Options):
    """How much may be spent. None sets no limit.

    Raises:
        ConfigError: a limit is unknown or negative, or `cost` comes without both prices.
    """

    calls: int | None = None
    """Calls. One that is sent again by a `Retry` inside the limit counts once; of what earlier sessions of a run
    made, every attempt counts."""
    tokens: int | None = None
    """Prompt and completion tokens together, with those of replies that were thrown away."""
    seconds: float | None = None
    """Seconds of wall clock since the first call."""
    cost: float | None = None
    """Money, in the currency of the prices."""
    prompt_price: float | None = None
    """Price of a million prompt tokens. Cached ones count in full."""
    completion_price: float | None = None
    """Price of a million completion tokens."""
    answer: bool = False
    """When a limit stops a reading, make one more call a question to answer from the memory so far. Such an answer is
    marked (`Result.partial`), and the run stays resumable."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in set(type(self).model_fields) - {"answer"}:
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f"limit {name}={value!r} is impossible; give a number from 0 on")
        if self.cost is not None and None in (self.prompt_price, self.completion_price):
            raise ConfigError(
                f"cost={self.cost!r} cannot be watched without prices; give prompt_price= and "
                f"completion_price=, each for a million tokens in the currency of the cost"
            )
        return self

    def price(self, usage: Usage) -> float | None:
        """What the calls cost, in the currency of the prices; None without both.

        Tokens of replies that were thrown away count at the higher price, since they are not known apart.
        """
        prompt, completion = self.prompt_price, self.completion_price
        if prompt is None or completion is None:
            return None
        cost = usage.prompt_tokens * prompt + usage.completion_tokens * completion
        return (cost + usage.retry_tokens * max(prompt, completion)) / PRICE_UNIT


class Metered(Wrapper):
    """Completes the usage of replies, so that nothing is free because a server keeps it to itself.

    Figures that a server leaves out, and impossible ones (below 0, no prompt), are counted: see `complete_usage`.
    """

    async def complete(self, request: ChatRequest) -> Completion:
        """Passes the request on; the reply says what it took."""
        completion = await self.inner.complete(request)
        if min(completion.usage.prompt_tokens, completion.usage.completion_tokens) > 0:
            return completion
        try:
            return await in_thread(complete_usage, request, completion, await self.inner.counter())
        except (ModelError, TokenizerError):  # the reply is here, and paid for
            return await in_thread(complete_usage, request, completion, ByteBound())


def complete_usage(
    request: ChatRequest, completion: Completion, counter: TokenCounter
) -> Completion:
    """The reply to `request` with a usage that has both figures, by the model's `counter`. Blocks.

    `request.prompt_tokens` are taken before the prompt is counted. Raises what the counter raises.
    """
    usage = completion.usage
    prompt, output = usage.prompt_tokens, usage.completion_tokens
    if prompt <= 0:
        prompt = request.prompt_tokens or counter.count_messages(
            request.messages, thinking=request.thinking, tools=request.tools
        )
    if output <= 0:
        texts = [completion.text, completion.reasoning]
        for call in completion.tool_calls:
            texts += [call.name, call.arguments]
        output = sum(map(counter.count, texts))
    both = usage.model_copy(update={"prompt_tokens": prompt, "completion_tokens": output})
    return completion.model_copy(update={"usage": both})


class UsageLimit(Metered):
    """Refuses calls once a limit is reached. What a server does not report is counted (`Metered`).

    Exactly `limits.calls` calls are let through; each counts from its start, also if it fails. Tokens, cost and
    seconds are compared before a call: the call that reaches a limit is completed, as are those under way beside
    it, so the amount can end above the limit by what these calls take. Calls that wait in a `ConcurrencyLimit`
    inside of this wrapper are under way as well: put that one around it.

    A retry inside this wrapper is paid for where the reply says what it took (`Usage.retry_tokens`, at the
    higher of both prices); a call that failed for good adds a call, but no tokens.

    Args:
        inner: the model to call.
        limits: how much may be spent.
        spent: what an earlier part of the same run has spent; it counts.
    """

    def __init__(self, inner: ChatModel, limits: Limits, *, spent: Usage | None = None) -> None:
        super().__init__(inner)
        self.limits = limits
        self._lock = threading.Lock()
        self._spent = spent or Usage()
        # A call that led to nothing counted when it was made, so it counts when the run is resumed.
        self._calls = self._spent.calls + self._spent.retries + self._spent.discarded
        self._started: float | None = None

    async def complete(self, request: ChatRequest) -> Completion:
        """Sends the request; a `LimitReached` in its place where a limit is reached."""
        with self._lock:
            self._check()
            self._calls += 1
        completion = await super().complete(request)
        with self._lock:
            self._spent += completion.usage
        return completion

    def _check(self) -> None:
        now = time.monotonic()
        self._started = now if self._started is None else self._started
        limits, spent = self.limits, self._spent
        tokens = spent.prompt_tokens + spent.completion_tokens + spent.retry_tokens
        for name, used, limit in (
            ("calls", self._calls, limits.calls),
            ("tokens", tokens, limits.tokens),
            ("seconds", round(now - self._started, 1), limits.seconds),
            ("cost", round(limits.price(spent) or 0.0, 6), limits.cost),
        ):
            if limit is not None and used >= limit:
                raise LimitReached(
                    f"the limit {name}={limit!r} is reached ({used!r} spent); raise it and resume the run"
                )

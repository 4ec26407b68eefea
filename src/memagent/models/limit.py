"""Usage accounting, and limits around a model: on concurrent calls, and on total usage."""

import asyncio
import copy
import threading
import time
from functools import partial
from numbers import Integral
from typing import Annotated, Self

from pydantic import Field, model_validator

from memagent.errors import ConfigError, LimitReached, ModelError, TokenizerError
from memagent.messages import ChatRequest, Completion, Options, Usage
from memagent.models.base import ChatModel, Wrapper
from memagent.models.sharing import PerLoop
from memagent.threads import in_thread
from memagent.tokens.base import TokenCounter
from memagent.tokens.byte_bound import ByteBound

PRICE_UNIT = 1_000_000
"""Prices are per million tokens, as providers list them."""
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ConcurrencyLimit(Wrapper):
    """Lets at most `n` calls run at once; others wait. The limit applies per event loop.

    Put it outside a `UsageLimit`: a call is then checked when its turn comes, not when it queues.

    Raises:
        ConfigError: `n` is below 1.
    """

    def __init__(self, inner: ChatModel, n: int) -> None:
        super().__init__(inner)
        if not (isinstance(n, Integral) and n >= 1):
            raise ConfigError(f"concurrency must be a whole number of at least 1, got {n!r}")
        self._turns = PerLoop(partial(asyncio.Semaphore, n))

    async def complete(self, request: ChatRequest) -> Completion:
        """Sends the request when it is its turn."""
        async with self._turns.get():
            return await self.inner.complete(request)

    def around(self, inner: ChatModel) -> Self:
        """Shares the limit with another model: together they run at most `n` calls."""
        limit = copy.copy(self)
        limit.inner = inner
        return limit


class Limits(Options):
    """How much may be spent. None means no limit.

    Raises:
        ConfigError: a limit is unknown or negative, or `cost` is given without both prices.
    """

    calls: int | None = Field(default=None, ge=0)
    """Calls. A call that a `Retry` inside the limit repeats counts once. From earlier sessions of a run, every
    attempt counts, and every call that was in flight when a session ended."""
    tokens: int | None = Field(default=None, ge=0)
    """Prompt plus completion tokens, including those of discarded replies."""
    seconds: Amount | None = None
    """Wall-clock seconds since the first call, checked before each call. A call isn't cut off, not even while it waits
    for a busy server: `RetryPolicy(deadline=)` bounds that."""
    cost: Amount | None = None
    """Money, in the currency of the prices."""
    prompt_price: Amount | None = None
    """Price per million prompt tokens. Cached ones count in full."""
    completion_price: Amount | None = None
    """Price per million completion tokens."""
    answer: bool = False
    """If a limit stops a reading, make one more call per question to answer from the memory so far. Such an answer is
    marked (`Result.partial`), and the run can still be resumed. Without effect on extractions and tool sessions."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.cost is not None and None in (self.prompt_price, self.completion_price):
            raise ConfigError(
                f"cost={self.cost!r} needs prices; give prompt_price= and completion_price= (--prompt-price, "
                f"--completion-price), per million tokens in the currency of the cost"
            )
        return self

    def price(self, usage: Usage) -> float | None:
        """Returns the calls' cost, in the currency of the prices; None without both prices.

        Tokens of discarded replies count at the higher price, since prompt and completion aren't separated there.
        """
        prompt, completion = self.prompt_price, self.completion_price
        if prompt is None or completion is None:
            return None
        cost = usage.prompt_tokens * prompt + usage.completion_tokens * completion
        return (cost + usage.retry_tokens * max(prompt, completion)) / PRICE_UNIT


class Metered(Wrapper):
    """Completes the usage of replies, so that nothing is free just because a server doesn't report it.

    Missing and impossible figures (negative, or no prompt) are counted instead: see `complete_usage`.
    """

    async def complete(self, request: ChatRequest) -> Completion:
        """Passes the request on; the reply has its full usage."""
        completion = await self.inner.complete(request)
        if min(completion.usage.prompt_tokens, completion.usage.completion_tokens) > 0:
            return completion
        try:
            counter = await self.inner.counter()
        except (ModelError, TokenizerError):
            counter = ByteBound()
        return await in_thread(complete_usage, request, completion, counter)


def complete_usage(
    request: ChatRequest, completion: Completion, counter: TokenCounter
) -> Completion:
    """Completes the usage of the reply to `request`, counting with the model's `counter`. Blocks.

    `request.prompt_tokens`, if given, saves counting the prompt. If the counter fails, bytes are counted.
    """
    usage = completion.usage
    prompt, output = usage.prompt_tokens, usage.completion_tokens
    texts = [completion.text, completion.reasoning]
    for call in completion.tool_calls:
        texts += [call.name, call.arguments]
    try:
        if prompt <= 0:
            prompt = request.prompt_tokens or counter.count_messages(
                request.messages, thinking=request.thinking, tools=request.tools
            )
        output = output if output > 0 else sum(map(counter.count, texts))
    except (ModelError, TokenizerError):  # the reply is here, and paid for
        return complete_usage(request, completion, ByteBound())
    full_usage = usage.model_copy(update={"prompt_tokens": prompt, "completion_tokens": output})
    return completion.model_copy(update={"usage": full_usage})


class UsageLimit(Metered):
    """Refuses calls once a limit is reached. Usage that a server does not report is counted (`Metered`).

    Exactly `limits.calls` calls are let through; each counts from its start, even if it fails. Tokens, cost and
    seconds are checked before a call: the call that reaches a limit is completed, and so are concurrent ones,
    so the total can exceed the limit by what these calls use. Calls that wait in a `ConcurrencyLimit`
    inside this wrapper count as concurrent, so put that limit outside.

    A retry inside this wrapper is charged if the reply reports its tokens (`Usage.retry_tokens`, at the
    higher price); a call that failed for good adds a call, but no tokens.

    Args:
        inner: the model to call.
        limits: how much may be spent.
        spent: what an earlier part of the same run has spent; it counts too.
    """

    def __init__(self, inner: ChatModel, limits: Limits, *, spent: Usage | None = None) -> None:
        super().__init__(inner)
        self.limits = limits
        self._lock = threading.Lock()
        self.spent = spent = spent or Usage()
        """Usage so far, including what was spent before."""
        # Whatever became of a call, it counts when the run is resumed.
        self._calls = spent.calls + spent.retries + spent.discarded + spent.repeated
        self._started: float | None = None

    async def complete(self, request: ChatRequest) -> Completion:
        """Sends the request, or raises a `LimitReached` if a limit is reached."""
        with self._lock:
            self._check()
            self._calls += 1
        completion = await super().complete(request)
        with self._lock:
            self.spent += completion.usage
        return completion

    def _check(self) -> None:
        now = time.monotonic()
        self._started = now if self._started is None else self._started
        limits, spent = self.limits, self.spent
        tokens = spent.prompt_tokens + spent.completion_tokens + spent.retry_tokens
        for name, amount, limit in (
            ("calls", self._calls, limits.calls),
            ("tokens", tokens, limits.tokens),
            ("seconds", round(now - self._started, 1), limits.seconds),
            ("cost", round(limits.price(spent) or 0.0, 6), limits.cost),
        ):
            if limit is not None and amount >= limit:
                raise LimitReached(
                    f"the limit {name}={limit!r} is reached ({amount!r} spent); raise it and resume the run"
                )

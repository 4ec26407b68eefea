"""Sends a failed call again: the wrapper around every server model."""

from __future__ import annotations

import logging
import random
import time
from asyncio import sleep
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt
from tenacity.stop import stop_base, stop_before_delay

from memagent.errors import ConfigError, ModelError
from memagent.messages import ChatRequest, Completion, Failure
from memagent.models.base import ChatModel, Wrapper
from memagent.tokens.base import TokenCounter

logger = logging.getLogger("memagent.retry")

T = TypeVar("T")

FIRST_WAIT = 0.5
"""Seconds before the second attempt, doubled each time: a restarting server is not hammered, a lost
connection costs nearly nothing. The jitter takes up to half of it, so that callers do not come in step."""


class Retry(Wrapper):
    """Sends a call again when its error may pass (`ModelError.retryable`).

    The wait before attempt k + 1 is `0.5 * 2**(k - 1)` seconds with up to half of it taken away at random, at
    least what the server asks for (`retry_after`), and at most `max_wait`. The `Completion` that finally
    comes lists the failures. `counter` and `window`, which may ask the server, are retried as well.

    Args:
        inner: the model to call.
        attempts: how often a call is sent at most.
        max_wait: most seconds between two attempts.
        deadline: seconds from the first attempt after which none is started; None for no such limit.
            It does not cut off an attempt that is under way.

    Raises:
        ConfigError: fewer than one attempt, or a negative time.
    """

    def __init__(
        self,
        inner: ChatModel,
        *,
        attempts: int = 5,
        max_wait: float = 60.0,
        deadline: float | None = None,
    ) -> None:
        super().__init__(inner)
        if attempts < 1:
            raise ConfigError(f"attempts {attempts!r} is too few: a call is sent at least once")
        if not max_wait >= 0 or (deadline is not None and not deadline >= 0):
            raise ConfigError(
                f"max_wait {max_wait!r} and deadline {deadline!r} are seconds: 0 or more is possible"
            )
        self._attempts = attempts
        self._max_wait = max_wait
        self._deadline = deadline

    async def complete(self, request: ChatRequest) -> Completion:
        """Sends the request until it succeeds or cannot.

        Raises:
            ModelError: the last attempt's error, with `.attempts` set.
        """
        failures: list[Failure] = []
        completion = await self._persist(lambda: self.inner.complete(request), failures)
        if not failures:
            return completion
        usage = completion.usage
        return completion.model_copy(
            update={
                "failures": (*failures, *completion.failures),
                "usage": usage.model_copy(update={"retries": usage.retries + len(failures)}),
            }
        )

    async def counter(self) -> TokenCounter:
        """The wrapped model's counter."""
        return await self._persist(self.inner.counter, [])

    async def window(self) -> int | None:
        """The wrapped model's window."""
        return await self._persist(self.inner.window, [])

    async def _persist(self, call: Callable[[], Awaitable[T]], failures: list[Failure]) -> T:
        start = time.monotonic()

        async def attempt() -> T:
            return await call()

        def note(state: RetryCallState) -> None:
            error, wait = _error(state), state.upcoming_sleep
            failures.append(Failure(error=f"{type(error).__name__}: {error}", waited=wait))
            logger.warning(
                "%s: attempt %d of %d failed, the next one in %.1f s: %s",
                self.name,
                state.attempt_number,
                self._attempts,
                wait,
                error,
            )

        stop: stop_base = stop_after_attempt(self._attempts)
        if self._deadline is not None:
            stop = stop | stop_before_delay(self._deadline)
        retrying = AsyncRetrying(
            sleep=sleep,
            retry=retry_if_exception(_may_pass),
            wait=self._wait,
            stop=stop,
            before_sleep=note,
            reraise=True,
        )
        try:
            return await retrying(attempt)
        except ModelError as error:
            if not failures:
                raise
            tried = len(failures) + 1
            text = f"{error} (gave up after {tried} attempts over {time.monotonic() - start:.1f} s)"
            logger.debug("%s: %s", self.name, text)  # the caller hears it from the error
            raise _reworded(error, text, tried) from error.__cause__

    def _wait(self, state: RetryCallState) -> float:
        # The exponent is bounded because 2.0**1024 is an error.
        longest = min(FIRST_WAIT * 2.0 ** min(state.attempt_number - 1, 64), self._max_wait)
        jittered = longest * random.uniform(0.5, 1.0)
        return min(max(jittered, _error(state).retry_after or 0.0), self._max_wait)


def _reworded(error: ModelError, text: str, attempts: int) -> ModelError:
    """The same error with another text: a new one, since other tasks may hold the old one."""
    # Not through the class or `copy`, which call an `__init__` whose arguments only its author knows.
    final = ModelError.__new__(type(error), text)
    final.__dict__.update(vars(error))
    final.attempts = attempts
    return final


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, ModelError) and error.retryable


def _error(state: RetryCallState) -> ModelError:
    error = state.outcome.exception() if state.outcome is not None else None
    if not isinstance(error, ModelError):
        raise TypeError(f"only a ModelError is retried, not {error!r}")
    return error

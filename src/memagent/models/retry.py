"""Retries failed calls: the wrapper around every server model, and its counterpart for worker threads."""

from __future__ import annotations

import logging
import random
from asyncio import sleep, timeout
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import ParamSpec, TypeVar

from pydantic import Field

from memagent.errors import ConnectionFailed, ModelError, RequestTimeout, ServerBusy
from memagent.messages import ChatRequest, Completion, Failure, Options
from memagent.models.base import ChatModel, Wrapper
from memagent.texts import repair_surrogates
from memagent.threads import in_thread
from memagent.tokens.base import TokenCounter

logger = logging.getLogger("memagent.retry")

P = ParamSpec("P")
T = TypeVar("T")

FIRST_WAIT = 0.5
"""Seconds before the second attempt, doubled each time: a restarting server isn't hammered, and a lost
connection costs almost nothing. Jitter removes up to half of it, so that callers don't retry in step."""

LOST_WAIT = 10.0
"""Maximum seconds between two checks for a server that is down: little compared with the minute or more
that a vLLM server takes to start."""

FAILURES_KEPT = 20
"""Failures that a `Completion` lists. Ten minutes of waiting make about 80 of them per call in flight, and
all become events of the run, so the last entry sums up the rest."""


class RetryPolicy(Options, strict=True):
    """How long a call is retried while its error may be temporary (`ModelError.retryable`).

    The wait after the k-th failure is `0.5 * 2**(k - 1)` seconds minus a random part of up to half,
    at least what the server asks for (`retry_after`), and at most `max_wait`.

    If a server has answered before and now can't be reached (`ConnectionFailed`), or is busy or loading
    (`ServerBusy`), the call waits for it: such failures don't count as attempts for `patience` seconds.

    Raises:
        ConfigError: fewer than one attempt, a negative time, or a deadline of 0.
    """

    attempts: int = Field(default=5, ge=1)
    """Maximum number of attempts, not counting `patience`."""
    max_wait: float = Field(default=60.0, ge=0)
    """Maximum seconds between two attempts."""
    deadline: float | None = Field(default=None, gt=0)
    """Maximum seconds for a call with all its attempts and waits; None for no limit."""
    patience: float = Field(default=600.0, ge=0)
    """Seconds to wait for such a server, from its first consecutive failure. vLLM restarts in one to ten minutes."""


class Retry(Wrapper):
    """Retries a call if its error may be temporary; `RetryPolicy` documents the arguments, and when and how long.

    The final `Completion` lists the failures, the later ones of a long wait as one entry.
    `counter` and `window`, which may ask the server, are retried too. Invalid settings raise a
    `ConfigError`.
    """

    def __init__(
        self,
        inner: ChatModel,
        *,
        attempts: int = 5,
        max_wait: float = 60.0,
        deadline: float | None = None,
        patience: float = 600.0,
    ) -> None:
        super().__init__(inner)
        self.retries = RetryPolicy(
            attempts=attempts, max_wait=max_wait, deadline=deadline, patience=patience
        )
        self._answered = False  # only ever becomes true, so threads need no lock for it

    async def complete(self, request: ChatRequest) -> Completion:
        """Sends the request until it succeeds or retrying is pointless.

        Raises:
            ModelError: the last attempt's error, with `.attempts` set.
            RequestTimeout: the deadline passed before the first attempt ended.
        """
        course = self._course()
        completion = await course.run(lambda: self.inner.complete(request))
        # `window` and `counter` prove nothing: they may know the answer without the server.
        self._answered = True
        if not course.failures:
            return completion
        usage = completion.usage
        return completion.model_copy(
            update={
                "failures": (*course.failures, *completion.failures),
                "usage": usage.model_copy(update={"retries": usage.retries + course.sent - 1}),
            }
        )

    async def counter(self) -> TokenCounter:
        """Returns the wrapped model's counter."""
        return await self._course().run(self.inner.counter)

    async def window(self) -> int | None:
        """Returns the wrapped model's window."""
        return await self._course().run(self.inner.window)

    def _course(self) -> _Course:
        return _Course(self.retries, self.name, lambda: self._answered)


async def patiently(call: Callable[[], Awaitable[T]], *, name: str, model: object = None) -> T:
    """Calls until it succeeds or retrying is pointless, as the model's `Retry` does for a server that answered before.

    For requests outside `complete`. `call` asks once; the log uses the name `name`.

    Raises:
        ModelError: the last attempt's error, with `.attempts` set.
    """
    try:
        return await call()  # the usual case, without the 9 µs of a course
    except ModelError as error:
        if not error.retryable:
            raise
    while isinstance(model, Wrapper) and not isinstance(model, Retry):
        model = model.inner
    policy = model.retries if isinstance(model, Retry) else RetryPolicy()
    return await _Course(policy, name, lambda: True).run(call)


async def count_in_thread(
    model: ChatModel, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Runs token-counting work in a thread, and retries it if the counting server is down (see `patiently`)."""
    call: Callable[[], T] = partial(work, *args, **kwargs)
    return await patiently(partial(in_thread, call), name=model.name, model=model)


class _Course:
    """One call with all its attempts. `answered`: whether the server has answered a call before."""

    def __init__(self, policy: RetryPolicy, name: str, answered: Callable[[], bool]) -> None:
        self.failures: list[Failure] = []
        self.sent = 0
        self._policy, self._name, self._answered = policy, name, answered
        self._start = monotonic()
        self._last: ModelError | None = None
        self._used = 0
        """Attempts that count towards the limit."""
        self._away = 0
        """Consecutive failures, up to the latest, of a server being waited for."""
        self._away_since = 0.0

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """Calls until it succeeds, retrying is pointless, or the deadline passes."""
        timer = timeout(self._policy.deadline)
        try:
            async with timer:
                while True:
                    self.sent += 1
                    try:
                        return await call()
                    except ModelError as error:
                        if not error.retryable or self._is_over(wait := self._wait(error)):
                            raise
                        self._note(error, wait)
                    await sleep(wait)
        except ModelError as error:
            raise self._final(error) from error.__cause__
        except TimeoutError as error:
            if not timer.expired():  # a timeout of the model's own
                raise
            if (last := self._last) is not None:
                raise self._final(last) from last.__cause__
            raise RequestTimeout(
                f"{self._name}: no reply within the deadline of {self._policy.deadline:g} s; "
                f"raise deadline=, or send fewer calls at once"
            ) from error

    def _final(self, error: ModelError) -> ModelError:
        """Makes the caller's error: after retries a copy that says so, since other tasks may hold the original."""
        if self.sent == 1:
            return error
        seconds = monotonic() - self._start
        text = f"{error} (gave up after {self.sent} attempts over {seconds:.1f} s)"
        logger.debug("%s: %s", self._name, text)  # the caller learns it from the error
        # Not via the class or `copy`, which call an `__init__` with unknown arguments.
        final = ModelError.__new__(type(error), text)
        final.__dict__.update(vars(error))
        final.attempts = self.sent
        return final

    def _wait(self, error: ModelError) -> float:
        """Counts a failure and returns the seconds to wait after it."""
        self._last = error
        if isinstance(error, ConnectionFailed | ServerBusy) and self._answered():
            self._away_since = self._away_since if self._away else monotonic()
            self._away += 1
        else:
            self._away = 0
            self._used += 1
        max_wait = self._policy.max_wait
        cap = min(LOST_WAIT, max_wait) if self._away else max_wait
        # The exponent is bounded because 2.0**1024 overflows.
        backoff = min(FIRST_WAIT * 2.0 ** min((self._away or self._used) - 1, 64), cap)
        wait = backoff * random.uniform(0.5, 1.0)
        return min(max(wait, error.retry_after or 0.0), max_wait)

    def _is_over(self, wait: float) -> bool:
        policy, next_start = self._policy, monotonic() + wait
        if policy.deadline is not None and next_start - self._start >= policy.deadline:
            return True
        if self._away and next_start - self._away_since <= policy.patience:
            return False
        return self._used + self._away >= policy.attempts

    def _note(self, error: ModelError, wait: float) -> None:
        reason = repair_surrogates(str(error))
        text, total_wait = f"{type(error).__name__}: {reason}", wait
        # The stored error has the full text.
        is_repeat = bool(self.failures) and self.failures[-1].error == text
        summary = "same error" if is_repeat else reason.partition("; ")[0]
        if len(self.failures) == FAILURES_KEPT:
            text += f" (and {self.sent - FAILURES_KEPT} before it)"
            total_wait += self.failures.pop().waited
        self.failures.append(Failure(error=text, waited=total_wait))
        attempt = f"{self._used} of {self._policy.attempts}"
        if self._away:
            attempt = f"{self.sent} (waiting up to {self._policy.patience:g} s for the server)"
        template = "%s: attempt %s failed, retrying in %.1f s: %s"
        logger.warning(template, self._name, attempt, wait, summary)

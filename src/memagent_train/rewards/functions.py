"""Loads a user's reward function, given as `module:function`, and awaits async ones."""

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memagent.errors import ConfigError
from memagent.named import load_function
from memagent.tasks import Sample
from memagent_train.rewards.verdict import Verdict, read_verdict

RewardFunction = Callable[[str | None, Sample], Any]
"""Takes answer and sample; returns a value for `read_verdict`, or an awaitable of one."""


def load_reward(spec: str) -> RewardFunction:
    """Loads the function named by `module:function`; modules in the working directory are found too.

    Raises:
        ConfigError: there is no such function, its module can't be imported, or it doesn't accept an answer and a
        sample.
    """
    if spec.partition(":")[0] == "__main__":
        # A worker's __main__ is a different module from the starting process's.
        raise ConfigError(
            f"the reward {spec!r} is in the running script: move it to a separate module"
        )
    try:
        function = load_function(spec, "reward")
    except SystemExit as error:
        raise ConfigError(
            f"the reward {spec!r}: its module exits when it is imported; remove that"
        ) from error
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise ConfigError(f"the reward {spec!r} must accept (answer, sample): {error}") from error
    except ValueError:
        pass  # written in C, without a signature
    return function


def describe(error: BaseException) -> str:
    """Describes in one line what a user's function raised, and where."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})" if trace else ""
    message = " ".join(str(error).split())
    return (
        f"{type(error).__name__}: {message}{where}" if message else f"{type(error).__name__}{where}"
    )


class AwaitedReward:
    """A user's async function, on the event loop of the rollouts.

    Args:
        function: an `async def reward(answer, sample)`.
        limit: seconds that one call may take.
    """

    def __init__(self, function: RewardFunction, limit: float) -> None:
        self._function, self._limit = function, limit

    async def judge(self, answer: str | None, sample: Sample) -> Verdict:
        """See `Reward`."""
        waiting = asyncio.timeout(self._limit)
        try:
            async with waiting:
                return read_verdict(await self._function(answer, sample))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code may raise anything
            if waiting.expired() and isinstance(error, TimeoutError):
                return Verdict(
                    None, error=f"the reward function took longer than {self._limit:g} s"
                )
            return Verdict(None, error=f"the reward function raised {describe(error)}")

    async def aclose(self) -> None:
        """Does nothing: there are no resources."""

"""The verdict of a reward on one answer, and how a user function's return value is read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, SupportsFloat

from memagent.tasks import Sample

REWARD = "reward"
"""The key of the reward in a mapping."""
LARGEST = 1e9
"""Absolute value up to which numbers are accepted: far above it, sums and squares overflow (in float32, at 1e38)."""


@dataclass(frozen=True)
class Verdict:
    """The reward of one answer, or why there is none. Plain data, since it may come from another process."""

    reward: float | None
    """A finite number from -`LARGEST` to `LARGEST`; None if there is none."""
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    """Other finite figures to log."""
    error: str = ""
    """Why there is no reward; empty if there is one."""


class Reward(Protocol):
    """A source of verdicts. Safe for concurrent use by several tasks."""

    async def judge(self, answer: str | None, sample: Sample) -> Verdict:
        """Judges an answer (None if the rollout has none). If it raises, the rollout stays unscored."""
        ...

    async def aclose(self) -> None:
        """Releases the reward's resources."""
        ...


def read_verdict(value: object) -> Verdict:
    """Reads what a user's function returned: a number, None, or a mapping with `reward` and figures to log.

    A number is anything that `float()` accepts except text, up to `LARGEST`: also `True`, and scalars of numpy and
    torch. Other figures that are None, not finite or too large are left out.
    """
    if value is None:
        return Verdict(None, error="the reward function returned None")
    if not isinstance(value, Mapping):
        number, why = _number(value)
        return Verdict(
            number, error=why and f"the reward function returned {_shorten(value)}, {why}"
        )
    if REWARD not in value:
        return Verdict(
            None,
            error=f"the reward function returned a mapping without the key {REWARD!r} (it has {_shorten([*value])})",
        )
    scores: dict[str, float] = {}
    for name, figure in value.items():
        if name == REWARD or figure is None:
            continue
        number, why = _number(figure)
        if number is None and not _is_number(figure):
            return Verdict(
                None, error=f"the reward function's {_shorten(name)} is {_shorten(figure)}, {why}"
            )
        if number is not None:
            scores[str(name)] = number
    if value[REWARD] is None:
        return Verdict(None, scores, error="the reward function returned None as the reward")
    number, why = _number(value[REWARD])
    return Verdict(number, scores, error=why and f"the reward is {_shorten(value[REWARD])}, {why}")


def _number(value: object) -> tuple[float | None, str]:
    """Returns the value as a finite number of at most `LARGEST`, else None and the problem."""
    if not _is_number(value):
        return None, f"a {type(value).__name__}; it must be a number or None"
    try:
        number = float(value)  # pyright: ignore[reportArgumentType] - `_is_number` says so
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        return None, f"which is not a single number ({error})"
    if not math.isfinite(number):
        return None, "which is not finite"
    if abs(number) > LARGEST:
        return None, f"which is beyond {LARGEST:g}: scale rewards down"
    return number, ""


def _is_number(value: object) -> bool:
    return isinstance(value, SupportsFloat)


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."

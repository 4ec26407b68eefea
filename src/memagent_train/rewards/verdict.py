"""What a reward says of one answer, and how the value that a user's function gives is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, SupportsFloat

from memagent.tasks import Sample

REWARD = "reward"
"""The key of the reward in a mapping."""


@dataclass(frozen=True)
class Verdict:
    """The reward of one answer, or why there is none. Plain data: it comes from other processes too."""

    reward: float | None
    """Finite; None where there is none."""
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    """Finite figures that are logged beside it."""
    error: str = ""
    """Why there is no reward; empty where there is one."""


class Reward(Protocol):
    """A source of verdicts. Safe to ask from several tasks at once."""

    async def judge(self, answer: str | None, sample: Sample) -> Verdict:
        """The verdict on an answer; None where the rollout has none. May raise: that leaves the rollout unscored."""
        ...

    async def aclose(self) -> None:
        """Frees what it holds."""
        ...


def read_verdict(value: object) -> Verdict:
    """What a user's function gave: a number, None, or a mapping with `reward` and figures to log.

    Numbers are what `float()` takes besides texts: also `True`, and scalars of numpy and torch. Figures beside the
    reward that are None or not finite are left out.
    """
    if value is None:
        return Verdict(None, error="the reward function gave None")
    if not isinstance(value, Mapping):
        number, why = _number(value)
        return Verdict(number, error=why and f"the reward function gave {_shorten(value)}, {why}")
    if REWARD not in value:
        return Verdict(
            None,
            error=f"the reward function gave a mapping without the key {REWARD!r} (it has {_shorten([*value])})",
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
        return Verdict(None, scores, error="the reward function gave None as the reward")
    number, why = _number(value[REWARD])
    return Verdict(number, scores, error=why and f"the reward is {_shorten(value[REWARD])}, {why}")


def _number(value: object) -> tuple[float | None, str]:
    """The value as a finite number, else None and what is wrong with it."""
    if not _is_number(value):
        return None, f"a {type(value).__name__}; it has to be a number or None"
    try:
        number = float(value)  # pyright: ignore[reportArgumentType] - `_is_number` says so
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        return None, f"which is no single number ({error})"
    return (number, "") if math.isfinite(number) else (None, "which is not finite")


def _is_number(value: object) -> bool:
    return isinstance(value, SupportsFloat)


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."

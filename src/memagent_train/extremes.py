"""Figures that are the least or the largest of several values, not their mean."""

import math
import re
import statistics
from collections.abc import MutableSequence, Sequence

EXTREMES = {"min": min, "max": max}
"""How the values of a figure whose name ends in this word become one."""


def combine(name: str, values: Sequence[float]) -> float:
    """Returns the mean of a figure's values, or their extreme if its name ends in `min` or `max`."""
    return EXTREMES.get(_last_word(name), statistics.fmean)(values)


def keep_extremes(name: str, values: MutableSequence[float]) -> None:
    """Replaces the values of an extreme by it, so that TRL's mean of them is the extreme; leaves others alone.

    A NaN, from a pass of padding alone, isn't a value.
    """
    numbers = [value for value in values if not math.isnan(value)]
    if numbers and _last_word(name) in EXTREMES:
        values[:] = [combine(name, numbers)]


def _last_word(name: str) -> str:
    return re.split("[_/]", name)[-1]

"""Scores of an answer against its references, each in [0, 1]: benchmarks report them, rewards are made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Scorer = Callable[[str, Sequence[str]], float]
"""Answer and references -> [0, 1]."""

SCORERS: dict[str, Scorer] = {}
"""By name; filled below."""

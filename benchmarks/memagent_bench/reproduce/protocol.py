"""The published protocol: what is measured, with which settings, against which figures."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from memagent.errors import ConfigError
from memagent.memory.plan import MemorySettings
from memagent.messages import Sampling
from memagent.texts import show_length
from memagent_bench.published import Published, list_published
from memagent_bench.suites import one_of

_FILE: dict[str, Any] = tomllib.loads(
    (resources.files("memagent_bench") / "reproduce/protocol.toml").read_text(encoding="utf-8")
)
CHECKPOINTS: Mapping[str, str] = _FILE["checkpoints"]
"""Name -> its row in the published tables."""
SYSTEM = "memory"


@dataclass(frozen=True)
class Part:
    """One published row: a suite at some lengths."""

    suite: str
    row: str
    table: Published
    lengths: tuple[int, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """All tasks measured."""
        return self.table.tasks

    def figure(self, length: int) -> float:
        """Returns the published mean, in [0, 1]."""
        return self.table.scores[self.row][length]


def settings(seed: int) -> MemorySettings:
    """Returns the settings of the published system."""
    return MemorySettings(sampling=Sampling(**_FILE["sampling"]), seed=seed, **_FILE["agent"])


def parts(checkpoint: str, suites: Collection[str], lengths: Collection[int] | None) -> list[Part]:
    """Returns what to measure for a checkpoint.

    Args:
        checkpoint: one of `CHECKPOINTS`.
        suites: the suites to include.
        lengths: the published lengths to include; None for all.

    Raises:
        ConfigError: there is no such checkpoint, or nothing is published at a length.
    """
    row = CHECKPOINTS[one_of(checkpoint, CHECKPOINTS, "checkpoint")]
    tables = {
        suite: table for suite in suites for table in list_published(suite) if row in table.scores
    }
    published_lengths = {length for table in tables.values() for length in table.scores[row]}
    unknown = [] if lengths is None else sorted(set(lengths) - published_lengths)
    if unknown:
        raise ConfigError(
            f"there are no published figures for {checkpoint!r} at {show_length(unknown[0])}, only at "
            f"{', '.join(map(show_length, sorted(published_lengths)))}"
        )
    chosen = published_lengths if lengths is None else set(lengths)
    every = [
        Part(suite, row, table, tuple(sorted(chosen & set(table.scores[row]))))
        for suite, table in tables.items()
    ]
    return [part for part in every if part.lengths]

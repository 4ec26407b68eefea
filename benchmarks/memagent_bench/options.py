"""Options that determine the samples: the same options, task, length and index give the same sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from memagent.tasks import Task
from memagent.tokens import TokenCounter

Positions = Literal["published", "shuffled"]
"""`published`: RULER's generator decides places, the same in every sample where it does so; `shuffled`: drawn
for each sample."""


@dataclass(frozen=True)
class DataOptions:
    """Everything that a sample depends on besides task, length and index."""

    counter: TokenCounter
    """Counter of lengths: a task of length 8192 has at most that many of its tokens."""
    seed: int = 42
    positions: Positions = "published"
    nested: bool = False
    """Whether needles and questions don't depend on the length: a longer sample is a shorter one with more filler."""
    allow_repeats: bool = False
    """Whether filler of long QA may repeat; RULER's haystacks always repeat, as published, and say so."""
    essays: tuple[Path, ...] = ()
    """Texts of the essay haystack; empty for the shipped book."""
    frames: Path | None = None
    """Wording of the RULER tasks; None for memagent's own."""
    hotpotqa: tuple[Path, ...] = ()
    """HotpotQA files (JSON, gzipped or not)."""
    squad: Path | None = None
    paragraphs: tuple[Path, ...] = ()
    """Further paragraphs to hide the gold ones among."""
    sample_file: Path | None = None
    """The user's own samples."""


MakeTask = Callable[[int, DataOptions], Task]
"""Length in tokens, options -> task. Each suite has a dict of these by name, `TASKS`, in its `tasks.py`."""

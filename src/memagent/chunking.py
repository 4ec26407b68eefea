"""Text stream -> chunks. Without input or output of its own: pieces go in, chunks come out.

(Signature file: to be implemented.)
"""

from __future__ import annotations
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Cuts = Literal["sentence", "exact"]


@dataclass(frozen=True)
class Chunk:
    """Consecutive text of a document."""

    index: int
    text: str
    """The text as shown to the model: neutralised."""
    start: int
    """First character in the document (before neutralising)."""
    end: int
    """One past the last."""
    tokens: int
    """Tokens of `text`, at most the limit."""
    last: bool
    """True when the document ends with this chunk."""
    next_start: int
    """Where the next chunk starts: `end` without overlap, before it with."""
    digest: str
    """SHA-256 (hex) of the document's UTF-8 text up to `end`: binds a run to what was read."""
    neutralised: int
    """How many look-alikes were made harmless in `text`."""

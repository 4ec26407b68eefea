"""What each loop is given, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.integrations.book import Book

from memagent import SummaryBuffer


@dataclass
class Case:
    """One process's part of a session."""

    url: str
    buffer: SummaryBuffer
    book: Book
    streams: bool = False
    saved: Any = None
    """The history that an earlier process left, in the framework's form."""


@dataclass
class Played:
    """How it ended."""

    saved: Any
    answer: str | None = None
    """None if the process ended before."""

"""How values and errors are worded for a model: short, and in characters that can be sent."""

from __future__ import annotations

import reprlib
from typing import Any

VALUE_CHARS = 100
"""Enough of a wrong value to know it again."""
MESSAGE_CHARS = 2000
"""Enough for a long message, and little of a small window (600 tokens)."""

_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = _shown.maxlong = VALUE_CHARS


def clip(text: str, chars: int = MESSAGE_CHARS) -> str:
    """The text, or its beginning and how much is left out."""
    if len(text) <= chars:
        return text
    return f"{text[:chars]}... ({len(text) - chars} more characters)"


def shown(value: Any) -> str:
    """A value as an error quotes it, at a cost that does not grow with the value."""
    # What is nested is bounded at each level only, so that levels multiply.
    return clip(_shown.repr(value), VALUE_CHARS)


def message(error: BaseException) -> str:
    """What an error says, clipped; empty where it says nothing, or fails to."""
    try:
        return clip(str(error).strip())
    except Exception:  # noqa: BLE001 - it is whoever wrote the tool who wrote __str__
        return ""


def named(error: BaseException) -> str:
    """Class and message of an error: `ValueError: no such page`."""
    said = message(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def sendable(text: str) -> str:
    """The text without half surrogate pairs, which cannot be encoded: two halves become the character that they are."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text

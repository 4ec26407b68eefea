"""How errors are worded for a model: short."""

from __future__ import annotations

MESSAGE_CHARS = 2000
"""Enough for a long message, and little of a small window (600 tokens)."""


def clip(text: str, chars: int = MESSAGE_CHARS) -> str:
    """The text, or its beginning and how much is left out."""
    if len(text) <= chars:
        return text
    return f"{text[:chars]}... ({len(text) - chars} more characters)"


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

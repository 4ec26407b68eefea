"""What results were made with, compared with what is asked for now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def list_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Says which values two mappings do not share; empty where they are the same."""
    return "; ".join(
        f"{name} was {before.get(name)!r}, is {now.get(name)!r}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    )

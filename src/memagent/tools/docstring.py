"""What a Google-style docstring says of a function and of its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

_SECTION = re.compile(r"(Args|Arguments|Parameters):\s*")
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*:\s*(.*)")


def summary(function: Callable[..., Any]) -> str:
    """The first paragraph, as one line."""
    text = inspect.getdoc(function) or ""
    paragraph = re.split(r"\n\s*\n", text.strip(), maxsplit=1)[0]
    lines = paragraph.splitlines()
    # A docstring that begins with its arguments has no summary.
    return "" if lines and _SECTION.fullmatch(lines[0]) else " ".join(paragraph.split())


def parameters(function: Callable[..., Any]) -> dict[str, str]:
    """What the section `Args:` says of each parameter, as one line each."""
    found: dict[str, str] = {}
    name, indent = "", None
    for line in _section(inspect.getdoc(function) or ""):
        depth = len(line) - len(line.lstrip())
        indent = depth if indent is None else indent
        entry = _ENTRY.fullmatch(line.strip()) if depth <= indent else None
        if entry:
            name = entry[1]
            found[name] = entry[2].strip()
        elif name and depth > indent:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def _section(text: str) -> list[str]:
    """The lines of the section, without empty ones."""
    lines = iter(text.splitlines())
    for line in lines:
        if _SECTION.fullmatch(line):
            break
    taken: list[str] = []
    for line in lines:
        if line.strip() and not line[0].isspace():
            break  # the next section, or text that is no longer in it
        if line.strip():
            taken.append(line)
    return taken

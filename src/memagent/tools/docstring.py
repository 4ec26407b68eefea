"""What a Google-style docstring says of a function and of its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

_HEADING = r"(?:Args|Arguments|Parameters):[^\S\n]*"
_SECTION = re.compile(rf"^{_HEADING}\n((?:[^\S\n].*\n|\n)*)", re.MULTILINE)
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*:(.*)", re.DOTALL)


def summary(function: Callable[..., Any]) -> str:
    """The first paragraph, as one line."""
    text = (inspect.getdoc(function) or "").strip()
    # A docstring that begins with its arguments has no summary.
    if re.match(rf"{_HEADING}$", text, re.MULTILINE):
        return ""
    return " ".join(re.split(r"\n\s*\n", text, maxsplit=1)[0].split())


def parameters(function: Callable[..., Any]) -> dict[str, str]:
    """What the section `Args:` says of each parameter, as one line each."""
    section = _SECTION.search(f"{inspect.getdoc(function) or ''}\n")
    text = section[1] if section else ""
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    # What is indented more than the first line goes on with the line before.
    depth = len(lines[0]) - len(lines[0].lstrip())
    entries = re.split(rf"\n(?!\s{{{depth + 1}}})", "\n".join(lines))
    found = (_ENTRY.fullmatch(entry.strip()) for entry in entries)
    return {entry[1]: " ".join(entry[2].split()) for entry in found if entry}

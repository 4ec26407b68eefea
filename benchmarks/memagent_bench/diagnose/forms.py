"""Normal forms of texts, by scorer: a text holds a reference if its form contains the reference's form."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from memagent.tasks.scores import SCORERS, numbers, plain, squad

ALL_WANTED = frozenset({"string_match_all", "set_recall", "set_precision"})
"""Scorers with several required values as references; for the others, references are forms of one answer."""


def _space(text: str) -> str:
    """Puts a text's normalised words between spaces, so that only whole words match."""
    return f" {squad(text)} "


def _list_numbers(text: str) -> str:
    """Puts a text's numbers between bars, so that only whole numbers match."""
    return "".join(f"|{_shorten(number)}" for number in numbers(text)) + "|"


def _shorten(number: Decimal) -> str:
    """Formats a number without trailing zeros; `Decimal.normalize` would round beyond 28 digits."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


FORMS: dict[str, Callable[[str], str]] = {
    name: _list_numbers
    if name == "number_match"
    else plain
    if name.startswith("string_")
    else _space
    for name in SCORERS
}

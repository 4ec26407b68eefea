"""Forms of texts, by scorer: a text holds a reference where its form contains the reference's form."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from memagent.tasks.scores import SCORERS, numbers, plain, squad

ALL_WANTED = frozenset({"string_match_all", "set_recall", "set_precision"})
"""Scorers whose references are several required values; the others' are forms of one answer."""


def _space(text: str) -> str:
    """Its normalised words between spaces, so that only whole words are contained."""
    return f" {squad(text)} "


def _list_numbers(text: str) -> str:
    """Its numbers between bars, so that only whole numbers are contained."""
    return "".join(f"|{_shorten(number)}" for number in numbers(text)) + "|"


def _shorten(number: Decimal) -> str:
    """Without zeros at its end; `Decimal.normalize` would round beyond 28 digits."""
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

"""Differences of bindings are named."""

from __future__ import annotations

from memagent.runstore import list_differences


def test_differences_are_named_in_order() -> None:
    assert list_differences({"a": 1}, {"a": 1}) == ""
    assert list_differences({"b": 1, "a": 1, "c": 0}, {"a": 2, "c": 0}) == (
        "a was 1, is 2; b was 1, is None"
    )

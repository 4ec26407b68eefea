"""How numbers read."""

from __future__ import annotations

import pytest

from memagent_bench.report.words import (
    join_words,
    number,
    p_text,
    points,
    share,
    sign_points,
    suite_title,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (-0.0001, "0.0"), (0.0001, "0.0"), (0.0123, "+1.2"), (-0.0345, "\u22123.5")],
)
def test_signed(value: float, text: str) -> None:
    assert sign_points(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0%"),
        (1, "100%"),
        (0.5, "50%"),
        (0.004, "0.4%"),
        (0.9996, ">99.9%"),
        (0.0001, "<0.1%"),
        (0.995, "99.5%"),
    ],
)
def test_share(value: float, text: str) -> None:
    assert share(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.0004, "< 0.001"), (0.034, "0.034"), (1.0, "1.000")]
)
def test_p(value: float | None, text: str) -> None:
    assert p_text(value) == text


def test_numbers() -> None:
    assert [number(-0.001), number(-1.5, 1), number(1234.5, 0), number(None)] == [
        "0.00",
        "\u22121.5",
        "1,234",
        "–",
    ]
    assert [points(None), points(0.9123)] == ["–", "91.2"]


def test_lists() -> None:
    assert [join_words(["a"]), join_words(["a", "b"]), join_words(["a", "b", "c"])] == [
        "a",
        "a and b",
        "a, b and c",
    ]


def test_suites() -> None:
    assert [suite_title("ruler"), suite_title("mine")] == ["RULER", "mine"]

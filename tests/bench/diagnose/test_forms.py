from collections.abc import Callable

import pytest

from memagent_bench.diagnose.forms import FORMS


@pytest.mark.parametrize(
    ("name", "holds", "lacks"),
    [
        ("string_match_all", "noted: RED HOUSE.", "noted: red  house"),
        ("exact_match", "noted: (the) red house!", "redhouse, red houses"),
        ("f1", "the Red-, House", "blue house"),
        ("set_recall", "Red house; other", "red, house-boat"),
    ],
)
def test_forms_say_whether_a_text_holds_a_reference(name: str, holds: str, lacks: str) -> None:
    form: Callable[[str], str] = FORMS[name]
    assert form("red house") in form(holds)
    assert form("red house") not in form(lacks)
    assert form("red house") not in form("")


def test_a_text_holds_whole_numbers() -> None:
    form = FORMS["number_match"]
    assert form("1204") in form("by then 1,204 of them")
    assert form("12") in form("12.0")
    assert form("20") not in form("1204, 200, 20.5")
    long = "1" * 40
    assert form(long) not in form(long[:-1] + "2")

from memagent.tools.wording import clip, message, named


def test_a_short_text_is_left_as_it_is() -> None:
    assert clip("abc", 3) == "abc"


def test_a_long_text_says_how_much_is_left_out() -> None:
    assert clip("abcdef", 2) == "ab... (4 more characters)"


class Silent(Exception):
    def __str__(self) -> str:
        raise OSError


def test_an_error_is_its_class_and_message() -> None:
    assert named(ValueError("no such page")) == "ValueError: no such page"
    assert named(KeyError()) == "KeyError"
    assert named(Silent()) == "Silent"
    assert message(ValueError("x" * 10_000)).endswith("... (8000 more characters)")

"""Which turns a summary is made of, and what becomes of the one that made the context overflow."""

from typing import Any

import pytest
from tests.session.context.strict import acted, acts, call, lay_out, result, turns_of, user

from memagent.messages import Message
from memagent.session.context.layout import Layout, Past
from memagent.session.context.split import Split, split, split_early
from memagent.session.context.turns import Turn


def laid_out(*steps: tuple[str, int] | Message) -> tuple[Layout, tuple[Turn, ...]]:
    """The turns of steps: a tool and the length of its result, or a message."""
    layout = lay_out()
    messages: list[Message] = []
    for number, one in enumerate(steps):
        single = isinstance(one, Message)
        messages += [one] if single else acted(number, f"{number}".ljust(one[1], "."), one[0])
    return layout, turns_of(layout, *messages)


def divide(session: tuple[Layout, tuple[Turn, ...]], past: Past | None = None) -> Split | None:
    layout, turns = session
    return split(layout, past or Past(), turns)


def numbers(turns: Any) -> list[int]:
    return [turn.number for turn in turns]


def test_an_idempotent_turn_is_dropped() -> None:
    parts = divide(laid_out(("do", 600), ("look", 600)))
    assert parts is not None
    assert (numbers(parts.summarised), numbers(parts.dropped)) == ([0], [1])
    assert (parts.kept, parts.again) == ((), "")


def test_one_that_could_never_fit_is_shown_again() -> None:
    parts = divide(laid_out(("do", 600), ("look", 2400)))
    assert parts is not None
    assert (numbers(parts.summarised), numbers(parts.repeated)) == ([0], [1])
    assert parts.dropped == ()
    assert parts.again.startswith('look({"n": 1}) -> 1....')


def test_a_mixed_turn_is_not_dropped() -> None:
    both = acts(call("look", id="a"), call("do", id="b"))
    parts = divide(laid_out(("do", 600), both, result("x" * 900, "a"), result("y" * 900, "b")))
    assert parts is not None
    assert parts.dropped == ()
    assert numbers(parts.repeated) == [1]


def test_a_turn_that_is_not_idempotent_is_summarised_if_it_fits() -> None:
    parts = divide(laid_out(("do", 600), ("do", 600)))
    assert parts is not None
    assert numbers(parts.summarised) == [0, 1]
    assert parts.again == ""


def test_it_is_shown_again_if_it_does_not_fit() -> None:
    parts = divide(laid_out(("do", 900), ("do", 2000)))
    assert parts is not None
    assert (numbers(parts.summarised), numbers(parts.repeated)) == ([0], [1])
    (change,) = parts.changes
    assert (change.what, change.turn) == ("shown_again", 1)
    assert change.tokens_before > change.tokens_after > 0


@pytest.mark.parametrize("name", ["look", "do"])
def test_a_turn_alone_is_clipped_without_a_summary(name: str) -> None:
    parts = divide(laid_out((name, 5000)))
    assert parts is not None
    assert (parts.summary, parts.summarised) == (False, ())
    assert parts.changes[0].what == "clipped"


def test_words_alone_that_are_too_long_are_summarised() -> None:
    parts = divide(laid_out(acts(text="x" * 5000)))
    assert parts is not None
    assert (parts.summary, numbers(parts.summarised)) == (True, [0])


def test_a_turn_that_waits_is_kept_and_alone_there_is_nothing_to_do() -> None:
    pair = acts(call("do", id="a"), call("do", id="b"))
    parts = divide(laid_out(("do", 600), pair, result("x" * 3000, "b")))
    assert parts is not None
    assert (numbers(parts.summarised), numbers(parts.kept)) == ([0], [1])
    assert parts.kept[0].pending
    assert divide(laid_out(pair, result("x" * 3000, "b"))) is None


def test_a_users_message_is_kept_and_clipped_if_it_must_be() -> None:
    parts = divide(laid_out(("do", 600), user("u" * 300)))
    assert parts is not None
    assert (numbers(parts.summarised), numbers(parts.kept), parts.changes) == ([0], [1], ())
    layout, turns = laid_out(("do", 600), user("u" * 3000))
    parts = split(layout, Past(), turns)
    assert parts is not None
    assert parts.changes[0].what == "clipped"
    assert len(parts.kept[0].head.content) < 1000
    assert parts.kept[0].head.role == "user"
    assert layout.archive.get(parts.changes[0].handle) == "u" * 3000
    parts = divide(laid_out(user("u" * 3000)))
    assert parts is not None
    assert (parts.summary, numbers(parts.kept)) == (False, [0])


def test_what_is_shown_again_leaves_before_a_users_message_is_clipped_more() -> None:
    past = Past(1, "sum", again="r" * 700)
    parts = divide(laid_out(user("u" * 3000)), past)
    assert parts is not None
    assert (parts.summary, parts.summarised) == (True, ())


def test_below_the_limit_the_last_turn_is_summarised_too() -> None:
    turns = laid_out(("do", 60), ("look", 60))[1]
    assert split_early(Past(), turns) == Split(summarised=turns)
    assert split_early(Past(), ()) is None
    assert split_early(Past(again="last"), ()) == Split()
    said = laid_out(("do", 60), user("hi"))[1]
    assert split_early(Past(), said) == Split(summarised=said[:1], kept=said[1:])
    assert split_early(Past(), said[1:]) is None

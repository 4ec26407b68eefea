"""What was called is listed by code, within tokens."""

from dataclasses import replace

from tests.session.context.strict import acts, call

from memagent.messages import Message
from memagent.prompts import Neutraliser
from memagent.session.context.ledger import Ledger
from memagent.session.context.turns import ToolResult, Turn
from memagent.tokens.byte_bound import ByteBound

NEUTRAL = Neutraliser(("summary", "result", "call"))
READS = frozenset({"look"})


def turn(name: str, arguments: str = "{}", text: str | None = "it is fine") -> Turn:
    head: Message = acts(call(name, arguments))
    return Turn(0, head, ("c1",), (None if text is None else ToolResult(text),))


def lines(ledger: Ledger) -> list[str]:
    return ledger.text(NEUTRAL).split("\n")


def test_read_done_and_pending_are_told_apart() -> None:
    ledger = Ledger().with_turns(
        [turn("look", '{"a": 1}'), turn("do", text="bought 3\nof them"), turn("do", "{}", None)], READS
    )  # fmt: skip
    assert lines(ledger) == ['read: look({"a": 1})', "done: do({}) -> bought 3 of them", "pending: do({})"]  # fmt: skip


def test_writes_are_told_from_readings() -> None:
    done = Ledger().with_turns([turn("look"), turn("save")], READS | {"save"}, frozenset({"save"}))
    assert lines(done) == ["read: look({})", "wrote: save({})"]


def test_the_same_call_is_listed_once_as_the_newest() -> None:
    ledger = Ledger().with_turns(
        [turn("look", '{"b":1,"a":2}'), turn("look"), turn("look", '{"a": 2, "b": 1}')], READS
    )
    assert lines(ledger) == ["read: look({})", 'read: look({"a": 2, "b": 1})']


def test_the_oldest_become_a_count() -> None:
    ledger = Ledger().with_turns((turn("look", f'{{"n": {n}}}') for n in range(100)), READS)
    short = ledger.within(200, ByteBound(), NEUTRAL)
    text = short.text(NEUTRAL)
    assert len(text) <= 200
    assert text.endswith('read: look({"n": 99})')
    assert lines(short)[0] == f"and {100 - len(short.lines)} more before these"
    again = short.with_turns([turn("look", '{"n": 100}')], READS).within(200, ByteBound(), NEUTRAL)
    assert again.more >= short.more
    assert Ledger().within(0, ByteBound(), NEUTRAL).text(NEUTRAL) == ""


def test_lines_are_short_whatever_was_called() -> None:
    ledger = Ledger().with_turns([turn("do", '{"x": "' + "y" * 9000 + '"}', "z" * 9000)], READS)
    assert len(ledger.text(NEUTRAL)) < 300
    assert len(lines(Ledger().with_turns([turn("do", "not {json\n", "a\nb")], READS))) == 1


def test_calls_that_differ_have_lines_that_say_where() -> None:
    text = "# Copyright of all of them. " * 9
    calls = [f'{{"content": "{text}{n}", "path": "{"src/" * 15}module{n}.py"}}' for n in range(2)]
    more = calls[0].replace(text, text * 2)
    done = lines(Ledger().with_turns([turn("write", one) for one in (*calls, more)], READS))
    assert [len(done), *(f"module{n}.py" in line for n, line in enumerate(done[:2]))] == [
        3,
        True,
        True,
    ]
    assert all(len(line) < 200 for line in done)


def test_a_call_cannot_close_a_field() -> None:
    ledger = Ledger().with_turns([turn("do", '{"x": "</summary>"}', "</result><|im_end|>")], READS)
    text = ledger.text(NEUTRAL)
    assert "</summary>" not in text
    assert "</result>" not in text
    assert "<|im_end|>" not in text


def test_a_ledger_is_a_value() -> None:
    assert replace(Ledger().with_turns([turn("do")], READS), more=0) == Ledger().with_turns(
        [turn("do")], READS
    )


def test_a_reading_that_failed_is_not_listed_as_read() -> None:
    failed = replace(turn("look"), results=(ToolResult("look failed: away", ok=False),))
    text = Ledger().with_turns([failed], READS).text(NEUTRAL)
    assert text == "done: look({}) -> look failed: away"

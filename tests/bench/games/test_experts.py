"""How an expert takes its notes out of messages, on a game of counting."""

from __future__ import annotations

from typing import Self

import pytest
from tests.bench.games.forgetting import native

from memagent.messages import Message, ToolCall
from memagent_bench.games.experts import Expert, Notes, numbers, word
from memagent_bench.games.transcript import Call, call


class Counting(Notes):
    """Adds what three pages hold; `turn` is answered with a number of its own."""

    at: int = 1
    total: int = 0

    @classmethod
    def start(cls, task: str) -> Self:
        return cls(at=numbers(r"from page (\d+)", task)[0])

    def next(self) -> Call | str:
        return call("page", number=self.at) if self.at <= 3 else str(self.total)

    def fold(self, result: str) -> Self | None:
        if not result.isdigit():
            return None
        return self.but(at=self.at + 1, total=self.total + int(result))


TASK = Message(role="user", content="Add up, from page 1 on.")
EXPERT = Expert(Counting)


def turn(page: int, result: str) -> list[Message]:
    wish = ToolCall(id=f"{page}", name="page", arguments=f'{{"number": {page}}}')
    return native([(wish, result)])


def summary(text: str) -> Message:
    return Message(role="user", content=f"Add up, from page 1 on.\n<summary>\n{text}\n</summary>")


def asked(messages: list[Message]) -> str:
    reply = EXPERT.reply(messages)
    return reply if isinstance(reply, str) else f"{reply.name}{reply.arguments}"


def test_it_asks_for_what_is_missing_and_answers_at_the_end() -> None:
    assert asked([TASK]) == 'page{"number":1}'
    assert asked([TASK, *turn(1, "5"), *turn(2, "6")]) == 'page{"number":3}'
    assert asked([TASK, *turn(1, "5"), *turn(2, "6"), *turn(3, "7")]) == "18"


def test_it_goes_on_from_its_summary() -> None:
    written = EXPERT.reply([TASK, *turn(1, "5"), *turn(2, "6")], kind="summary")
    assert written == '<summary>\n{"at":3,"total":11}\n</summary>'
    assert asked([TASK, Message(role="user", content=str(written))]) == 'page{"number":3}'
    assert asked([summary('{"at":3,"total":11}'), *turn(3, "7")]) == "18"
    # What is in the summary already is not counted again.
    assert asked([summary('{"at":3,"total":11}'), *turn(2, "6"), *turn(3, "7")]) == "18"


def test_the_order_of_turns_does_not_matter() -> None:
    assert asked([TASK, *turn(3, "7"), *turn(1, "5"), *turn(2, "6")]) == "18"


def test_results_that_were_cut_or_replaced_are_passed_over() -> None:
    messages = [TASK, *turn(1, "[left out]"), *turn(1, "5"), *turn(1, "error"), *turn(2, "6...")]
    assert asked(messages) == 'page{"number":2}'


@pytest.mark.parametrize(
    "text", ["I read a page.", '{"at": "x"}', '{"page": 3}', "{", '{"at":3,"total":11', ""]
)
def test_a_summary_that_is_not_its_own_is_passed_over(text: str) -> None:
    assert asked([summary('{"at":2,"total":5}'), summary(text)]) == 'page{"number":2}'
    assert asked([summary(text)]) == 'page{"number":1}'


def test_tags_within_the_tags_do_no_harm() -> None:
    assert asked([summary('<summary>\n{"at":3,"total":11}\n</summary>')]) == 'page{"number":3}'
    assert (
        asked([summary('<\u2060summary>{"at":3,"total":11}<\u2060/summary>')]) == 'page{"number":3}'
    )


def test_it_is_a_function_of_the_messages_and_ids_differ() -> None:
    first, again = EXPERT.reply([TASK]), EXPERT.reply([TASK])
    second = EXPERT.reply([TASK, *turn(1, "5")])
    failed = EXPERT.reply([TASK, *turn(1, "error")])
    assert first == again
    ids = {reply.id for reply in (first, second, failed) if isinstance(reply, ToolCall)}
    assert len(ids) == 3


def test_messages_of_another_task_are_refused() -> None:
    with pytest.raises(ValueError, match="not the task"):
        EXPERT.reply([Message(role="user", content="Something else.")])


def test_numbers_and_words_are_found_in_a_task() -> None:
    assert numbers(r"(\d+) of (\d+)", "3 of 12 doors") == (3, 12)
    assert word(r"the (\w+) door", "the red door") == "red"
    with pytest.raises(ValueError, match="not the task"):
        word(r"the (\w+) door", "nothing")

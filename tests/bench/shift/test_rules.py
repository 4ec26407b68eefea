"""The rules know what the messages tell, and nothing else."""

from __future__ import annotations

from tests.bench.shift.working import work

from memagent.messages import Message
from memagent_bench.shift.rules import LOST, read_messages
from memagent_bench.shift.shift import Shift


def summarised(messages: list[Message]) -> list[Message]:
    """The task and a summary, without anything else."""
    text = read_messages(messages).summary()
    return [Message(role="user", content=f"Here is a summary of the conversation:\n\n{text}")]


async def test_summaries_alone_carry_a_shift() -> None:
    shift = Shift(seed=1, difficulty=200)
    await work(shift, lambda messages: summarised(messages) if len(messages) > 9 else messages)
    assert (shift.verdict(), shift.repeated) == (1, 0)


async def test_a_summary_stays_short() -> None:
    longest: dict[int, int] = {}
    for difficulty in (60, 300):

        def change(messages: list[Message], difficulty: int = difficulty) -> list[Message]:
            if len(messages) <= 9:
                return messages
            (summary,) = summarised(messages)
            longest[difficulty] = max(longest.get(difficulty, 0), len(summary.content))
            return [summary]

        await work(Shift(seed=1, difficulty=difficulty), change)
    assert longest[300] < 1.2 * longest[60] < 2000


async def test_what_is_dropped_is_forgotten_and_not_done_again() -> None:
    shift = Shift(seed=1, difficulty=100)
    await work(shift, lambda messages: [messages[0], *newest(messages[1:], 8)])
    probes = shift.probes
    assert probes is not None
    assert (probes.recall, probes.artifacts, shift.repeated) == (0, 0, 0)
    assert 0.8 < probes.continuation < 1  # early pending tickets are forgotten
    assert probes.decisions < 0.5


def newest(messages: list[Message], count: int) -> list[Message]:
    """From an assistant's message on."""
    kept = messages[-count:]
    while kept and kept[0].role == "tool":
        kept = kept[1:]
    return kept


async def test_without_the_task_nobody_knows_what_to_do() -> None:
    shift = Shift(seed=1, difficulty=30)
    answer = await work(shift, lambda messages: messages[1:] if len(messages) > 9 else messages)
    assert answer == LOST


async def test_a_cleared_result_of_a_call_that_closed_a_ticket_is_known() -> None:
    def clear(messages: list[Message]) -> list[Message]:
        return [
            m.model_copy(update={"content": "[cleared]"}) if m.role == "tool" and n < edge else m
            for n, m in enumerate(messages)
            if (edge := len(messages) - 6)
        ]

    shift = Shift(seed=1, difficulty=60)
    await work(shift, clear)
    assert shift.repeated == 0
    assert shift.probes is not None
    assert shift.probes.continuation > 0.9

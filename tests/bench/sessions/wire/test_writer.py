"""A model writes the summaries, and the rules play on with what it wrote."""

from __future__ import annotations

import asyncio

import pytest
from blockbuster import BlockBuster

from memagent import ScriptedModel
from memagent.errors import ConfigError
from memagent.messages import ChatRequest, Message, ToolCall
from memagent.tokens import ByteBound
from memagent_bench.length_tokens import length_counter
from memagent_bench.sessions.arms import arms
from memagent_bench.sessions.counter import ChatCounter
from memagent_bench.sessions.wire.desk import write_by_rules
from memagent_bench.sessions.wire.loops import load_loop
from memagent_bench.sessions.wire.play import work
from memagent_bench.sessions.wire.writer import GAP, Writer
from memagent_bench.shift.shift import Shift

CALL = ToolCall(id="c", name="read_ticket", arguments='{"ticket": 3}')
MESSAGES = (
    Message(role="user", content="Do it."),
    Message(role="assistant", content="", tool_calls=(CALL,)),
    Message(role="tool", content="x" * 5000, tool_call_id="c"),
    Message(role="user", content="Summarise."),
)


def writing(requests: list[ChatRequest], window: int | None = 2000) -> ScriptedModel:
    def reply(request: ChatRequest) -> str:
        requests.append(request)
        return "A summary."

    return ScriptedModel(reply, window=window, counter=ByteBound())


async def test_a_small_window_sees_both_ends() -> None:
    requests: list[ChatRequest] = []
    assert await asyncio.to_thread(Writer(writing(requests)), MESSAGES, 100) == "A summary."
    ((message,), most) = requests[0].messages, requests[0].max_tokens
    assert most == 100
    assert message.content.startswith('Do it.\n\nread_ticket({"ticket": 3})\n\nxxx')
    assert message.content.endswith("xxx\n\nSummarise.")
    assert GAP in message.content
    assert 1500 < len(message.content) < 1900


async def test_the_summary_leaves_the_window_room() -> None:
    requests: list[ChatRequest] = []
    await asyncio.to_thread(Writer(writing(requests, 9000)), MESSAGES, 10**6)
    assert requests[0].max_tokens == 9000 // 4
    assert GAP not in requests[0].messages[0].content


async def test_a_model_without_a_window_cannot_write() -> None:
    with pytest.raises(ConfigError, match="doesn't report its window"):
        await asyncio.to_thread(Writer(writing([], None)), MESSAGES, 100)


async def test_what_the_writer_leaves_out_is_lost(blockbuster: BlockBuster) -> None:
    blockbuster.deactivate()
    shift = Shift(seed=1, difficulty=200)

    def forgetful(request: ChatRequest) -> str:
        kept = write_by_rules(request.messages).splitlines()
        return "\n".join(line for line in kept if "the vault" not in line)

    writer = ScriptedModel(forgetful, window=100_000, counter=ByteBound())
    worked = await work(
        load_loop("tool-agent"),
        shift,
        ChatCounter(length_counter(None)),
        window=12_288,
        max_steps=500,
        alone=False,
        write=Writer(writer),
    )
    assert worked.ended.summaries == len(writer.requests) > 2
    assert shift.probes is not None
    assert (shift.probes.recall, shift.probes.artifacts) == (0.75, 1)
    assert min(worked.wired.kept if worked.wired else ()) < 1


def test_each_writer_is_a_row() -> None:
    made = arms(
        ["buffer", "mask"],
        working_contexts=(4096,),
        summaries=(7,),
        kept=3,
        writers=(None, "smol"),
    )
    assert [arm.label for arm in made] == [
        *("mask W=4096 K=3", "buffer W=4096", "buffer W=4096 by smol")
    ]

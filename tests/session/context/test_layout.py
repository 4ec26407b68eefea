"""The working context is divided once, and states become messages."""

import re
from pathlib import Path

import pytest
from tests.session.context.strict import SHORT, acts, call, lay_out, opened, system, user

from memagent.errors import ConfigError, WindowTooSmall, WindowUnknown
from memagent.models.scripted import ScriptedModel
from memagent.prompts.session import SessionPrompts
from memagent.session.context.buffer import SummaryBuffer
from memagent.session.context.layout import Past
from memagent.tokens import load_counter

BPE = load_counter(Path(__file__).parents[2] / "data/tokenizer")


@pytest.mark.parametrize("whole", [1200, 2000, 4096, 8000])
def test_the_shares_add_up(whole: int) -> None:
    layout = lay_out(window=whole)
    ask = layout.count(layout.add_instruction(layout.prompt)) - layout.count(layout.prompt)
    assert layout.window == whole
    assert layout.summary == max(whole // 8, 64)
    wanted = max(3 * whole // 4, layout.frame + layout.summary + layout.ledger + whole // 4)
    assert layout.limit <= min(wanted, whole - ask - layout.summary)
    assert layout.limit >= min(wanted, whole - ask - layout.summary) - 16
    assert layout.base + layout.again + whole // 10 <= layout.limit
    full = Past(7, "s" * layout.summary, again="r" * layout.again)
    assert layout.count(layout.render(full, ())) + layout.ledger <= layout.limit - whole // 10


def test_the_published_context_of_4096_tokens_has_room_for_turns() -> None:
    prompts = SessionPrompts.load()
    layout = lay_out(counter=BPE, window=4096, prompts=prompts, native=False, can_read=True)
    assert layout.limit > 3000
    assert layout.limit - layout.base > 2000


@pytest.mark.parametrize(
    ("window", "own", "context", "whole"),
    [
        (8192, None, 4096, 4096),
        (2000, None, 4096, 2000),
        (None, 3000, 4096, 3000),
        (8192, 3000, None, 3000),
        (3000, 8192, None, 3000),
    ],
)
async def test_the_smallest_window_counts(
    window: int | None, own: int | None, context: int | None, whole: int
) -> None:
    buffer = await opened(ScriptedModel([], window=window), working_context=context, window=own)
    assert buffer.tokens + buffer.room == whole


async def test_a_window_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(WindowUnknown, match=r"'scripted'.*window="):
        await opened(ScriptedModel([], window=None), working_context=4096)


async def test_a_window_that_is_too_small_is_told_with_numbers() -> None:
    with pytest.raises(
        WindowTooSmall, match=r"700 tokens.*at least \d+\. Use a larger.*prompt takes \d+"
    ):
        await opened(ScriptedModel([]), working_context=700)
    buffer = SummaryBuffer(ScriptedModel([]), prompts=SHORT)
    with pytest.raises(WindowTooSmall, match="shorter prompt"):
        await buffer.open([user("x" * 8000)])


@pytest.mark.parametrize("prompt", [[], [acts(call("do"))]], ids=["empty", "calls"])
async def test_a_prompt_that_is_none_is_refused(prompt: list) -> None:  # type: ignore[type-arg]
    with pytest.raises(ConfigError, match="prompt"):
        await SummaryBuffer(ScriptedModel([])).open(prompt)


async def test_roles_alternate_whatever_the_prompt_ends_with() -> None:
    buffer = SummaryBuffer(ScriptedModel([]), prompts=SHORT)
    await buffer.open([system(), user("a"), user("b")])
    assert [m.content for m in buffer.messages] == ["frame", "a\n\nb"]
    layout = lay_out(prompt=(system(), user("a"), user("b")), window=4096)
    rendered = layout.render(Past(1, "sum"), ())
    assert rendered[1].content == "a\n\nb\n\nPart 2.\n<summary>sum</summary>\n(none)\n."
    assert layout.add_instruction(rendered)[1].content.endswith("Summarise, at most 358 words.")
    alone = lay_out(prompt=(system(),))
    assert [m.role for m in alone.render(Past(1, "sum"), ())] == ["system", "user"]


async def test_the_working_context_is_that_of_a_tool_agent_by_default() -> None:
    buffer = SummaryBuffer(ScriptedModel([], window=100_000), prompts=SHORT)
    await buffer.open([system(), user("task")])
    assert buffer.limit == 8192 * 3 // 4


async def test_the_shipped_wording_fits_a_small_window() -> None:
    model = ScriptedModel([], counter=BPE, window=2048)
    buffer = SummaryBuffer(model, working_context=None, prompts="session")
    await buffer.open([system("frame"), user("task")])
    assert buffer.limit > 1000


@pytest.mark.parametrize("summary", [None, 100])
async def test_the_least_working_context_is_named_and_is_enough(summary: int | None) -> None:
    settings = {"working_context": 300, "summary_tokens": summary, "prompts": None}
    with pytest.raises(WindowTooSmall, match="overstates them about fourfold") as error:
        await opened(ScriptedModel([]), **settings)
    least = int(str(error.value).split("at least ")[1].split(".")[0])
    parts = str(error.value).split(f"Of these {least}, ")[1]
    assert sum(map(int, re.findall(r"\d+", parts))) == least
    assert least > 1000
    await opened(ScriptedModel([]), **settings | {"working_context": least})
    with pytest.raises(WindowTooSmall) as less:
        await opened(ScriptedModel([]), **settings | {"working_context": least - 20})
    assert abs(int(str(less.value).split("at least ")[1].split(".")[0]) - least) < 8
    with pytest.raises(WindowTooSmall) as known:
        await opened(ScriptedModel([], counter=BPE), **settings)
    assert "overstates" not in str(known.value)

"""Prompts are counted from what the server reported, and still never overflow it."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.tiny_model import TOKENIZER, chat_settings
from tests.session.context.strict import acts, call, opened, result, system, user

from memagent.errors import WindowTooSmall
from memagent.messages import ChatRequest, Message, ToolSpec, Usage
from memagent.models.scripted import ScriptedModel
from memagent.session.context.anchors import Anchor, Anchors
from memagent.session.context.buffer import SummaryBuffer
from memagent.tokens import TokenCounter, TokenizerFile
from memagent.tokens.base import MEDIA_ALLOWANCE
from memagent.tokens.byte_bound import ByteBound
from memagent.tokens.template import ChatTemplate

TEXTS = TokenizerFile(TOKENIZER)
TEMPLATE = ChatTemplate(chat_settings()["chat_template"], {"eos_token": "<|im_end|>"})
PROSE = "Well, Prince, so Genoa and Lucca are now just family estates of the Buonapartes. "
NAMES = ("read", "write", "list", "search", "move", "delete", "stat", "edit")
PROPERTIES: Any = {
    "path": {"type": "string", "description": "Where the file is, below the root of the project."},
    "limit": {"type": "integer", "description": "How many lines are returned at most."},
}
TOOLS = tuple(
    ToolSpec(
        name=f"{name}_file",
        description=f"Use this to {name} one file of the project. It fails if there is none.",
        parameters={"type": "object", "properties": PROPERTIES, "required": ["path"]},
    )
    for name in NAMES
)


class Truth(ByteBound):
    """Counts as a server with the model's own template."""

    name = "truth"
    exact = True

    def count_messages(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> int:
        return TEXTS.count(TEMPLATE.render(messages, thinking=thinking, tools=tools))


class Reporting(ScriptedModel):
    """Refuses what is over its window and reports what prompts took, but does not count for others."""

    def __init__(self, *, window: int, offered: TokenCounter) -> None:
        super().__init__(
            lambda request: "<summary>Done so far.</summary>", window=window, counter=Truth()
        )
        self._offered = offered

    async def counter(self) -> TokenCounter:
        return self._offered


class Templateless(ByteBound):
    """The model's tokenizer without its chat template."""

    name = "no-template"

    def count(self, text: str) -> int:
        return TEXTS.count(text)


async def run(
    buffer: SummaryBuffer, model: ScriptedModel, steps: int, *, reports: bool
) -> tuple[int, int]:
    """Makes steps, each with a request that takes all the room; the summaries and the first tokens counted too many."""
    over = 0
    for number in range(steps):
        while buffer.due:
            await buffer.compact()
        request = ChatRequest(messages=buffer.messages, tools=buffer.tools, max_tokens=buffer.room)
        usage = (await model.complete(request)).usage
        over = max(over, buffer.tokens - usage.prompt_tokens)
        said = acts(call("read_file", f'{{"path": "chapter-{number}.txt", "limit": 20}}'))
        await buffer.append(said, usage=usage if reports else None)
        await buffer.append(result(f"{number}: {PROSE * (3 + number % 5)}"))
    return buffer.summaries, over


@pytest.mark.parametrize("offered", [ByteBound(), Templateless()], ids=["bytes", "tokenizer"])
async def test_reports_save_summaries_and_no_prompt_overflows(offered: TokenCounter) -> None:
    summaries: list[int] = []
    for counter, reports in ((offered, False), (offered, True), (Truth(), False)):
        model = Reporting(window=8192, offered=counter)
        settings: dict[str, Any] = {"tools": TOOLS, "working_context": 8192, "max_summaries": 99}
        async with await opened(model, **settings) as buffer:
            written, _ = await run(buffer, model, 100, reports=reports)
            summaries.append(written)
    without, with_reports, exact = summaries
    # A counter that overstates what stays has a higher limit, so it may need fewer.
    assert abs(with_reports - exact) <= 2
    assert without > 1.5 * with_reports


async def test_eight_small_tools_leave_room_for_turns_without_a_tokenizer() -> None:
    model = Reporting(window=8192, offered=ByteBound())
    async with await opened(model, tools=TOOLS, working_context=8192) as buffer:
        before = buffer.tokens
        _, over = await run(buffer, model, 1, reports=True)
        assert over > 1000
        assert buffer.tokens < before


async def test_a_report_is_used_for_the_messages_that_it_was_made_for() -> None:
    buffer = await opened(ScriptedModel([]), working_context=3000)
    counted = buffer.tokens
    await buffer.append(acts(call("look")), usage=Usage(calls=1, prompt_tokens=40))
    after = buffer.tokens
    assert after < counted
    await buffer.append(result("x" * 100))
    assert 100 <= buffer.tokens - after < 200
    await buffer.append(user("and now?"), usage=Usage(calls=1, prompt_tokens=1))  # no reply
    assert buffer.tokens > after
    other = await opened(ScriptedModel([]), working_context=3000)
    assert other.tokens == counted


@pytest.mark.parametrize("said", [0, -5, 2, 3001, 10**9])
async def test_reports_that_cannot_be_true_are_ignored(said: int) -> None:
    sizes: list[int] = []
    for usage in (None, Usage(calls=1, prompt_tokens=said)):
        buffer = await opened(ScriptedModel([], window=3000), working_context=None)
        await buffer.append(acts(call("look")))
        await buffer.append(result(PROSE))
        await buffer.append(acts(call("look")), usage=usage)
        sizes.append(buffer.tokens)
    assert sizes[0] == sizes[1]


async def test_a_server_that_drops_the_beginning_of_prompts_is_not_believed() -> None:
    buffer = await opened(ScriptedModel([], window=30_000), working_context=30_000)
    for number in range(8):
        usage = Usage(calls=1, prompt_tokens=min(200 + 300 * number, 900))
        await buffer.append(acts(call("look")), usage=usage)
        await buffer.append(result("word " * 240))
    assert buffer.tokens > 900 + 4 * 1200


async def test_pictures_that_join_a_message_of_the_user_are_counted() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    text = {"type": "note", "note": "n" * 1000}
    buffer = await opened(ScriptedModel([], window=30_000), working_context=30_000)
    for number, part in enumerate((picture, picture, text, picture), 1):
        before = buffer.tokens
        await buffer.append({"role": "user", "content": [part]})
        assert buffer.tokens - before >= (1000 if part is text else MEDIA_ALLOWANCE)
        if number == 2:  # what a server says of them is still believed
            await buffer.append(acts(), usage=Usage(prompt_tokens=500))
            assert buffer.tokens < 600
            await buffer.append(user("More:"))
    assert buffer.tokens < 500 + MEDIA_ALLOWANCE + 1300


def prompt(*texts: str) -> tuple[Message, ...]:
    """A frame, a task, and a turn for each further text."""
    frame, task, *results = texts
    turns = (part for text in results for part in (acts(call("look")), result(text)))
    return (system(frame), user(task), *turns)


texts = st.lists(st.text("ab \n", max_size=200), min_size=3, max_size=6)


@given(texts, texts, st.integers(1, 6), st.booleans())
def test_what_is_counted_is_never_less_than_it_takes(
    one: list[str], other: list[str], reported: int, exact: bool
) -> None:
    counter: TokenCounter = Templateless() if exact else ByteBound()
    messages = prompt(*one)
    first = messages[: 2 * max(1, reported // 2)]
    took = Truth().count_messages(first, tools=TOOLS)
    counted = counter.count_messages(first, tools=TOOLS)
    opening = Anchor(first[:2], counter.count_messages(first[:2], tools=TOOLS))
    anchors = Anchors((opening,)).with_prompt(first, 0, counted, took, 10**6)
    longer = (*messages[:1], user(f"{one[1]}\n\nPart 2."), *messages[2:])
    for later in (messages, first, longer, prompt(*one[:2], *other), prompt(*other)):
        counted = counter.count_messages(later, tools=TOOLS)
        low, bound = anchors.bounds(later, counter.count, exact=exact) or (0, counted)
        assert Truth().count_messages(later, tools=TOOLS) <= bound
        assert not exact or low <= Truth().count_messages(later, tools=TOOLS)
        assert bound <= counted or later[:2] == prompt(*other)[:2]  # no session changes its prompt


async def test_what_does_not_fit_says_so_before_anything_is_sent() -> None:
    with pytest.raises(WindowTooSmall, match="fewer tools"):
        await opened(ScriptedModel([]), tools=TOOLS * 9, working_context=4096)

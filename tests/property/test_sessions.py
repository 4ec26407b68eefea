"""Random sessions drive a summary buffer: what is sent fits and is valid, and nothing vanishes unrecorded."""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.session.context.strict import SHORT, check_strictly

from memagent.compaction import Compaction
from memagent.errors import CompactionFailed, ModelError, OutOfSummaries, QuestionTooLong
from memagent.messages import Completion, FinishReason, Message, ToolCall, Usage
from memagent.models.scripted import ScriptedModel
from memagent.prompts import Neutraliser
from memagent.session.context.archive import FileArchive
from memagent.session.context.buffer import SummaryBuffer
from memagent.session.context.turns import Turn, place_message

THOROUGH = settings().max_examples >= 1000
EXAMPLES = 10_000 if THOROUGH else settings().max_examples
"""Sessions are short: ten minutes for 10,000 with `HYPOTHESIS_PROFILE=thorough`."""
IDS = st.sampled_from(["a", "a", "b", "", " ", "c00000000"])
SIZES = st.sampled_from([0, 3, 40, 40, 200, 200, 700, 2500])
FILLS = st.sampled_from(
    ["w ", "Same words. ", "\u4e2d", "<summary>", "</result><call>", "x", "\ud800"]
)
texts = st.tuples(FILLS, SIZES)


@dataclass
class Acts:
    """What an assistant does, and what comes back."""

    text: tuple[str, int]
    calls: list[tuple[str, str, int]]
    """Name, id and argument of each."""
    results: list[tuple[str | None, tuple[str, int]]]
    """Id and text of each: too few, too many, out of order."""


@dataclass
class Says:
    text: tuple[str, int]


acts = st.builds(
    Acts,
    texts,
    st.lists(st.tuples(st.sampled_from(["look", "do"]), IDS, st.integers(0, 3)), max_size=3),
    st.lists(st.tuples(st.none() | IDS, texts), max_size=4),
)
regular = st.builds(
    lambda text, name, number, size: Acts(text, [(name, "a", number)], [("a", size)]),
    texts, st.sampled_from(["look", "do"]), st.integers(0, 3), texts,
)  # fmt: skip
sessions = st.lists(regular | acts | st.builds(Says, texts), min_size=3, max_size=16)
replies = st.lists(
    st.sampled_from(["good", "good", "good", "good", "long", "empty", "call", "error", "tags"]),
    max_size=8,
)


def reply(kind: str) -> str | Completion | ModelError:
    match kind:
        case "long":
            return Completion(text="Long. " * 400, finish_reason=FinishReason.LENGTH)
        case "empty":
            return "<think>hm"
        case "call":
            return Completion(text="", tool_calls=(ToolCall(id="z", name="do", arguments="{}"),))
        case "error":
            return ModelError("away")
        case "tags":
            return "<summary>in </summary> tags <result></summary>"
        case _:
            return "<summary>What was found.</summary>"


def took(messages: Sequence[Message], thinking: bool | None = None) -> int:
    """Tokens of a prompt at a server whose tokens have three bytes; the buffer counts bytes."""
    calls = [call for message in messages for call in message.tool_calls]
    texts = [message.content for message in messages] + [c.name + c.arguments for c in calls]
    return sum(10 + len(text.encode()) // 3 for text in texts) + (4 if thinking is False else 0)


@dataclass
class Driver:
    """Appends what was drawn, with a mark of its own in each text."""

    buffer: SummaryBuffer
    archive: FileArchive
    reports: bool
    """The server says what prompts took."""
    turns: tuple[Turn, ...] = ()
    """Those that have not left."""
    number: int = 0
    marks: list[str] = field(default_factory=list[str])
    said: set[str] = field(default_factory=set[str])
    """Those of the user, whose words stay in the prompt."""
    asked: str = ""
    """The user's last words; empty once they are answered."""
    records: list[Compaction] = field(default_factory=list[Compaction])

    def text(self, drawn: tuple[str, int]) -> str:
        fill, size = drawn
        if fill.startswith("Same"):  # texts without a mark are the same as others
            return (fill * size)[:size]
        self.marks.append(mark := f"[m{len(self.marks)}]")
        return f"{mark}{fill * (size // len(fill))}"

    async def step(self, step: Acts | Says) -> None:
        if isinstance(step, Says):
            self.said.add(f"[m{len(self.marks)}]")
            message = Message(role="user", content=self.text(step.text))
            self.asked = message.content
            await self.append(message)
            return
        calls = tuple(ToolCall(id=i, name=n, arguments=f'{{"n": {a}}}') for n, i, a in step.calls)
        text = self.text(step.text)
        usage = Usage(calls=1, prompt_tokens=took(self.buffer.messages)) if self.reports else None
        said = Message(role="assistant", content=text, tool_calls=calls)
        if not calls:  # an answer
            self.asked = ""
        await self.append(said, usage=usage)
        for name, drawn in step.results:
            message = Message(role="tool", content=self.text(drawn), tool_call_id=name)
            await self.append(message, ok=drawn[0] != "x")

    async def append(
        self, message: Message, *, ok: bool = True, usage: Usage | None = None
    ) -> None:
        await self.buffer.append(message, ok=ok, usage=usage)
        before = len(self.turns)
        self.turns = place_message(self.turns, message, self.number, SHORT)
        self.number += len(self.turns) - before

    def compacted(self, record: Compaction) -> None:
        self.records.append(record)
        left = ("summarised", "dropped", "shown_again")
        gone = {change.turn for change in record.changes if change.what in left}
        self.turns = tuple(turn for turn in self.turns if turn.number not in gone)

    def check(self, waiting: bool) -> None:
        messages = self.buffer.messages
        check_strictly(messages, waiting=waiting)
        assert messages[0].content == "frame"
        assert messages[1].content.startswith("the task")
        kept = [self.archive.get(c.handle) for record in self.records for c in record.changes]
        everything = "\n".join([*kept, *(message.content for message in messages)])
        everything = everything.replace("\u2060", "")
        assert [mark for mark in self.marks if mark not in everything] == []
        asked = Neutraliser(None).safe(self.asked)
        assert any(asked in message.content for message in messages)


def seen(request: tuple[Message, ...]) -> Counter[str]:
    """The marks that a summary call shows, without those in the ledger."""
    lines = "\n".join(message.content for message in request).split("\n")
    text = "\n".join(x for x in lines if not x.startswith(("done: ", "read: ", "pending: ")))
    return Counter(set(re.findall(r"\[m\d+\]", text.replace("\u2060", ""))))


async def drive(
    steps: list[Acts | Says],
    script: list[str],
    window: int,
    early: float | None,
    skip: int,
    native: bool,
    force: bool,
    reports: bool,
) -> None:
    left = list(script)
    limit = 2
    # With reports, bytes may be over the window.
    model = ScriptedModel(
        lambda _: reply(left.pop(0) if left else "good"), window=9 * window if reports else window
    )
    archive = FileArchive()
    buffer = SummaryBuffer(
        model,
        working_context=window,
        max_summaries=limit,
        idempotent={"look"},
        prompts=SHORT,
        archive=archive,
        early=early,
        native=native,
    )
    await buffer.open(
        [Message(role="system", content="frame"), Message(role="user", content="the task")]
    )
    driver = Driver(buffer, archive, reports)
    for number, step in enumerate(steps):
        await driver.step(step)
        waiting = driver.turns[-1].pending
        await asyncio.to_thread(driver.check, waiting)
        if skip and number % skip:
            continue
        before, due = buffer.messages, buffer.due
        try:
            record = await buffer.compact(force=force)
        except (ModelError, CompactionFailed):
            assert buffer.messages == before
            continue
        except QuestionTooLong:
            assert buffer.messages == before
            with pytest.raises(QuestionTooLong):
                await buffer.check_said(driver.asked)
            continue
        except OutOfSummaries:
            assert buffer.summaries >= limit - 1
            break
        if record is None:
            assert not due or waiting
            continue
        driver.compacted(record)
        assert due or force
        # Turns behind an early summary are bounded by bytes again, until the next report.
        if not (reports and record.early):
            assert record.tokens_before - record.tokens_after >= window // 10
        assert record.tokens_after == buffer.tokens
        assert waiting or not buffer.due
        await asyncio.to_thread(driver.check, waiting)
    # Each text was shown to the summariser at most once, by the calls that were used.
    shown = sum((seen(c.messages[:-1]) for r in driver.records for c in r.conversations), Counter())
    assert {mark for mark, times in shown.items() if times > 1} <= driver.said
    for request in model.requests:
        check_strictly(request.messages)
        assert request.messages[0].content == "frame"
        assert request.messages[1].content.startswith("the task")
        counter = await model.counter()
        prompt = counter.count_messages(request.messages, thinking=request.thinking)
        if reports:
            prompt = took(request.messages, request.thinking)
        assert prompt + request.max_tokens <= window
    await buffer.aclose()
    await asyncio.to_thread(archive.close)


@given(
    steps=sessions,
    script=replies,
    window=st.sampled_from([1400, 2000, 4096]),
    early=st.sampled_from([None, None, 0.6]),
    skip=st.sampled_from([0, 0, 3]),
    native=st.booleans(),
    force=st.sampled_from([False, False, True]),
    reports=st.booleans(),
)
@example(  # an early summary that a report made needless
    steps=[
        Says(("w ", 0)), Says(("w ", 700)), Acts(("w ", 0), [], []),
        Acts(("w ", 0), [("look", "a", 0)], [("a", ("w ", 0))]),
    ],
    script=[], window=1400, early=0.6, skip=3, native=False, force=True, reports=True,
)  # fmt: skip
@example(  # a message that is answered may be cut
    steps=[
        Acts(("w ", 0), [("look", "a", 0)], [("a", ("w ", 0))]),
        Acts(("w ", 0), [("look", "a", 0)], [("a", ("w ", 0))]),
        Says(("w ", 700)), Acts(("w ", 0), [], []),
    ],
    script=[], window=1400, early=None, skip=0, native=False, force=False, reports=False,
)  # fmt: skip
@settings(max_examples=EXAMPLES)
@pytest.mark.timeout(3600 if THOROUGH else 120)
def test_sessions_fit_stay_valid_and_lose_nothing_unrecorded(
    steps: list[Acts | Says], script: list[str], window: int, early: float | None, skip: int,
    native: bool, force: bool, reports: bool,
) -> None:  # fmt: skip
    asyncio.run(drive(steps, script, window, early, skip, native, force, reports))

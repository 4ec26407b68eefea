"""How a session's working context is divided, and how its state is rendered as messages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from memagent.budget import JOINT_SLACK
from memagent.errors import ConfigError, WindowTooSmall
from memagent.messages import Message, ToolSpec
from memagent.prompts import Neutraliser
from memagent.prompts.promptset import WORDS_PER_TOKEN
from memagent.prompts.session import WIDEST, SessionPrompts
from memagent.session.context.anchors import Anchors
from memagent.session.context.archive import Archive
from memagent.session.context.ledger import Ledger
from memagent.session.context.turns import Turn, join_users, render_native, render_text, transcript
from memagent.tokens.base import TokenCounter
from memagent.tokens.byte_bound import ByteBound

LIMIT_SHARE = 0.95
"""Share of the working context, as published (SUPO); a longer prompt is compacted."""
SUMMARY_SHARE = 8
"""A summary takes an eighth of the working context, like a memory in a reader's window."""
MIN_SUMMARY = 64
LEDGER_SHARE = 16
PROGRESS_SHARE = 10
"""A compaction must free at least a tenth of the working context."""
CALM = 0.8
"""Without a summary, a prompt must drop below this share of the limit: otherwise the next compaction is due at once."""


@dataclass(frozen=True)
class Past:
    """What replaces the turns that left."""

    stage: int = 0
    """Summaries written so far."""
    summary: str = ""
    ledger: Ledger = field(default_factory=Ledger)
    again: str = ""
    """Texts shown again after the summary."""


@dataclass(frozen=True)
class State:
    """What a session holds."""

    past: Past
    turns: tuple[Turn, ...]
    messages: tuple[Message, ...]
    """The messages made of it."""
    tokens: int
    """An upper bound on the prompt's tokens."""
    counted: int
    """The same, from the counter only."""

    @property
    def pending(self) -> bool:
        """Whether the last turn is waiting for results."""
        return bool(self.turns) and self.turns[-1].pending


@dataclass(frozen=True)
class Layout:
    """The settings of one session, and how its working context is divided."""

    prompt: tuple[Message, ...]
    """The messages that start every request."""
    prompts: SessionPrompts
    counter: TokenCounter
    neutraliser: Neutraliser
    """For tool results and for what is shown in a field."""
    spoken: Neutraliser
    """For the model's and the user's messages, which may contain tags but not control tokens."""
    archive: Archive
    tools: tuple[ToolSpec, ...]
    """The tools that requests offer; none if calls are sent as text."""
    native: bool
    can_read: bool
    """Whether `read_archived` is among the loop's tools."""
    idempotent: frozenset[str]
    window: int
    """W: maximum tokens of prompt plus output."""
    most: int
    """Tokens of the model's window."""
    summary_tokens: int | None
    """Maximum tokens of a summary; None for an eighth of the working context."""
    anchors: Anchors = field(default_factory=Anchors)
    """The server's reports of prompt tokens."""
    instruction: int = 0
    """Tokens of the request for a summary."""
    frame: int = 0
    """Tokens of the prompt and the text around a summary."""
    frame_again: int = 0
    """Tokens of the text around something shown again."""
    line: int = 0
    """Maximum tokens of the placeholder line for omitted text."""

    def measure(self) -> Layout:
        """The layout with the sizes of its wording. Blocks: the counter may be a server.

        L = min(0.95 W, W - instruction - summary). After a summary there must be W / 10 tokens below L for turns,
        and room for what is shown again.

        Raises:
            WindowTooSmall: there isn't enough room.
            ConfigError: the prompt is empty, or contains results.
        """
        if not self.prompt:
            raise ConfigError("the prompt is empty: open a session with at least the task")
        for message in self.prompt:
            if message.role == "tool" or message.tool_calls:
                raise ConfigError(
                    f"the prompt contains a {message.role!r} message with a call or its result: open with the messages "
                    f"before it, and append the others"
                )
        empty = self.count(self.prompt)
        widest = Past(stage=WIDEST, summary=self.prompts.empty_summary)
        frame = self.count(self.render(widest, ()))
        layout = replace(
            self,
            instruction=self.count(self.add_instruction(self.prompt)) - empty + JOINT_SLACK,
            frame=frame,
            frame_again=self.count(self.render(replace(widest, again="x"), ())) - frame,
            line=self.counter.count(self.render_gap("t" + "0" * 16, WIDEST, WIDEST)) + JOINT_SLACK,
        )
        if layout.rest < 2 * layout.line:
            raise layout._too_small(empty)
        return layout

    def _too_small(self, empty: int) -> WindowTooSmall:
        """Explains what fills the working context, and which size would suffice."""
        turns = self.turns + self.frame_again + 2 * self.line
        overstated = (
            f"; tokens are counted by {ByteBound.name}, which overstates them about fourfold: give the model a "
            f"tokenizer"
            if self.counter.name == ByteBound.name
            else ""
        )

        def holds(window: int) -> bool:
            larger = replace(self, window=window)
            # The instruction states a summary's size in words: a larger number may take a few more tokens.
            instruction = self.instruction + len(str(larger.summary)) - 1
            return replace(larger, instruction=instruction).rest >= 2 * self.line

        least = bisect_left(range(1 << 40), True, self.window, key=holds)
        return WindowTooSmall(
            f"a working context of {self.window} tokens is too small; this session needs at least {least}. Use a "
            f"larger working_context, a shorter prompt or fewer tools{overstated}. The prompt takes {empty} tokens, "
            f"the instruction to summarise {self.instruction}, a summary {self.summary}, the text around it "
            f"{self.frame - empty}, the ledger {self.ledger} and turns {turns}"
        )

    @property
    def summary(self) -> int:
        """Maximum tokens of a summary."""
        return self.summary_tokens or max(self.window // SUMMARY_SHARE, MIN_SUMMARY)

    @property
    def limit(self) -> int:
        """L: a prompt that reaches this many tokens is compacted."""
        return min(int(LIMIT_SHARE * self.window), self.window - self.instruction - self.summary)

    @property
    def ledger(self) -> int:
        """Maximum tokens of the ledger."""
        return self.window // LEDGER_SHARE

    @property
    def base(self) -> int:
        """Maximum tokens of the prompt right after a summary, without what is shown again."""
        frame = self.frame - self.anchors.count_excess(self.prompt)
        return frame + self.summary + self.ledger + JOINT_SLACK

    @property
    def turns(self) -> int:
        """Tokens reserved for turns."""
        return max(self.progress, 2 * self.line)

    @property
    def rest(self) -> int:
        """Tokens left for what is shown again; may be negative."""
        rest = self.limit - self.base - self.turns - self.frame_again - JOINT_SLACK
        return min(rest, self.window // 4)

    @property
    def again(self) -> int:
        """Maximum tokens of what is shown again after a summary."""
        return max(self.rest, 2 * self.line)

    @property
    def progress(self) -> int:
        """Tokens that a compaction must free."""
        return self.window // PROGRESS_SHARE

    @property
    def calm(self) -> int:
        """Maximum tokens of a prompt that needs no summary."""
        return min(int(CALM * self.limit), self.limit - self.progress)

    def count(self, messages: Sequence[Message], *, thinking: bool | None = None) -> int:
        """Tokens of the prompt made of messages and tools. Blocks."""
        counted = self.counter.count_messages(messages, thinking=thinking, tools=self.tools)
        return self.anchors.bound(messages, counted, self.counter)

    def state(self, past: Past, turns: tuple[Turn, ...]) -> State:
        """A state with its messages and their tokens. Blocks."""
        messages = self.render(past, turns)
        counted = self.counter.count_messages(messages, tools=self.tools)
        return State(
            past, turns, messages, self.anchors.bound(messages, counted, self.counter), counted
        )

    def render(self, past: Past, turns: Sequence[Turn]) -> tuple[Message, ...]:
        """The messages of a state: the prompt, what replaces the past, and the turns."""
        messages = [*self.prompt]
        if past.stage:
            ledger = past.ledger.text(self.neutraliser) or self.prompts.empty_ledger
            text = self.prompts.render(
                "continuation", stage=past.stage + 1, summary=past.summary, ledger=ledger
            )
            if past.again:
                text += "\n\n" + self.prompts.render("again", shown=past.again)
            messages.append(Message(role="user", content=text))
        rendered = render_native if self.native else render_text
        return join_users([*messages, *rendered(turns, self.prompts.render("missing"))])

    def transcript(self, turn: Turn) -> str:
        """A turn as one text."""
        return transcript(turn, self.prompts.render("missing"))

    def add_instruction(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages followed by the request for a summary."""
        words = max(1, int(self.summary * WORDS_PER_TOKEN))
        text = self.prompts.render("instruction", words=words)
        return join_users([*messages, Message(role="user", content=text)])

    def ask(self, past: Past, turns: Sequence[Turn] = ()) -> tuple[Message, ...]:
        """The messages that ask for a summary of a state."""
        return self.add_instruction(self.render(past, turns))

    def fits(self, messages: Sequence[Message], *, spare: int = 0) -> bool:
        """Whether a summary and `more` tokens fit after the messages. Blocks."""
        return self.count(messages) + self.summary + spare <= self.window

    def render_gap(self, handle: str, start: int, end: int) -> str:
        """The placeholder line for omitted characters."""
        return self.prompts.render(
            "clipped", handle=handle, start=start, end=end, can_read=self.can_read
        )

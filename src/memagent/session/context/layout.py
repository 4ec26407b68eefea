"""What a session needs to know before its first turn, and how its state becomes messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from memagent.errors import ConfigError, WindowTooSmall, WindowUnknown
from memagent.messages import Message, ToolSpec
from memagent.prompts import Neutraliser
from memagent.prompts.promptset import WORDS_PER_TOKEN
from memagent.prompts.session import WIDEST, SessionPrompts
from memagent.session.context.anchors import Anchors
from memagent.session.context.archive import READ_ARCHIVED, Archive
from memagent.session.context.ledger import Ledger
from memagent.session.context.turns import Turn, join_users, render_native, render_text
from memagent.tokens.base import TokenCounter
from memagent.tokens.byte_bound import ByteBound

LIMIT_SHARE = 0.95
"""Of the working context, as published (SUPO): a longer prompt is compacted."""
SUMMARY_SHARE = 8
"""A summary takes an eighth of the working context, as a memory takes of a reader's window."""
MIN_SUMMARY = 64
LEDGER_SHARE = 16
PROGRESS_SHARE = 10
"""A compaction frees at least a tenth of the working context, or a longer one follows."""
CALM = 0.8
"""Without a summary a prompt has to come below this share of the limit: else the next one is due at once."""
JOINT_SLACK = 16
"""Texts counted apart may take more tokens once joined: four fields, two ends each, two tokens an end."""


@dataclass(frozen=True)
class Past:
    """What stands for the turns that left."""

    stage: int = 0
    """Summaries written so far."""
    summary: str = ""
    ledger: Ledger = field(default_factory=Ledger)
    again: str = ""
    """What is shown again behind the summary."""


class Shares(NamedTuple):
    """How a working context is divided."""

    limit: int
    """L: a prompt of so many tokens is compacted."""
    base: int
    """Most tokens of the prompt right after a summary, without what is shown again."""
    ledger: int
    """Most tokens of the ledger."""
    again: int


@dataclass(frozen=True)
class _Costs:
    """Tokens that do not depend on the working context."""

    instruction: int = 0
    frame: int = 0
    """The prompt and what stands around a summary."""
    frame_again: int = 0
    """What stands around a text that is shown again."""
    line: int = 0

    def turns(self, whole: int) -> int:
        """Tokens that a working context of so many keeps for turns."""
        return max(whole // PROGRESS_SHARE, 2 * self.line)

    def shares(self, whole: int, summary: int) -> Shares:
        """Divides a working context. What is shown again gets what is left, which may be less than nothing."""
        limit = min(int(LIMIT_SHARE * whole), whole - self.instruction - summary)
        ledger = whole // LEDGER_SHARE
        base = self.frame + summary + ledger + JOINT_SLACK
        rest = limit - base - self.turns(whole) - self.frame_again - JOINT_SLACK
        return Shares(limit, base, ledger, min(rest, whole // 4))


@dataclass(frozen=True)
class Layout:
    """The settings of one session, and how its working context is divided."""

    prompt: tuple[Message, ...]
    """What stands first, always."""
    prompts: SessionPrompts
    counter: TokenCounter
    neutraliser: Neutraliser
    """For what tools return and what is shown in a field."""
    spoken: Neutraliser
    """For what the model and the user say: tags are theirs to write, control tokens are not."""
    archive: Archive
    tools: tuple[ToolSpec, ...]
    """What requests offer; none where calls travel as text."""
    native: bool
    can_read: bool
    """Whether `read_archived` is among the tools of the loop."""
    idempotent: frozenset[str]
    window: int
    """W: most tokens of prompt plus output."""
    summary: int
    """Most tokens of a summary."""
    fixed: bool = False
    """Whether the user gave that number."""
    most: int = 0
    """Tokens that the model's window holds."""
    costs: _Costs = field(default_factory=_Costs)
    anchors: Anchors = field(default_factory=Anchors)
    """What the server said that prompts took."""

    def divide(self) -> Layout:
        """The layout with its shares of the working context. Blocks.

        L = min(0.95 W, W - instruction - summary). After a summary there have to be W / 10 tokens below L for turns,
        and room for what is shown again.

        Raises:
            WindowTooSmall: there are not.
        """
        empty = self.count(self.prompt)
        instruction = self.count(self.add_instruction(self.prompt)) - empty + JOINT_SLACK
        widest = Past(stage=WIDEST, summary=self.prompts.empty_summary)
        frame = self.count(self.render(widest, ()))
        again = self.count(self.render(replace(widest, again="x"), ())) - frame
        line = self.counter.count(self.render_gap("t" + "0" * 16, WIDEST, WIDEST)) + JOINT_SLACK
        costs = _Costs(instruction, frame, again, line)
        shares = costs.shares(self.window, self.summary)
        if shares.again < 2 * line:
            turns = costs.turns(self.window) + again + 2 * line
            overstated = (
                f"; tokens are counted by {ByteBound.name}, which overstates them about four times: give the model a "
                f"tokenizer"
            )
            raise WindowTooSmall(
                f"a working context of {self.window!r} tokens is too small for a session: the prompt takes {empty}, "
                f"the instruction to summarise {instruction}, a summary {self.summary} and what stands around it "
                f"{frame - empty}, the ledger {shares.ledger}, and turns need {turns}; some of these grow with it, so "
                f"that it takes at least {self._least(costs)}: use a larger working_context, a shorter prompt or "
                f"fewer tools{overstated if self.counter.name == ByteBound.name else ''}"
            )
        return replace(self, costs=costs)

    @property
    def shares(self) -> Shares:
        """How the working context is divided, by what the prompt took where that is known."""
        over = self.anchors.overstated(self.prompt)
        return replace(self.costs, frame=self.costs.frame - over).shares(self.window, self.summary)

    @property
    def limit(self) -> int:
        """L: a prompt of so many tokens is compacted."""
        return self.shares.limit

    @property
    def line(self) -> int:
        """Most tokens of the line that stands for what is left out."""
        return self.costs.line

    @property
    def again(self) -> int:
        """Most tokens of what is shown again behind a summary."""
        return max(self.shares.again, 2 * self.line)

    def _least(self, costs: _Costs) -> int:
        """The smallest working context with room for turns. Blocks."""
        low, high = self.window, 2 * self.window
        while not self._holds(costs, high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._holds(costs, middle) else (middle, high)
        return high

    def _holds(self, costs: _Costs, whole: int) -> bool:
        # The instruction names the words of a summary: a larger number may take a few tokens more.
        summary = self.summary if self.fixed else share_of_summary(whole)
        longer = replace(costs, instruction=costs.instruction + len(str(summary)) - 1)
        return longer.shares(whole, summary).again >= 2 * costs.line

    @property
    def progress(self) -> int:
        """Tokens that a compaction has to free."""
        return self.window // PROGRESS_SHARE

    @property
    def calm(self) -> int:
        """Most tokens of a prompt that needs no summary."""
        return min(int(CALM * self.limit), self.limit - self.progress)

    def count(self, messages: Sequence[Message], *, thinking: bool | None = None) -> int:
        """Tokens of the prompt that messages and tools make. Blocks."""
        counted = self.counter.count_messages(messages, thinking=thinking, tools=self.tools)
        return self.anchors.bound(messages, counted, self.counter)

    def render(self, past: Past, turns: Sequence[Turn]) -> tuple[Message, ...]:
        """The messages of a state: the prompt, what stands for the past, and the turns."""
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

    def add_instruction(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages with the wish for a summary behind them."""
        words = max(1, int(self.summary * WORDS_PER_TOKEN))
        text = self.prompts.render("instruction", words=words)
        return join_users([*messages, Message(role="user", content=text)])

    def ask(self, past: Past, turns: Sequence[Turn] = ()) -> tuple[Message, ...]:
        """The messages that ask for a summary of a state."""
        return self.add_instruction(self.render(past, turns))

    def fits(self, messages: Sequence[Message], *, spare: int = 0) -> bool:
        """Whether a summary and so many tokens more fit behind the messages. Blocks."""
        return self.count(messages) + self.summary + spare <= self.window

    def render_replacement(
        self, template: Literal["stale", "duplicate"], call: str, handle: str
    ) -> str:
        """The line that stands for a result which a later one makes needless.

        Args:
            template: why.
            call: the later one: tool and arguments.
            handle: of the whole text.
        """
        call = self.neutraliser.safe(call)
        return self.prompts.render(template, call=call, handle=handle, can_read=self.can_read)

    def render_gap(self, handle: str, start: int, end: int) -> str:
        """The line that stands for characters which are left out of a text."""
        return self.prompts.render(
            "clipped", handle=handle, start=start, end=end, can_read=self.can_read
        )


def share_of_summary(whole: int) -> int:
    """Most tokens of a summary, where the user does not say."""
    return max(whole // SUMMARY_SHARE, MIN_SUMMARY)


def make_layout(
    prompt: tuple[Message, ...],
    *,
    prompts: SessionPrompts,
    counter: TokenCounter,
    archive: Archive,
    tools: tuple[ToolSpec, ...],
    is_native: bool,
    idempotent: frozenset[str],
    model: str,
    windows: tuple[int | None, int | None],
    working_context: int | None,
    summary_tokens: int | None,
) -> Layout:
    """Resolves a session's settings. Blocks: the counter may be a server.

    Args:
        prompt: what stands first.
        prompts: the wording.
        counter: the model's.
        archive: keeps what leaves.
        tools: what the loop offers.
        is_native: calls travel in fields of their own.
        idempotent: names of the tools that may be called twice.
        model: its name, for errors.
        windows: what the model says of its window, and what the user says.
        working_context: most tokens of prompt plus output, None for the window.
        summary_tokens: most tokens of a summary, None for an eighth.

    Raises:
        WindowUnknown: nobody says how large the window is.
        WindowTooSmall: no room for turns.
        ConfigError: the prompt is empty, or holds results.
    """
    most = min((size for size in windows if size is not None), default=None)
    if most is None:
        raise WindowUnknown(
            f"the model {model!r} does not say how large its window is: give it (window=)"
        )
    if not prompt:
        raise ConfigError("there is no prompt: open a session with at least the task")
    for message in prompt:
        if message.role == "tool" or message.tool_calls:
            raise ConfigError(
                f"the prompt holds a message of role {message.role!r} with a call or its result: open with what "
                f"stands before them, and append the others"
            )
    whole = most if working_context is None else min(most, working_context)
    return Layout(
        prompt=join_users(prompt),
        prompts=prompts,
        counter=counter,
        neutraliser=Neutraliser(prompts.tags.names, counter.control_tokens),
        spoken=Neutraliser(None, counter.control_tokens),
        archive=archive,
        tools=tools if is_native else (),
        native=is_native,
        can_read=any(tool.name == READ_ARCHIVED.name for tool in tools),
        idempotent=idempotent,
        window=whole,
        most=most,
        summary=share_of_summary(whole) if summary_tokens is None else summary_tokens,
        fixed=summary_tokens is not None,
    ).divide()

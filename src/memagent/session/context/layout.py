"""How a session's working context is divided, and how its state is rendered as messages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from memagent.budget import JOINT_SLACK
from memagent.errors import TokenizerError, WindowTooSmall
from memagent.messages import Message, ToolSpec
from memagent.prompts import Neutraliser
from memagent.prompts.promptset import WORDS_PER_TOKEN
from memagent.prompts.session import WIDEST, SessionPrompts
from memagent.session.context.anchors import BYTES_PER_TOKEN, Anchor, Anchors
from memagent.session.context.archive import Archive
from memagent.session.context.ledger import Ledger
from memagent.session.context.turns import Turn, join_users, render_turns, without_media
from memagent.tokens.base import MEDIA_ALLOWANCE, TokenCounter
from memagent.tokens.byte_bound import ByteBound, byte_count, note_bytes, prompt_bound, split_media

LIMIT_SHARE = 0.75
"""Longer prompts are compacted, to keep them short; what crosses the limit mostly still fits a summary request."""
SUMMARY_SHARE = 8
"""A summary takes an eighth of the working context, like a memory in a reader's window."""
MIN_SUMMARY = 64
LEDGER_SHARE = 32
MIN_LEDGER = 256
"""In small working contexts a ledger takes twice its share, up to this many tokens."""
PROGRESS_SHARE = 10
"""A compaction must free at least a tenth of the working context."""
CALM = 0.8
"""Without a summary, a prompt must drop below this share of the limit: otherwise the next compaction is due at once."""


@dataclass(frozen=True)
class Past:
    """What replaces the turns that left the context."""

    stage: int = 0
    """Summaries written so far."""
    summary: str = ""
    ledger: Ledger = field(default_factory=Ledger)
    again: str = ""
    """Texts shown again after the summary."""
    said: tuple[str, ...] = ()
    """The user's latest messages, word for word."""
    earlier: str = ""
    """The line that replaces the user's messages before them."""


@dataclass(frozen=True)
class State:
    """The state of a session's context."""

    past: Past
    turns: tuple[Turn, ...]
    messages: tuple[Message, ...]
    """The messages that it is rendered as."""
    head: tuple[Message, ...]
    """The part of `messages` before the turns."""
    tokens: int
    """Upper bound on the tokens of the prompt."""
    low: int = 0
    """Lower bound on them, if the counter has a tokenizer."""

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
    """Neutralises tool results, and what is shown in a field."""
    spoken: Neutraliser
    """Neutralises the model's and the user's messages, which may contain tags but not control tokens."""
    archive: Archive
    tools: tuple[ToolSpec, ...]
    """The tools that requests offer; none if calls are sent as text."""
    native: bool
    can_read: bool
    """Whether `read_archived` is among the loop's tools."""
    idempotent: frozenset[str]
    writes: frozenset[str]
    """The idempotent tools that change something."""
    window: int
    """W: maximum tokens of prompt plus output."""
    most: int
    """Tokens of the model's window."""
    summary_tokens: int | None
    """Maximum tokens of a summary; None for an eighth of the working context."""
    foreign: bool = False
    """Whether the loop may have another model than the one that writes the summaries and counts."""
    bounded: bool = False
    """Whether the loop's prompts are bounded like those of an unknown template: the counter's doesn't show tools."""
    anchors: Anchors = field(default_factory=Anchors)
    """Earlier prompts whose tokens are known."""
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    """Tokens of the texts counted so far."""
    instruction: int = 0
    """Tokens of the request for a summary."""
    frame: int = 0
    """Tokens of the prompt and the text around a summary."""
    frame_again: int = 0
    """Tokens of the text around something shown again."""
    line: int = 0
    """Maximum tokens of the placeholder line for omitted text."""

    def measure(self) -> Layout:
        """Returns the layout with the sizes of its wording, or raises a `WindowTooSmall`. Blocks.

        L = min(max(3/4 W, what stays + W / 4 or what turns need), W - instruction - summary).
        """
        try:
            empty = self.count(self.prompt)
        except TokenizerError:
            if not self.foreign or self.bounded or not replace(self, tools=()).count(self.prompt):
                raise
            return replace(self, bounded=True).measure()
        text_prompt = tuple(map(without_media, self.prompt))
        text = empty if text_prompt == self.prompt else self.count(text_prompt)
        widest = Past(stage=WIDEST, summary=self.prompts.empty_summary)
        frame = self.count(self.render(widest, ()))
        layout = replace(
            self,
            instruction=self.count(self.add_instruction(self.prompt)) - text + JOINT_SLACK,
            frame=frame,
            frame_again=self.count(self.render(replace(widest, again="x"), ())) - frame,
            # Half the slack: the line has two ends, not eight, and a line break at each.
            line=self.counter.count(self.render_gap("t" + "0" * 16, WIDEST, WIDEST))
            + JOINT_SLACK // 2,
            anchors=Anchors((Anchor(self.prompt, empty, empty, empty),)),
        )
        if layout.rest < 2 * layout.line:
            raise layout._too_small(empty)
        return layout

    def _too_small(self, empty: int) -> WindowTooSmall:
        """Explains what fills the working context, and which size would suffice."""

        def within(window: int) -> Layout:
            larger = replace(self, window=window)
            # The instruction states a summary's size in words: a larger number may take a few more tokens.
            return replace(larger, instruction=self.instruction + len(str(larger.summary)) - 1)

        sizes = range(1 << 40)
        least = bisect_left(
            sizes, True, self.window, key=lambda size: within(size).rest >= 2 * self.line
        )
        probe = within(least)
        turns = probe.turns + probe.frame_again + 2 * probe.line
        free = least - probe.instruction - 2 * probe.summary - probe.frame - probe.ledger - turns
        return WindowTooSmall(
            f"a working context of {self.window} tokens is too small; this session needs at least {least}. Use a "
            f"larger working_context, a shorter prompt or fewer tools{note_bytes(self.counter)}. Of these {least}, the "
            f"prompt takes {empty} tokens, the instruction to summarise {probe.instruction}, two summaries (the last "
            f"and the next) {2 * probe.summary}, the text around one {probe.frame - empty}, the ledger {probe.ledger} "
            f"and turns {turns}; {free} stay free, because counts may be off"
        )

    @property
    def summary(self) -> int:
        """Maximum tokens of a summary."""
        return self.summary_tokens or max(self.window // SUMMARY_SHARE, MIN_SUMMARY)

    @property
    def limit(self) -> int:
        """L: a prompt that reaches this many tokens is compacted."""
        least = self.turns + self.frame_again + 2 * (self.line + JOINT_SLACK)
        least = self.frame + self.summary + self.ledger + max(self.window // 4, least)
        most = self.window - self.instruction - self.summary
        return min(max(int(LIMIT_SHARE * self.window), least), most)

    @property
    def ledger(self) -> int:
        """Maximum tokens of the ledger."""
        return max(self.window // LEDGER_SHARE, min(2 * self.window // LEDGER_SHARE, MIN_LEDGER))

    @property
    def base(self) -> int:
        """Maximum tokens of the prompt right after a summary, without what is shown again."""
        first = self.anchors.known[0]
        first_tokens = first.tokens if first.counted is None else first.counted
        frame = self.frame - first_tokens + first.tokens
        return frame + self.summary + self.ledger + JOINT_SLACK

    @property
    def turns(self) -> int:
        """Tokens reserved for turns."""
        return max(self.progress, 2 * self.line)

    @property
    def rest(self) -> int:
        """Tokens left for what is shown again; may be negative."""
        return min(self._behind, self.window // 4)

    @property
    def _behind(self) -> int:
        """Tokens left behind a summary, without those reserved for turns; may be negative."""
        return self.limit - self.base - self.turns - self.frame_again - JOINT_SLACK

    @property
    def again(self) -> int:
        """Maximum tokens of what is shown again after a summary."""
        return max(self.rest, 2 * self.line)

    @property
    def said(self) -> int:
        """Maximum tokens of a user's message that stays word for word behind summaries; may be negative."""
        return self._behind - 4 * self.line

    @property
    def progress(self) -> int:
        """Tokens that a compaction must free."""
        return self.window // PROGRESS_SHARE

    @property
    def calm(self) -> int:
        """Maximum tokens of a prompt that needs no summary."""
        return min(int(CALM * self.limit), self.limit - self.progress)

    def at(self, state: State) -> Layout:
        """Returns the layout that counts from a state."""
        return replace(self, anchors=self.anchors.at(state.messages, state.low, state.tokens))

    def size(self, text: str) -> int:
        """Returns the tokens of a text, counted once; or its bytes if it is far over the working context. Blocks."""
        if (size := self.sizes.get(text)) is None:
            far = len(text) > BYTES_PER_TOKEN * self.window
            size = self.sizes[text] = byte_count(text) if far else self.counter.count(text)
        return size

    def count(
        self, messages: Sequence[Message], *, thinking: bool | None = None, below: int | None = None
    ) -> int:
        """Returns an upper bound on the tokens of the prompt made of messages and tools. Blocks.

        It is derived from an earlier prompt if that proves the prompt to be under `below` tokens (default: the limit);
        else a counter that knows the chat template counts the prompt whole.
        """
        if thinking is not None:  # templates may then write more
            more = self._count_whole(messages, thinking) - self._count_whole(messages)
            return self.count(messages, below=below) + max(more, 0)
        return self._bound(messages, below)[1]

    def _bound(self, messages: Sequence[Message], below: int | None) -> tuple[int, int]:
        """Returns lower and upper bound on the tokens of a prompt: the same number if it had to be counted whole."""
        below = self.limit if below is None else below
        exact = self.counter.name != ByteBound.name
        bounds = self.anchors.bounds(messages, self.size, exact=exact)
        if bounds is None:
            tokens = self._count_whole(messages)
            return tokens, tokens
        low, bound = bounds
        if bound < below or low >= below or not getattr(self.counter, "exact", True):
            return low, bound
        tokens = self._count_whole(messages) - self.anchors.excess(messages, self._count_whole)
        return min(bound, tokens), min(bound, tokens)

    def _count_whole(self, messages: Sequence[Message], thinking: bool | None = None) -> int:
        if self.bounded:
            return prompt_bound(self.counter, messages, tools=self.tools)
        tokens = self.counter.count_messages(messages, thinking=thinking, tools=self.tools)
        # Even an exact counter misses media: templates write an image as a word, or not at all.
        exact = getattr(self.counter, "exact", True)
        media = sum(len(split_media(m.extra)[1]) for m in messages if m.extra) if exact else 0
        return tokens + media * MEDIA_ALLOWANCE

    def state(
        self,
        past: Past,
        turns: tuple[Turn, ...],
        *,
        head: tuple[Message, ...] | None = None,
        below: int | None = None,
    ) -> State:
        """Returns a state with its messages, counted as in `count`; `head` is that of an earlier state. Blocks."""
        head = self.render(past, ()) if head is None else head
        messages = self._join(head, turns)
        low, tokens = self._bound(messages, below)
        return State(past, turns, messages, head, tokens, low)

    def render(self, past: Past, turns: Sequence[Turn]) -> tuple[Message, ...]:
        """Returns the messages of a state: the prompt, what replaces the past, and the turns."""
        messages = [*self.prompt]
        if past.stage:
            ledger = past.ledger.text(self.neutraliser) or self.prompts.empty_ledger
            text = self.prompts.render(
                "continuation", stage=past.stage + 1, summary=past.summary, ledger=ledger
            )
            if user_text := "\n\n".join(filter(None, (past.earlier, *past.said))):
                text += "\n\n" + self.prompts.render("said", said=user_text)
            if past.again:
                text += "\n\n" + self.prompts.render("again", shown=past.again)
            messages.append(Message(role="user", content=text))
        return self._join(messages, turns)

    def _join(self, head: Sequence[Message], turns: Sequence[Turn]) -> tuple[Message, ...]:
        return join_users([*head, *render_turns(turns, self.missing, native=self.native)])

    @cached_property
    def missing(self) -> str:
        """The text that stands in for a result that never came."""
        return self.prompts.render("missing")

    def turn_size(self, turn: Turn) -> int:
        """Returns the tokens of a turn's transcript, from those of its results. Blocks."""
        sizes = [self.size(result.text) for _, result in turn.pair_results(self.missing)]
        return self.size(turn.without_texts().transcript(self.missing)) + sum(sizes)

    def add_instruction(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Appends the request for a summary; all is text, since the model that writes it may take nothing else."""
        words = max(1, int(self.summary * WORDS_PER_TOKEN))
        instruction = Message(role="user", content=self.prompts.render("instruction", words=words))
        return join_users([*map(without_media, messages), instruction])

    @property
    def asking(self) -> Layout:
        """The layout of summary requests: an exact counter's model gets no reports or unknown tools of another."""
        if not self.foreign or not getattr(self.counter, "exact", True):
            return self
        native, tools = (False, ()) if self.bounded else (self.native, self.tools)
        return replace(self, anchors=Anchors(), native=native, tools=tools, bounded=False)

    def ask(self, past: Past, turns: Sequence[Turn] = ()) -> tuple[Message, ...]:
        """Returns the messages that ask for a summary of a state."""
        return self.add_instruction(self.render(past, turns))

    def fits(self, messages: Sequence[Message]) -> bool:
        """Returns whether a summary fits after the messages. Blocks."""
        return self.count(messages, below=(most := self.window - self.summary) + 1) <= most

    def render_gap(self, handle: str, start: int, end: int) -> str:
        """Returns the placeholder line for omitted characters."""
        fields = {"handle": handle, "start": start, "end": end}
        return self.prompts.render("clipped", **fields, can_read=self.can_read)

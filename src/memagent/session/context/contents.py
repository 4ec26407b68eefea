"""What a buffer holds once its prompt is known; saved as plain data, it spares a resumed run the replay."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from memagent.compaction import Compaction
from memagent.errors import QuestionTooLong
from memagent.messages import Leaf, Message, Usage
from memagent.models.base import ChatModel
from memagent.models.retry import count_in_thread
from memagent.run.caller import Caller
from memagent.session.context.anchors import Anchor, Anchors
from memagent.session.context.compaction import compact_state
from memagent.session.context.layout import Layout, Past, State
from memagent.session.context.summarise import Summariser
from memagent.session.context.turns import Turn, neutralise, place_message
from memagent.threads import in_thread


class SavedContents(Leaf):
    """Everything in a context except the texts in its archive."""

    past: Past = Past()
    turns: tuple[Turn, ...] = ()
    tokens: int = 0
    low: int = 0
    anchors: tuple[Anchor, ...] = ()
    number: int = 0
    """Number of the next turn."""
    written: Mapping[str, int] = {}
    """Completed summary calls of each kind."""
    asked: str = ""
    """The user's message that has no answer yet, which a compaction must not shorten."""


@dataclass
class Contents:
    """What a buffer holds once its prompt is known."""

    model: ChatModel
    layout: Layout
    summariser: Summariser
    state: State
    number: int = 0
    asked: str = ""

    @classmethod
    def begin(
        cls,
        layout: Layout,
        caller: Caller,
        early: float | None,
        values: Mapping[str, Any] | SavedContents | None,
    ) -> Self:
        """Makes a new one, or restores the state that `dump` returned. Blocks."""
        layout, model = layout.measure(), caller.model
        saved = SavedContents() if values is None else SavedContents.model_validate(values)
        summariser = Summariser(caller, early, saved.written)
        (first, *_), marks = layout.anchors.known, saved.anchors
        if not marks or (marks[0].messages, marks[0].counted) != (first.messages, first.counted):
            state = layout.state(saved.past, saved.turns)  # with other tools, or another tokenizer
            return cls(model, layout, summariser, state, saved.number, saved.asked)
        head, messages = (layout.render(saved.past, turns) for turns in ((), saved.turns))
        state = State(saved.past, saved.turns, messages, head, saved.tokens, saved.low)
        layout = replace(layout, anchors=Anchors(marks))
        return cls(model, layout, summariser, state, saved.number, saved.asked)

    def save(self) -> SavedContents:
        """Returns the state to store."""
        state = self.state
        return SavedContents(
            past=state.past,
            turns=state.turns,
            tokens=state.tokens,
            low=state.low,
            anchors=self.layout.anchors.known,
            number=self.number,
            written=self.summariser.counts,
            asked=self.asked,
        )

    async def append(self, given: Message, *, ok: bool = True, usage: Usage | None = None) -> None:
        """See `SummaryBuffer.append`."""
        layout, state = self.layout, self.state
        if given.role == "tool":
            counts = layout.at(state)
        else:  # the prompt so far was sent
            prompt_tokens = usage.prompt_tokens if usage and given.role == "assistant" else 0
            arguments = (state.messages, state.low, state.tokens, prompt_tokens, layout.most)
            counts = layout = replace(layout, anchors=layout.anchors.with_prompt(*arguments))

        def add() -> State:
            safe = neutralise(given, layout.neutraliser, layout.spoken)
            turns = place_message(state.turns, safe, self.number, layout.prompts, ok=ok)
            return counts.state(state.past, turns, head=state.head)

        self.state = await count_in_thread(self.model, add)
        self.layout = layout
        if given.role == "user" and ok:
            self.asked = layout.spoken.safe(given.content)
        elif given.role == "assistant" and not given.tool_calls:
            self.asked = ""  # it is answered
        self.number += len(self.state.turns) - len(state.turns)
        self.summariser.begin(layout, self.state)

    async def check_said(self, text: str) -> None:
        """See `SummaryBuffer.check_said`."""
        if await count_in_thread(self.model, self.layout.size, text) > self.layout.said:
            raise await in_thread(self._too_long, text)

    async def check_asked(self) -> None:
        """Raises a `QuestionTooLong` if a compaction shortened the user's message that has no answer yet."""
        if not any(self.asked in message.content for message in self.state.messages):
            raise await in_thread(self._too_long, self.asked)

    def _too_long(self, text: str) -> QuestionTooLong:
        layout = self.layout
        size = layout.size(text)  # bytes if it is far too long
        amount = size if size < layout.window else f"more than {layout.window}"
        return QuestionTooLong(
            f"the message takes {amount} tokens, but with a working context of {layout.window} at most "
            f"{max(layout.said, 0)} stay word for word when the context is summarised: shorten it, let a tool read the "
            f"text, or start again with a larger working_context"
        )

    async def compact(self, *, max_summaries: int, force: bool = False) -> Compaction | None:
        """See `SummaryBuffer.compact`; doesn't check whether it is due."""
        arguments = (self.layout.at(self.state), self.summariser, self.state)
        result = await compact_state(*arguments, max_summaries=max_summaries, force=force)
        if result is None:
            return None
        self.state, report = result
        texts = {result.text for turn in self.state.turns for result in turn.results if result}
        for text in self.layout.sizes.keys() - texts:  # of texts that left
            del self.layout.sizes[text]
        await self.summariser.forget()
        self.summariser.usage, self.summariser.retried = Usage(), []
        return report

"""What a buffer holds once its prompt is known; as plain data, a resumed run starts from it instead of a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from memagent.errors import QuestionTooLong
from memagent.run.caller import Caller
from memagent.session.context.anchors import Anchor, Anchors
from memagent.session.context.layout import Layout, Past, State
from memagent.session.context.summarise import Summariser
from memagent.session.context.turns import Turn


@dataclass(frozen=True)
class Saved:
    """All that a context is made of, but for the texts in its archive."""

    past: Past = field(default_factory=Past)
    turns: tuple[Turn, ...] = ()
    tokens: int = 0
    low: int = 0
    anchors: tuple[Anchor, ...] = ()
    number: int = 0
    """Number of the next turn."""
    written: Mapping[str, int] = field(default_factory=dict[str, int])
    """Completed summary calls of each kind."""


@dataclass
class Opened:
    """What exists once the prompt is known."""

    layout: Layout
    summariser: Summariser
    state: State
    number: int = 0
    """Number of the next turn."""

    @classmethod
    def begin(
        cls, layout: Layout, caller: Caller, early: float | None, values: Mapping[str, Any] | None
    ) -> Opened:
        """A new one, or one with the state that `dump` returned. Blocks."""
        layout = layout.measure()
        if values is None:
            return cls(layout, Summariser(caller, early), layout.state(Past(), ()))
        saved = _adapter().validate_python(values)
        head, messages = (layout.render(saved.past, turns) for turns in ((), saved.turns))
        state = State(saved.past, saved.turns, messages, head, saved.tokens, saved.low)
        layout = replace(layout, anchors=Anchors(saved.anchors))
        return cls(layout, Summariser(caller, early, saved.written), state, saved.number)

    def dump(self) -> dict[str, Any] | None:
        """See `SummaryBuffer.dump`. Blocks."""
        state, written = self.state, self.summariser.written
        if written is None or state.pending:
            return None
        counts = (state.tokens, state.low, self.layout.anchors.known)
        saved = Saved(state.past, state.turns, *counts, self.number, written)
        return _adapter().dump_python(saved, mode="json")

    def check_said(self, text: str) -> None:
        """See `SummaryBuffer.check_said`. Blocks."""
        layout = self.layout
        if (size := layout.size(text)) > layout.said:
            raise QuestionTooLong(
                f"the message takes {size} tokens, but with a working context of {layout.window} at most "
                f"{max(layout.said, 0)} stay word for word when the context is summarised: shorten it, let a tool read "
                f"the text, or use a larger working_context"
            )


@cache
def _adapter() -> TypeAdapter[Saved]:
    return TypeAdapter(Saved)

"""What a reply says in a tool session: calls, or the answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memagent.messages import Completion, FinishReason, ToolCall
from memagent.prompts.reply import UnusableReply, visible
from memagent.tools.protocol import read_calls


@dataclass(frozen=True)
class Act:
    """What a reply of the model says."""

    said: str
    """Beside its calls, or as the answer; without reasoning."""
    shown: str
    """The reply as it stands in the context: without reasoning, with calls that are written as text."""
    calls: tuple[ToolCall, ...] = ()
    problem: str | None = None
    """Why what was meant as a call is none, as the model is told."""
    truncated: bool = False
    """The reply was cut off by its token limit."""

    @property
    def answers(self) -> bool:
        """Whether it is the final answer."""
        return not self.calls and self.problem is None

    @property
    def is_cut_off(self) -> bool:
        """Whether its token limit ended it before it called a tool or had answered."""
        return self.truncated and not self.calls


def read_act(completion: Completion, *, native: bool, step: int, tools: Iterable[str] = ()) -> Act:
    """What a reply says.

    Args:
        completion: the reply.
        native: calls come in fields of the server's own; False: in the text, where `step` makes their ids.
        step: of the reply.
        tools: names that a model is told if its call cannot be read.

    Raises:
        UnusableReply: it says nothing, broke off inside its reasoning, or was stopped by the engine.
    """
    cut = completion.finish_reason is FinishReason.LENGTH
    if native:
        try:
            said = visible(completion)
        except UnusableReply:  # beside calls nothing need be said
            if not completion.tool_calls or completion.finish_reason is FinishReason.OTHER:
                raise
            said = ""
        return Act(said, said, completion.tool_calls, truncated=cut)
    text = visible(completion)
    said, calls, problem = read_calls(text, tools)
    # Ids by the step: within one context each is there once.
    calls = tuple(
        call.model_copy(update={"id": f"call-{step}-{place}"}) for place, call in enumerate(calls)
    )
    return Act(said, text, calls, problem, truncated=cut)

"""`ExpertOver`: the real model is paid, the expert plays."""

from __future__ import annotations

from functools import partial

from memagent.messages import ChatRequest, Completion, FinishReason, ToolCall
from memagent.models.base import ChatModel, Wrapper, refuse_overflow
from memagent.threads import in_thread
from memagent.tools.protocol import write_call
from memagent_bench.games import Expert

PAID_OUTPUT = 1
"""Maximum tokens that the real model generates, since they are discarded."""


class ExpertOver(Wrapper):
    """Sends each request to a model, discards its reply, and replies as the game's expert would.

    So a session goes as well as its context allows, and its prompts cost what the model's server reports.

    Args:
        inner: the model that is paid.
        expert: the game's expert.
        native: whether calls use native fields; False: the text of messages.
    """

    def __init__(self, inner: ChatModel, expert: Expert, *, native: bool = True) -> None:
        super().__init__(inner)
        self._expert, self._native = expert, native

    async def complete(self, request: ChatRequest) -> Completion:
        """Returns the expert's reply. Prompt tokens are the model's, completion tokens those of the reply.

        Raises:
            ContextOverflow: prompt and output, as requested, don't fit the window.
            ModelError: the model failed: no reply is given that wasn't paid for.
        """
        counter, window = await self.counter(), await self.window()
        if window is not None:
            # Before the output is reduced: a session that asks for too much must get an error.
            count = partial(counter.count_messages, thinking=request.thinking, tools=request.tools)
            prompt = await in_thread(count, request.messages)
            refuse_overflow(self.name, prompt, request.max_tokens, window)
        least = min(request.max_tokens, PAID_OUTPUT)
        paid = await self.inner.complete(request.model_copy(update={"max_tokens": least}))
        reply = await in_thread(self._expert.reply, request.messages, request.kind)
        text = reply if isinstance(reply, str) else write_call(reply)
        spent = await in_thread(counter.count, text)
        calls = (reply,) if isinstance(reply, ToolCall) and self._native else ()
        return Completion(
            text="" if calls else text,
            tool_calls=calls,
            finish_reason=FinishReason.STOP,
            usage=paid.usage.model_copy(update={"completion_tokens": spent}),
            failures=paid.failures,
        )

"""What a call took: the server's figures, and counts of ours where it gives none."""

from __future__ import annotations

from memagent.errors import ModelError, TokenizerError
from memagent.messages import ChatRequest, Completion
from memagent.models.base import Wrapper
from memagent.threads import in_thread
from memagent.tokens.base import TokenCounter
from memagent.tokens.byte_bound import ByteBound


class Metered(Wrapper):
    """Completes the usage of replies, so that nothing is free because a server keeps it to itself.

    Figures that a server leaves out, and impossible ones (below 0, no prompt), are counted instead: see `metered`.
    """

    async def complete(self, request: ChatRequest) -> Completion:
        """Passes the request on; the reply says what it took."""
        completion = await self.inner.complete(request)
        if min(completion.usage.prompt_tokens, completion.usage.completion_tokens) > 0:
            return completion
        try:
            return await in_thread(metered, request, completion, await self.inner.counter())
        except (ModelError, TokenizerError):  # the reply is here, and paid for
            return await in_thread(metered, request, completion, ByteBound())


def metered(request: ChatRequest, completion: Completion, counter: TokenCounter) -> Completion:
    """The reply to `request` with a usage that has both figures, by the model's `counter`. Blocks.

    `request.prompt_tokens` are taken before the prompt is counted.

    Raises:
        ModelError: the counter asks a server, and it does not answer.
        TokenizerError: the counter cannot render the prompt.
    """
    usage = completion.usage
    prompt, output = usage.prompt_tokens, usage.completion_tokens
    if prompt <= 0:
        prompt = request.prompt_tokens or counter.count_messages(
            request.messages, thinking=request.thinking, tools=request.tools
        )
    if output <= 0:
        texts = [completion.text, completion.reasoning]
        for call in completion.tool_calls:
            texts += [call.name, call.arguments]
        output = sum(map(counter.count, texts))
    both = usage.model_copy(update={"prompt_tokens": prompt, "completion_tokens": output})
    return completion.model_copy(update={"usage": both})

"""What one session sends and pays for, whoever plays it."""

from __future__ import annotations

from memagent.errors import ModelError
from memagent.messages import ChatRequest, Completion, Usage
from memagent.models.base import ChatModel, Wrapper


class Tally(Wrapper):
    """Adds up the calls of one session. Doesn't close the model, which other sessions share."""

    def __init__(self, inner: ChatModel) -> None:
        super().__init__(inner)
        self.usage = Usage()
        self.largest = 0
        """Tokens of the largest prompt."""

    async def complete(self, request: ChatRequest) -> Completion:
        """Passes the request on."""
        try:
            completion = await self.inner.complete(request)
        except ModelError as error:
            self.usage += Usage(retries=error.attempts)
            raise
        self.usage += completion.usage
        self.largest = max(self.largest, completion.usage.prompt_tokens)
        return completion

    async def aclose(self) -> None:
        """Does nothing: the model stays open."""

"""A model with scripted replies, for tests, docs and dry runs."""

import inspect
import threading
from collections.abc import Awaitable, Callable, Sequence

from memagent.errors import ConfigError, ModelError
from memagent.messages import ChatRequest, Completion, ToolCall, Usage
from memagent.models.base import SimpleModel
from memagent.models.limit import complete_usage
from memagent.texts import plural
from memagent.tokens.base import TokenCounter
from memagent.tokens.byte_bound import ByteBound

Reply = str | ToolCall | tuple[ToolCall, ...] | list[ToolCall] | Completion | BaseException
Respond = Callable[[ChatRequest], "Reply | Awaitable[Reply]"]


class ScriptedModel(SimpleModel):
    """Replies from a list, one entry per call, or from a function of the request.

    A text or one or more tool calls become a `Completion` whose usage is counted with the model's counter, a
    `Completion` is returned unchanged, and an exception is raised. `requests` holds what was sent, in order.

    ```python
    from memagent import MemoryAgent
    from memagent.models.scripted import ScriptedModel

    model = ScriptedModel(["She weds Pierre in 1813.", "Pierre"])  # one memory, one answer
    result = MemoryAgent(model).ask("Natasha weds Pierre in 1813.", "Whom does Natasha marry?")
    assert result.answer == "Pierre"
    assert [request.kind for request in model.requests] == ["update", "answer"]
    ```

    Args:
        replies: a sequence, or a function (sync or async) that makes the reply to a request.
        window: maximum tokens of prompt plus output; None for a model that doesn't report it.
        counter: counts tokens; by default UTF-8 bytes.
        name: the model's name in records.

    Raises:
        ConfigError: `replies` is a single text instead of a list.
    """

    def __init__(
        self,
        replies: Sequence[Reply] | Respond,
        *,
        window: int | None = 8192,
        counter: TokenCounter | None = None,
        name: str = "scripted",
    ) -> None:
        if isinstance(replies, str):
            raise ConfigError(f"replies={replies!r} is a single text; give a list, [{replies!r}]")
        self.requests: list[ChatRequest] = []
        """What was sent, in order."""
        self._replies = replies if callable(replies) else tuple(replies)
        super().__init__(ByteBound() if counter is None else counter, window)
        self.name = name
        self._lock = threading.Lock()

    async def complete(self, request: ChatRequest) -> Completion:
        """Returns the next reply, or raises it if it is an exception. Raises a `ModelError` if the list is used up."""
        prompt = self.count_prompt(request)
        with self._lock:
            place = len(self.requests)
            self.requests.append(request)
        reply = await self._reply(place, request)
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, Completion):
            return reply
        text = reply if isinstance(reply, str) else ""
        calls = () if isinstance(reply, str) else (reply,) if isinstance(reply, ToolCall) else reply
        usage = Usage(calls=1, prompt_tokens=prompt)
        completion = Completion(text=text, tool_calls=tuple(calls), usage=usage)
        return complete_usage(request, completion, self._counter)

    def __repr__(self) -> str:
        return f"ScriptedModel({self.name!r}, {len(self.requests)} requests so far)"

    async def _reply(self, place: int, request: ChatRequest) -> Reply:
        if callable(self._replies):
            reply = self._replies(request)
            return await reply if inspect.isawaitable(reply) else reply
        if place < len(self._replies):
            return self._replies[place]
        raise ModelError(
            f"{self.name} has {plural(len(self._replies), 'reply')}, and this is call number {place + 1} (kind "
            f"{request.kind!r}); give one more reply, or a function that makes them"
        )

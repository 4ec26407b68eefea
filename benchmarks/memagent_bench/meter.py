"""What calls cost, per sample and for the whole benchmark."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from dataclasses import dataclass, field

from memagent.errors import LimitReached, ModelError
from memagent.messages import ChatRequest, Completion, Usage
from memagent.models.base import ChatModel, Wrapper


@dataclass
class Account:
    """Calls made for one sample in this session, including those that led to nothing."""

    usage: Usage = field(default_factory=Usage)

    @property
    def tokens(self) -> int:
        """Prompt plus completion tokens."""
        return self.usage.prompt_tokens + self.usage.completion_tokens


_account: ContextVar[Account | None] = ContextVar("account", default=None)


class Meter(Wrapper):
    """Records what calls cost, and whether a limit was reached.

    It makes all replies text that a file can hold, whoever requested them.
    """

    def __init__(self, inner: ChatModel) -> None:
        super().__init__(inner)
        self.total = Account()
        """Cost of all calls of this session."""
        self.reached: str | None = None
        """Message of the first `LimitReached`; from then on no call is let through."""
        self._lock = threading.Lock()

    def open(self) -> Account:
        """Opens a new account for the calls of the running task, and of the tasks and threads that it starts."""
        account = Account()
        _account.set(account)
        return account

    async def complete(self, request: ChatRequest) -> Completion:
        """Passes the request on."""
        try:
            completion = await self.inner.complete(request)
        except LimitReached as limit:
            self.reached = self.reached or str(limit)
            raise
        except ModelError as error:
            self._note(Usage(retries=error.attempts))
            raise
        self._note(completion.usage)
        return completion

    def _note(self, usage: Usage) -> None:
        account = _account.get()
        with self._lock:
            self.total.usage += usage
            if account is not None:
                account.usage += usage

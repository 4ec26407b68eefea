"""What calls cost: for each sample by itself, and for the benchmark as a whole."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from dataclasses import dataclass, field

from memagent.errors import LimitReached, ModelError
from memagent.messages import ChatRequest, Completion, Usage
from memagent.models.base import ChatModel, Wrapper
from memagent.run.exchange import repair


@dataclass
class Account:
    """Calls that were made for one sample in this session, also where nothing came of it."""

    usage: Usage = field(default_factory=Usage)

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens."""
        return self.usage.prompt_tokens + self.usage.completion_tokens


_account: ContextVar[Account | None] = ContextVar("account", default=None)


class Meter(Wrapper):
    """Notes what calls cost, and whether a limit was reached.

    Replies leave it as text that a file can hold, whoever asked for them.
    """

    def __init__(self, inner: ChatModel) -> None:
        super().__init__(inner)
        self.total = Account()
        """Of this session."""
        self.reached: str | None = None
        """What the first `LimitReached` said: from then on no call is let through."""
        self._lock = threading.Lock()

    def open(self) -> Account:
        """A new account for the calls of the running task, and of the tasks and threads that it starts."""
        account = Account()
        _account.set(account)
        return account

    async def complete(self, request: ChatRequest) -> Completion:
        """Passes the request on."""
        try:
            completion = repair(await self.inner.complete(request))
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

"""What every agent holds: a model, a run store, and their ends."""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from memagent.errors import (
    AuthenticationFailed,
    BadResponse,
    ConfigError,
    MemagentError,
    ModelNotFound,
    RequestRefused,
)
from memagent.models.base import ChatModel
from memagent.models.limit import ConcurrencyLimit, Limits
from memagent.models.metered import Metered
from memagent.runner import run_sync
from memagent.runstore import RunStore
from memagent.threads import in_thread

T = TypeVar("T")


class Agent:
    """Opens its store when it is first needed, and closes what it opened.

    Args:
        model: the model; the agent closes it.
        concurrency: most calls in flight at once.
        limits: stop a run (resumably) at so many calls, tokens, seconds, or so much money.
        store: where runs are kept: a file, a `RunStore`, None for a temporary one, `"default"` for a file in the
            user's state folder.

    Raises:
        ConfigError: `limits` are none.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        concurrency: int,
        limits: Limits | None,
        store: RunStore | str | Path | None,
    ) -> None:
        self.model = ConcurrencyLimit(Metered(model), concurrency)
        if limits is not None and not isinstance(cast("object", limits), Limits):
            raise ConfigError(f"limits={limits!r}: give a memagent.Limits")
        self.limits = limits
        self._store = store
        self._opened: RunStore | None = None
        self._opening = threading.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def store(self) -> RunStore:
        """The run store, opened on first use."""
        with self._opening:
            if not isinstance(self._store, RunStore):
                if self._opened is None:
                    path = RunStore.default_path() if self._store == "default" else self._store
                    self._opened = RunStore(path)
                return self._opened
            return self._store

    async def aclose(self) -> None:
        """Closes the model's connections, and the store if this agent opened it (trajectories read from it)."""
        await self.model.aclose()
        opened, self._opened = self._opened, None
        if opened is not None:
            await in_thread(opened.close)

    def close(self) -> None:
        """`aclose` for sync callers."""
        run_sync(self.aclose())

    async def reported_window(self, given: int | None) -> int | None:
        """What the model says of its window; None where it says nothing.

        Args:
            given: a window that was set; without one the model has to be asked with success.

        Raises:
            ModelError: the server had to be asked and did not answer.
        """
        try:
            return await self.model.window()
        except (AuthenticationFailed, RequestRefused, BadResponse, ModelNotFound):
            if given is None:
                raise
            return (
                None  # some gateways keep their list, or names, to themselves; the chat has its say
            )

    def _finish(self, run_id: str, work: Coroutine[Any, Any, T]) -> T:
        """Runs a stream from sync code; what interrupts it says how to go on."""
        try:
            return run_sync(work)
        except BaseException as error:
            if not isinstance(error, MemagentError) and self.store.find(run_id) is not None:
                error.add_note(f"The run goes on with agent.resume({run_id!r}).")
            raise

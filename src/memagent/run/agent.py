"""What every agent has: a model, limits, a run store, and how they are closed."""

from __future__ import annotations

import copy
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from memagent.errors import (
    AuthenticationFailed,
    BadResponse,
    ConfigError,
    MemagentError,
    ModelNotFound,
    RequestRefused,
)
from memagent.events import Event
from memagent.messages import Leaf
from memagent.models.base import ChatModel
from memagent.models.limit import ConcurrencyLimit, Limits
from memagent.models.spec import open_model
from memagent.run.plan import Settings
from memagent.runstore import RunStore
from memagent.threads import Closing, in_thread, run_sync

if TYPE_CHECKING:
    from memagent.run.stream import EventStream

R = TypeVar("R")
T = TypeVar("T")
S = TypeVar("S", bound=Settings)
OnEvent = Callable[[Event], object]


class Agent(Closing, Generic[S]):
    """Base of all agents. Opens its store on first use. Closing an agent closes its model, even one passed in.

    Raises:
        ConfigError: `limits` is not a `Limits`, or `store` not a path or `RunStore`.
        NoModel: no model was named or found.
    """

    settings: S

    def __init__(
        self,
        model: str | ChatModel | None,
        *,
        concurrency: int,
        limits: Limits | None,
        store: RunStore | str | Path | None,
    ) -> None:
        if limits is not None and not isinstance(cast("object", limits), Limits):
            raise ConfigError(f"limits must be a memagent.Limits, got {limits!r}")
        if store is not None and not isinstance(cast("object", store), (RunStore, str, Path)):
            raise ConfigError(f"store must be a path, a memagent.RunStore or None, got {store!r}")
        self.model = ConcurrencyLimit(open_model(model), concurrency)
        self.limits = limits
        self.around_run: Callable[[str], AbstractContextManager[object]] = nullcontext
        """Entered around each run, given its id: for tracing."""
        self.concurrency = concurrency
        self._store = store
        self._opened: RunStore | None = None
        self._opening = threading.Lock()

    def recipe(self) -> dict[str, Any]:
        """Returns what is needed to recreate this agent, as plain data without secrets; stored with each run."""
        return {**self.model.recipe, **self.settings.model_dump(mode="json")}

    @property
    def store(self) -> RunStore:
        """The run store, opened on first use."""
        with self._opening:
            if self._opened is None:
                run_store = RunStore.default_path() if self._store == "default" else self._store
                self._opened = run_store if isinstance(run_store, RunStore) else RunStore(run_store)
            return self._opened

    def with_model(self, model: ChatModel, *, seed: int | None = None) -> Self:
        """Returns the agent with another model, which the new agent closes; the store still belongs to this one.

        Cheap: nothing is read or checked again. The seed defaults to this agent's.
        """
        other = copy.copy(self)
        other.model = ConcurrencyLimit(model, self.concurrency)
        other._store, other._opened = self.store, None
        if seed is not None:
            other.settings = self.settings.model_copy(update={"seed": seed})
        return other

    async def aclose(self) -> None:
        """Closes the model, even one that was passed in. The store is closed once no result of this agent needs it."""
        await self.model.aclose()
        self._opened = None

    async def reported_window(self, given: int | None) -> int | None:
        """Returns the window that the model reports, or None. Raises a `ModelError` if its server didn't answer."""
        try:
            return await self.model.window()
        except (AuthenticationFailed, RequestRefused, BadResponse, ModelNotFound):
            if given is None:
                raise
            return None  # some gateways list nothing, or other names

    async def _resolve(
        self,
        make: Callable[..., R],
        subject: Any,
        settings: Leaf,
        *more: Any,
        window: str,
        resumed: int | None,
    ) -> R:
        """Makes the plan of a run, in a thread, once the model's window and counter are known.

        `window` names the window's setting. If it is unset, a resumed run keeps its own: a server's may have grown.
        """
        own_window = getattr(settings, window)
        model_window = await self.reported_window(own_window)
        if own_window is None:
            settings = settings.model_copy(update={window: resumed})
        counter = await self.model.counter()
        make = partial(make, model=self.model, counter=counter, window=model_window)
        return await in_thread(make, subject, settings, *more)

    def _finish(self, stream: EventStream[R], on_event: OnEvent | None = None) -> R:
        """Runs a stream from sync code, with events in the caller's thread; an interruption says how to resume."""
        try:
            if on_event is None:
                return run_sync(stream.finish())
            try:
                while (event := run_sync(anext_or_none(stream))) is not None:
                    on_event(event)
            finally:
                run_sync(stream.aclose(), release=True)
            return stream.outcome
        except BaseException as error:
            if not isinstance(error, MemagentError) and (run := self.store.find(stream.run_id)):
                # Other documents than files are passed again. Sessions have none, and '...' includes it.
                lacks = run.source["name"] and not run.source["path"] and "..." not in stream.again
                call = stream.again.replace(")", ", document)") if lacks else stream.again
                error.add_note(f"Resume the run with {call}.")
            raise


async def anext_or_none(items: AsyncIterator[T]) -> T | None:
    """Returns the next item; None at the end."""
    return await anext(items, None)

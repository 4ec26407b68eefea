"""The log of one run: effects under keys, each begun, then committed with its events before they are delivered."""

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

from memagent.errors import MemagentError, ModelNotFound, RunBusy, RunMismatch
from memagent.events import Event, Stopped
from memagent.messages import Usage
from memagent.runstore import Begun, RunRecord, RunStore, list_differences
from memagent.runstore.lock import busy
from memagent.runstore.records import flatten
from memagent.threads import in_thread

NOTHING = Usage()
FOLLOWING = ("budget.prompt", "budget.question", "budget.frame")
"""Parts of a binding that derive from others, or, like the frame, from a chat template that may write the date."""

Outlet = asyncio.Queue[Event | None]
"""Receives a run's events, then None. The run waits until they are consumed."""


class Log:
    """One stored run, held by one loop.

    Its events go to the outlet, if there is one, in the order they were committed. One that isn't `held` is only read.
    """

    def __init__(
        self, store: RunStore, run_id: str, outlet: Outlet | None = None, *, held: bool = True
    ) -> None:
        self.store, self.run_id, self._outlet, self.held = store, run_id, outlet, held
        self._news: deque[Event] = deque()
        self._order = threading.Lock()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        store: RunStore,
        run_id: str,
        *,
        binding: dict[str, Any],
        settings: dict[str, Any],
        source: dict[str, Any],
        outlet: Outlet | None = None,
    ) -> AsyncGenerator[Self]:
        """Creates the run, or opens an existing one with the same binding, and holds it.

        If another worker holds it and it has its answers, it is opened to be read.

        Errors that pass through get the run's id, and leave it resumable; a new run that failed before its
        first effect is dropped, as is one whose model was not found before its first reply.

        Raises:
            RunMismatch: the id belongs to a run with another binding; the message lists the differences.
            RunBusy: another task or process is working on it.
        """
        lock = store.hold(run_id)
        dropped = False
        try:
            async with AsyncExitStack() as ends:
                try:
                    await in_thread(lock.__enter__)
                except RunBusy:
                    if not await in_thread(store.is_answered, run_id):
                        raise
                    check_binding(await in_thread(store.get, run_id), binding)
                    yield cls(store, run_id, outlet, held=False)
                    return
                ends.push_async_callback(in_thread, lock.__exit__, None, None, None)
                record = await in_thread(store.find, run_id)
                if record is None:
                    await in_thread(store.create, run_id, binding, settings, source)
                else:
                    check_binding(record, binding)
                    await in_thread(store.set_status, run_id, at_work=True)
                ends.push_async_callback(in_thread, store.set_status, run_id, at_work=False)
                try:
                    yield cls(store, run_id, outlet)
                except MemagentError as error:
                    # With an empty or missing document or a wrong URL, there is nothing to resume.
                    no_model = isinstance(error, ModelNotFound)
                    if record is None:
                        dropped = await in_thread(store.drop_unread, run_id, unanswered=no_model)
                    raise
        except MemagentError as error:
            error.run_id = None if dropped else run_id
            raise

    async def replay(self, after: int = -1) -> int:
        """Delivers the events committed so far with `seq > after`, verbatim, and returns their number."""
        if self._outlet is not None:
            events = self.store.events(self.run_id, after)
            while (event := await in_thread(next, events, None)) is not None:
                self._outlet.put_nowait(event)
                await self._outlet.join()
        return await in_thread(self.store.last_seq, self.run_id) - after

    async def effect(self, key: str) -> dict[str, Any] | None:
        """Returns the body committed under a key; None if there is none."""
        return await in_thread(self.store.effect, self.run_id, key)

    async def begin(self, key: str) -> Begun:
        """Commits that an effect is about to be made, or returns the committed one."""
        if not self.held and await self.effect(key) is None:
            raise busy(self.run_id)
        return await in_thread(self.store.begin, self.run_id, key)

    async def commit(
        self,
        key: str,
        body: Mapping[str, Any],
        usage: Usage = NOTHING,
        events: Sequence[Event] = (),
    ) -> None:
        """See `RunStore.commit`."""
        await self.write(self.store.commit, key, dict(body), usage, events)

    async def add(self, *events: Event) -> None:
        """Commits events that belong to no effect."""
        await self.write(self.store.log, events)

    async def add_stop(self, stopped: Stopped, *, among: int = 1) -> None:
        """Commits that a question stopped, unless the last events say so already because resuming achieved nothing."""
        last = await in_thread(self.store.last_seq, self.run_id) - among
        for event in await in_thread(list, self.store.events(self.run_id, last)):
            if event.model_copy(update={"seq": stopped.seq}) == stopped:
                return
        await self.add(stopped)

    async def write(
        self,
        work: Callable[..., list[Event]],
        *args: Any,
        made: Callable[[], Sequence[Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        """Calls a method of the store that commits events, and delivers them.

        `made` returns further arguments for it, in the same thread. If it raises, nothing is committed.
        """
        if not self.held:
            raise busy(self.run_id)

        def write() -> None:
            values = args if made is None else (*args, *made())
            # Locked, and in this thread: effects may be committed concurrently, or by a cancelled task.
            with self._order:
                self._news.extend(work(self.run_id, *values, **kwargs))

        await in_thread(write)
        if self._outlet is None:
            self._news.clear()  # the store has them
            return
        while self._news:
            self._outlet.put_nowait(self._news.popleft())
        await self._outlet.join()


def check_binding(record: RunRecord, binding: dict[str, Any]) -> None:
    """Raises a `RunMismatch` that lists the differences, if a stored run and the current request differ."""
    # Earlier versions bound runs to fewer of their settings, and the earliest had fewer settings.
    old_settings = {name: record.settings[name] for name in binding if name in record.settings}
    before = old_settings | record.binding
    if not before.get("overlap", 1):
        del before["overlap"]  # a setting of earlier versions: only 0 can be resumed
    # Through JSON, like the stored one: it turns tuples into lists.
    new_binding = {k: v for k, v in binding.items() if k in before or k == "branch"}
    flat = map(flatten, (before, json.loads(json.dumps(new_binding))))
    before, after = ({k: v for k, v in fields.items() if k not in FOLLOWING} for fields in flat)
    if before == after:
        return
    if before["agent"] == after["agent"] and before["questions"] != after["questions"]:
        questions = ", ".join(map(repr, before["questions"]))
        raise RunMismatch(
            f"run {record.id!r} was started with another question or task ({questions}): pass the same one to resume "
            f"it, or another run_id= (--run-id)"
        )
    if before["agent"] != after["agent"]:
        kinds = {
            "tools": "a tool session: resume it with ToolAgent",
            "extract": "an extraction: call extract again",
        }
        kind = kinds.get(before["agent"], "a reading: resume it with MemoryAgent")
        raise RunMismatch(f"run {record.id!r} is {kind}, or use another run_id= (--run-id)")
    raise RunMismatch(
        f"run {record.id!r} was made with different settings: {list_differences(before, after)}. "
        f"Use the same ones to resume it, or another run_id= (--run-id)"
    )

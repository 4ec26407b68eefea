"""Drives loops: sync entry points, prefetching, concurrent steps, and the journal of a run."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from memagent.errors import ConfigError, MemagentError, RunMismatch
from memagent.events import Event
from memagent.runstore import RunRecord, RunStore
from memagent.threads import in_thread

T = TypeVar("T")

# --- sync entry points


class _Background:
    """One daemon thread with an event loop, made on first use (and again after a fork)."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._mutex:
            if self._loop is None or self._pid != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._pid = os.getpid()
                threading.Thread(
                    target=self._loop.run_forever, name="memagent", daemon=True
                ).start()
            return self._loop


_background = _Background()


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` on the background loop and waits for it: works in scripts, threads and notebooks.

    Ctrl-C cancels the work, waits until it has let go of what it holds, and raises KeyboardInterrupt.

    Raises:
        ConfigError: called from the background loop itself (a tool or model that uses the sync API),
            which would wait for itself.
    """
    loop = _background.loop()
    try:
        inside = asyncio.get_running_loop() is loop
    except RuntimeError:
        inside = False
    if inside:
        work.close()
        raise ConfigError(
            "a sync method was called from inside memagent's own event loop: await its async twin"
        )
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:  # Ctrl-C, or what a signal handler raised, while the work goes on
        if not future.done():
            future.cancel()
            _wait_cancelled(loop)
        raise


def _wait_cancelled(loop: asyncio.AbstractEventLoop) -> None:
    # The future is cancelled at once, the task behind it needs some turns of the loop to clean up.
    async def settle() -> None:
        me = asyncio.current_task()
        pending = {task for task in asyncio.all_tasks() if task is not me and task.cancelling()}
        if pending:
            await asyncio.wait(pending, timeout=10)

    asyncio.run_coroutine_threadsafe(settle(), loop).result()


# --- concurrency


async def prefetch(items: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """The same items, the next one being made while the current one is used."""
    upcoming = asyncio.ensure_future(anext(items, None))
    try:
        while (item := await upcoming) is not None:
            upcoming = asyncio.ensure_future(anext(items, None))
            yield item
    finally:
        upcoming.cancel()
        await asyncio.gather(upcoming, return_exceptions=True)
        await items.aclose()


async def together(work: Iterable[Awaitable[T]]) -> AsyncGenerator[T]:
    """Results as they come.

    After a failure the others still finish and are handed out, then it is raised; cancelling cancels all.
    """
    first, *others = work
    if not others:  # the usual case; tasks would cost it 0.05 ms
        yield await first
        return
    tasks = [asyncio.ensure_future(one) for one in (first, *others)]
    failure: Exception | None = None
    try:
        for done in asyncio.as_completed(tasks):
            try:
                result = await done
            except Exception as error:  # noqa: BLE001 - raised below, when finished work is safe
                failure = failure or error
            else:
                yield result
        if failure is not None:
            raise failure
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# --- the journal


def new_run_id() -> str:
    """A fresh run id: sortable by time, `20261120-101530-1f3a09cd`."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"


def check_run_id(run_id: str) -> str:
    """A run id that is safe as a file name.

    Raises:
        ConfigError: empty, over 64 characters, or with characters other than letters, digits, `.`, `_`, `-`.
    """
    # A leading '-' would read as an option of the command, a leading '.' as a hidden file.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", str(run_id)):
        raise ConfigError(
            f"run id {run_id!r}: use 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit"
        )
    return run_id


class Journal:
    """One run in the store, held by one loop: what it commits is handed back as numbered events."""

    def __init__(self, store: RunStore, run_id: str) -> None:
        self.store, self.run_id = store, run_id

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
    ) -> AsyncGenerator[Journal]:
        """Makes the run, or takes up an existing one with the same binding, and holds it.

        Errors that pass through carry the run's id, and leave it resumable; a new run that failed before its
        first chunk is dropped.

        Raises:
            RunMismatch: the id belongs to a run with another binding; the message names what differs.
            RunBusy: somebody else is at it.
        """
        lock = store.hold(run_id)
        dropped = False
        try:
            await in_thread(lock.__enter__)
            try:
                record = await in_thread(store.find, run_id)
                if record is None:
                    await in_thread(store.create, run_id, binding, settings, source)
                else:
                    check_binding(record, binding)
                    await in_thread(store.set_status, run_id, at_work=True)
                try:
                    yield cls(store, run_id)
                except MemagentError:
                    # An empty or missing document is no run: there is nothing to resume.
                    dropped = record is None and await in_thread(store.drop_unread, run_id)
                    raise
                finally:
                    await in_thread(store.set_status, run_id, at_work=False)
            finally:
                await in_thread(lock.__exit__, None, None, None)
        except MemagentError as error:
            error.run_id = None if dropped else run_id
            raise

    async def replay(self) -> AsyncGenerator[Event]:
        """The events committed so far, verbatim."""
        events = self.store.events(self.run_id)
        while (event := await in_thread(next, events, None)) is not None:
            yield event


def check_binding(record: RunRecord, binding: dict[str, Any]) -> None:
    """Compares a stored run with what is asked now.

    Raises:
        RunMismatch: they differ; the message names each difference.
    """
    now = json.loads(json.dumps(binding))
    if record.binding == now:
        return
    before, after = _flat(record.binding), _flat(now)
    differences = [
        f"{key} was {before.get(key)!r}, is {after.get(key)!r}"
        for key in sorted({*before, *after}, key=lambda key: (key != "questions", key))
        if before.get(key) != after.get(key)
        and key
        not in ("budget.prompt", "budget.question", "budget.frame")  # they follow from others
    ]
    raise RunMismatch(
        f"run {record.id!r} was made with other settings: {'; '.join(differences)}. "
        f"Use the same ones to resume it, or another --run-id"
    )


def _flat(binding: dict[str, Any]) -> dict[str, Any]:
    """The binding with nested fields by their path, `budget.memory`."""
    flat: dict[str, Any] = {}
    for key, value in binding.items():
        if isinstance(value, dict):
            fields = _flat(cast("dict[str, Any]", value))
            flat |= {f"{key}.{field}": one for field, one in fields.items()}
        else:
            flat[key] = value
    return flat

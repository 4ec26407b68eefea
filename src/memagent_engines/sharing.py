"""Engines in this process: one for all models with the same settings, on its own event loop."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from memagent.errors import ConfigError, EngineFailed, MemagentError
from memagent.messages import ChatRequest, FinishReason
from memagent.tokens import TokenizerFile

T = TypeVar("T")
FINISH = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}
"""Finish reasons by the engines' names; any other name means that the engine broke off."""


@dataclass(frozen=True)
class EngineReply:
    """The reply that an engine drew for one prompt."""

    text: str
    """The reply without special tokens, and without the stop sequence and what follows it."""
    ids: tuple[int, ...]
    """T ids, including those of the stop sequence."""
    logprobs: tuple[float, ...] | None
    """T log-probabilities, if requested."""
    finish: FinishReason
    cached: int
    """Prompt tokens from the prefix cache."""


@dataclass(frozen=True)
class DrawOptions:
    """What a model requests from its engine with each call."""

    tokens: bool = False
    """Whether to return log-probabilities."""
    adapter: str | None = None
    """Folder of the adapter to use."""


class Engine(Protocol):
    """A running engine, made and used on its own event loop."""

    window: int

    async def draw(
        self, ids: tuple[int, ...], request: ChatRequest, ask: DrawOptions
    ) -> EngineReply:
        """Draws a reply to P prompt ids; cancelling aborts the request in the engine.

        Raises:
            EngineFailed: the engine has died.
            ModelError: this request failed.
        """
        ...

    async def load(self, folder: str) -> None:
        """Loads the weights in a folder, of the same model, and drops cached prefixes.

        Raises:
            EngineFailed: the engine has died.
            ModelError: the engine can't load them.
        """
        ...

    def stop(self) -> None:
        """Ends the engine's processes. Blocks for seconds."""
        ...


Start = Callable[[], Coroutine[Any, Any, Engine]]


class SharedEngine:
    """An engine, its tokenizer, the thread of its event loop, and how many models use it.

    Args:
        source: source of the models.
        start: starts the engine.
        previous: an engine that must end first, since memory may not hold both.
    """

    def __init__(self, source: str, start: Start, previous: SharedEngine | None = None) -> None:
        self.users = 0
        self._source, self._start_engine = source, start
        self._closing = False
        self._submitting, self._ending = threading.Lock(), threading.Lock()
        self._loop = asyncio.new_event_loop()
        # A separate loop: starting blocks it for up to minutes, and each step takes some of its time afterwards.
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="memagent-engine", daemon=True
        )
        self._thread.start()
        self.started = self.submit(self._start(previous))

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs `work` on the engine's loop; cancelling the future cancels it.

        Raises:
            EngineFailed: the engine is ending, or has ended.
        """
        with self._submitting:
            if self._closing:
                work.close()
                raise EngineFailed(
                    f"the engine for {self._source!r} was stopped: send it again", attempts=0
                )
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _start(self, previous: SharedEngine | None) -> tuple[Engine, TokenizerFile]:
        if previous is not None:
            previous.close()
        try:
            # Imported here, since it imports torch. The tokenizer comes first: its errors show within a second.
            from memagent_engines.transformers.loading import load_counter

            counter = load_counter(self._source)
            engine = await self._start_engine()
        except MemagentError:
            raise
        except ImportError as error:
            raise ConfigError(
                f"the model {self._source!r} needs packages that are missing here ({error}): install the engine in "
                f"this environment, or serve the model and name the server"
            ) from error
        except (OSError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{self._source!r} cannot be opened ({_say(error)}): give a folder as save_pretrained writes it, and "
                f"settings that the engine has"
            ) from error
        except Exception as error:  # anything that an engine may raise
            raise EngineFailed(
                f"the engine for {self._source!r} did not start ({_say(error)}): its log is on standard error. Often "
                f"the weights, or the cache beside them, do not fit the memory",
                attempts=0,
            ) from error
        # Only now: the last registered runs first, and multiprocessing would kill the engine's processes before.
        atexit.register(self.close)
        return engine, counter

    def close(self) -> None:
        """Ends the engine, failing calls that wait for it. Blocks for seconds, or until the engine has started."""
        atexit.unregister(self.close)
        with self._submitting:
            self._closing = True
        with self._ending:  # a second caller waits until the engine has ended
            if self._loop.is_closed() or not self._thread.is_alive():  # a parent process's loop
                return
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _end(self) -> None:
        with suppress(Exception):  # it didn't start, which was reported, or its process is gone
            (await asyncio.wrap_future(self.started))[0].stop()
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


_engines: dict[object, SharedEngine] = {}
_unused = WeakValueDictionary[object, SharedEngine]()
"""The last engine with these settings that no model uses any more, until it has ended."""
_lock = threading.Lock()


def lease(key: object, source: str, start: Start) -> SharedEngine:
    """Returns the engine with these settings; starts it if no model uses it."""
    with _lock:
        shared = _engines.get(key)
        if shared is None:
            shared = _engines[key] = SharedEngine(source, start, _unused.get(key))
        shared.users += 1
        return shared


def release(key: object, shared: SharedEngine, *, failed: bool = False) -> bool:
    """Gives an engine back; returns whether that was its last user, who must close it.

    A failed engine isn't leased again.
    """
    with _lock:
        shared.users -= 1
        last = not shared.users
        if (last or failed) and _engines.get(key) is shared:
            del _engines[key]
        if last:
            _unused[key] = shared
        return last


def _say(error: Exception) -> str:
    return shorten(f"{type(error).__name__}: {error}", 300, placeholder="…")

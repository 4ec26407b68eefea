"""What the engines in this process share: one for all models with the same settings, on an event loop of its own."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, ClassVar, Protocol, TypeVar

from memagent.errors import ConfigError, EngineFailed, MemagentError, ModelError
from memagent.messages import ChatRequest, Completion, FinishReason, TokenIds, Usage
from memagent.models.base import refuse_overflow, refuse_tools
from memagent.models.policy import Policy
from memagent.threads import in_thread
from memagent.tokens import TokenizerFile

T = TypeVar("T")


@dataclass(frozen=True)
class Drawn:
    """The reply that an engine drew for one prompt."""

    text: str
    """Without special tokens and from the stop sequence on."""
    ids: tuple[int, ...]
    """T ids, including those of the stop sequence."""
    logprobs: tuple[float, ...] | None
    """T log-probabilities, if they were asked for."""
    finish: FinishReason
    cached: int
    """Prompt tokens from the prefix cache."""


class Engine(Protocol):
    """A running engine. It is made and used on its own event loop."""

    window: int

    async def draw(self, ids: tuple[int, ...], request: ChatRequest, tokens: bool) -> Drawn:
        """Draws a reply to P prompt ids; cancelling aborts the request in the engine.

        Raises:
            EngineFailed: the engine has died.
            ModelError: this request failed.
        """
        ...

    def stop(self) -> None:
        """Ends the engine's processes. Blocks for seconds."""
        ...


Start = Callable[[], Coroutine[Any, Any, Engine]]


class _Shared:
    """An engine, its tokenizer, the thread of its event loop, and how many models use it."""

    def __init__(self, source: str, start: Start) -> None:
        self.users = 0
        self._source, self._start_engine = source, start
        self._loop = asyncio.new_event_loop()
        # Starting blocks it for up to minutes, and afterwards each step takes some of its time: no other loop waits.
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="memagent-engine", daemon=True
        )
        self._thread.start()
        self.started = self.submit(self._start())

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs `work` on the engine's loop; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _start(self) -> tuple[Engine, TokenizerFile]:
        try:
            # Here, since it imports torch. The tokenizer is first: it takes a second to be refused.
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
        except Exception as error:  # whatever an engine raises
            raise EngineFailed(
                f"the engine for {self._source!r} did not start ({_say(error)}): its log is on standard error. Often "
                f"the weights, or the cache beside them, do not fit the memory",
                attempts=0,
            ) from error
        # Now, since what is registered last runs first: multiprocessing would kill the engine's processes before.
        atexit.register(self.close)
        return engine, counter

    def close(self) -> None:
        """Ends the engine, and calls that wait for it fail. Blocks for seconds, or until it has started."""
        atexit.unregister(self.close)
        if self._loop.is_closed():
            return
        with suppress(Exception):  # one that was reported, or a process that is gone
            self.submit(self._end()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        with suppress(MemagentError):  # it did not start
            (await asyncio.wrap_future(self.started))[0].stop()
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


_engines: dict[object, _Shared] = {}
_lock = threading.Lock()


def _lease(key: object, source: str, start: Start) -> _Shared:
    """The engine with these settings, started if no model uses it."""
    with _lock:
        shared = _engines.get(key)
        if shared is None:
            shared = _engines[key] = _Shared(source, start)
        shared.users += 1
        return shared


def _release(key: object, shared: _Shared, *, failed: bool = False) -> None:
    """Gives an engine back; its last user ends it. Nobody gets a failed one again."""
    with _lock:
        shared.users -= 1
        last = not shared.users
        if (last or failed) and _engines.get(key) is shared:
            del _engines[key]
    if last:
        shared.close()


class EngineModel(ABC):
    """Base of models that run in an engine in this process, which batches calls and caches their prefixes.

    The engine starts at the first call. Models with the same source, window and settings share it, from any event
    loops; it ends with the last of them. If it dies, the next call starts another.

    Args:
        source: a folder as `save_pretrained` writes it, or a name on the hub. A folder may include settings
            (`memagent.toml`), which agents then use as defaults.
        window: maximum tokens of prompt plus output, for which the engine reserves memory; default the config's.
        name: the model's name in records; default the spec.
        tokens: whether replies include token ids and log-probabilities.
        settings: more arguments of the engine.

    Raises:
        ConfigError: there is no such folder, or its settings are invalid.
    """

    scheme: ClassVar[str]
    """The prefix of its spec."""

    def __init__(
        self,
        source: str | Path,
        *,
        window: int | None = None,
        name: str | None = None,
        tokens: bool = False,
        **settings: Any,
    ) -> None:
        if window is not None and window < 1:
            raise ConfigError(f"window must be at least 1 token, got {window!r}")
        self._source, self.policy = find_model(source)
        self.name = name or f"{self.scheme}:{self._source}"
        self._window, self._tokens, self._settings = window, tokens, settings
        # With the process, since threads don't survive a fork.
        options = repr(sorted(settings.items()))
        self._key = (os.getpid(), type(self), self._source, window, options)
        self._shared: _Shared | None = None
        self._calls = set[Future[Drawn]]()
        self._closed = False
        self._lock = threading.Lock()

    async def complete(self, request: ChatRequest) -> Completion:
        """Draws a reply. Cancelling aborts the request in the engine.

        Raises:
            ContextOverflow: prompt plus `max_tokens` exceed the window; nothing was computed.
            TokenizerError: the chat template rejects the messages.
            ConfigError: the model cannot be loaded, or the request has tools.
            EngineFailed: the engine did not start, or died.
            ModelError: the engine refused the request, or the model is closed.
        """
        refuse_tools(self.name, request)
        shared, (engine, counter) = await self._open()
        ids = await in_thread(counter.prompt_ids, request.messages, thinking=request.thinking)
        refuse_overflow(self.name, len(ids), request.max_tokens, engine.window)
        drawn = await self._call(shared, engine.draw(ids, request, self._tokens))
        tokens = TokenIds(prompt=ids, sampled=drawn.ids, logprobs=drawn.logprobs)
        return Completion(
            text=drawn.text,
            finish_reason=drawn.finish,
            usage=Usage(
                calls=1,
                prompt_tokens=len(ids),
                completion_tokens=len(drawn.ids),
                cached_tokens=drawn.cached,
            ),
            tokens=tokens if self._tokens else None,
        )

    async def counter(self) -> TokenizerFile:
        """The model's own tokenizer with its chat template: counts are exact. Raises like `complete`."""
        return (await self._open())[1][1]

    async def window(self) -> int:
        """The engine's window. Raises like `complete`."""
        return (await self._open())[1][0].window

    async def aclose(self) -> None:
        """Aborts its calls, and ends the engine's processes unless other models use them."""
        with self._lock:
            self._closed = True
            shared, self._shared = self._shared, None
            calls = list(self._calls)
        for call in calls:
            call.cancel()
        if shared is not None:
            await asyncio.to_thread(_release, self._key, shared)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._source!r})"

    @abstractmethod
    async def _start(self) -> Engine:
        """Starts the engine, on the loop on which it will be used."""

    async def _open(self) -> tuple[_Shared, tuple[Engine, TokenizerFile]]:
        with self._lock:
            self._check_open()
            shared = self._shared = self._shared or _lease(self._key, self._source, self._start)
        try:
            # shield: a caller that is cancelled must not cancel the start for the others.
            return shared, await asyncio.shield(asyncio.wrap_future(shared.started))
        except Exception:
            await self._give_up(shared)
            raise

    async def _call(self, shared: _Shared, work: Coroutine[Any, Any, Drawn]) -> Drawn:
        with self._lock:
            if self._closed:
                work.close()
            self._check_open()
            call = shared.submit(work)
            self._calls.add(call)
        try:
            return await asyncio.wrap_future(call)
        except EngineFailed:
            await self._give_up(shared)
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._check_open()
            raise EngineFailed(f"the engine of {self.name!r} was stopped: send it again") from None
        finally:
            with self._lock:
                self._calls.discard(call)

    async def _give_up(self, shared: _Shared) -> None:
        """Leaves an engine that failed, so that the next call starts another."""
        with self._lock:
            mine = self._shared is shared
            if mine:
                self._shared = None
        if mine:
            await asyncio.to_thread(_release, self._key, shared, failed=True)

    def _check_open(self) -> None:
        if self._closed:
            raise ModelError(f"the model {self.name!r} is closed: open it again", attempts=0)


def find_model(source: str | Path) -> tuple[str, Policy | None]:
    """The folder as an absolute path, or the name on the hub; and the folder's settings.

    Raises:
        ConfigError: there is no such folder, it has no model, or its settings are invalid.
    """
    text = str(source)
    folder = Path(os.path.abspath(Path(text).expanduser()))  # noqa: PTH100 - links are left as they are
    if not folder.is_dir():
        if isinstance(source, Path) or text.startswith((".", "/", "~")) or text.count("/") > 1:
            raise ConfigError(
                f"there is no folder {str(folder)!r}: give a model folder, as save_pretrained writes it, or "
                f"a name on the hub"
            )
        return text, None
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"the folder {str(folder)!r} has no model (no config.json): give a folder written by save_pretrained or "
            f"memagent-train export"
        )
    return str(folder), Policy.load(folder)


def _say(error: Exception) -> str:
    return shorten(f"{type(error).__name__}: {error}", 300, placeholder="…")
